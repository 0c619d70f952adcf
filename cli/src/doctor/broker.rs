//! Does a broker answer, and are the others where they say?

use super::finding::{Finding, Remark};
use futures::future::join_all;
use starling_bus::{BusError, ClusterDescription};
use std::time::Duration;
use tokio::{net::TcpStream, time::timeout};

pub(super) const NAME: &str = "broker";

/// How long a connection to a broker may take.
const CONNECT: Duration = Duration::from_secs(3);
/// Brokers whose addresses are tried.
const MOST: usize = 32;

/// Addresses at which brokers say that they are and nobody answers.
pub(super) async fn silent_addresses(cluster: &ClusterDescription) -> Vec<String> {
    let tries = cluster.brokers.iter().take(MOST).map(|broker| async {
        let reached = timeout(CONNECT, TcpStream::connect(broker.address.as_str())).await;
        (!matches!(reached, Ok(Ok(_)))).then(|| broker.address.clone())
    });
    join_all(tries).await.into_iter().flatten().collect()
}

pub(super) fn judge(
    brokers: &str,
    cluster: &Result<ClusterDescription, BusError>,
    silent: &[String],
    took: Duration,
) -> Finding {
    let cluster = match cluster {
        Ok(cluster) => cluster,
        Err(BusError::Unreachable { reason, .. }) => {
            let advice = "start a broker (`scripts/kafka start`) or name another: kafka.brokers or --brokers";
            return Finding::of(
                NAME,
                Remark::fault(format!("nobody answers at {brokers}: {reason}"), advice),
            );
        }
        Err(error) => {
            let advice = "look at kafka.brokers and at the security settings of kafka";
            return Finding::of(NAME, Remark::fault(format!("{brokers}: {error}"), advice));
        }
    };
    let addresses: Vec<&str> = cluster.brokers.iter().map(|broker| broker.address.as_str()).collect();
    let id = cluster.id.as_deref().map_or(String::new(), |id| format!(" of cluster {id}"));
    let version = cluster.protocol.as_deref().map_or(String::new(), |version| format!(", version {version}"));
    let count = addresses.len();
    let well = format!(
        "{brokers} answers after {} ms; {count} broker{}{id}{version}: {}",
        took.as_millis(),
        if count == 1 { "" } else { "s" },
        addresses.join(", ")
    );
    let remarks = if silent.is_empty() {
        Vec::new()
    } else {
        let found = format!(
            "{brokers} answers, but the cluster names addresses where nobody does: {}",
            silent.join(", ")
        );
        let advice = "set advertised.listeners of the brokers to addresses that are reachable from here";
        vec![Remark::fault(found, advice)]
    };
    Finding::from_remarks(NAME, well, remarks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Status;
    use starling_bus::BrokerDescription;

    #[test]
    fn a_broker_is_judged_by_its_answer() {
        let cluster = ClusterDescription {
            id: Some("c1".into()),
            brokers: vec![BrokerDescription { id: 1, address: "b1:9092".into() }],
            protocol: Some("3.9-IV0".into()),
        };
        let unreachable = BusError::Unreachable { brokers: "b:1".into(), reason: "refused".into() };
        for (cluster, silent, status, part) in [
            (
                Ok(cluster.clone()),
                vec![],
                Status::Ok,
                "after 7 ms; 1 broker of cluster c1, version 3.9-IV0: b1:9092",
            ),
            (Ok(cluster), vec!["b1:9092".to_owned()], Status::Fault, "nobody does: b1:9092"),
            (Err(unreachable), vec![], Status::Fault, "nobody answers at b:1: refused"),
            (Err(BusError::Refused("no".into())), vec![], Status::Fault, "the broker refuses: no"),
        ] {
            let finding = judge("b:1", &cluster, &silent, Duration::from_millis(7));
            assert_eq!(finding.status, status, "{finding:?}");
            assert!(finding.found.contains(part), "{finding:?}");
            assert_eq!(finding.advice.is_empty(), status == Status::Ok, "{finding:?}");
        }
    }
}
