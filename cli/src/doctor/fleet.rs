//! Who speaks: members, versions, clocks.

use super::finding::{Finding, Remark};
use crate::installation::{FleetReader, HeardBeat, counted, role_of};
use starling_bus::{Bus, BusError};
use starling_protocol::{
    TopicNames,
    fleet::{FleetBeat, FleetMember},
};
use starling_runtime::Clock;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use tokio::time::{Instant, timeout_at};

pub(super) const NAME: &str = "fleet";
pub(super) const VERSIONS: &str = "versions";
pub(super) const CLOCK: &str = "clock";

/// A difference of clocks that nobody need care about.
const TOLERATED: i64 = 1_000;

/// Who was heard to speak.
#[derive(Clone, Debug, Default)]
pub(super) struct Fleet {
    /// The last beat of each member that lives, in the order of their names.
    pub(super) living: Vec<FleetBeat>,
    /// For each process: by how many milliseconds this machine's clock is ahead of its, at most.
    pub(super) ahead_of: BTreeMap<String, i64>,
    /// The same for the broker, if its records have its time.
    pub(super) ahead_of_broker: Option<i64>,
    /// Why nobody could be heard.
    pub(super) error: Option<BusError>,
}

/// How long one must listen to have heard everybody, if each speaks at this interval.
pub(crate) fn long_enough(interval: Duration) -> Duration {
    (interval * 5 / 2).clamp(Duration::from_millis(1500), Duration::from_secs(10))
}

/// Listens for a while. `broker_stamps` says that the time of records is the broker's.
pub(super) async fn listen(bus: &dyn Bus, names: &TopicNames, within: Duration) -> Heard {
    let (mut heard, clock) = (Heard::default(), Clock::system());
    let until = Instant::now() + within;
    let listen = async {
        let reader = FleetReader::open(bus, names).await?;
        loop {
            let beat = reader.next().await?;
            heard.beat(beat, clock.now().0);
        }
    };
    let ended: Result<Result<(), BusError>, _> = timeout_at(until, listen).await;
    if let Ok(Err(error)) = ended {
        heard.error = Some(error);
    }
    heard
}

/// Beats as they came.
#[derive(Debug, Default)]
pub(super) struct Heard {
    members: BTreeMap<FleetMember, FleetBeat>,
    ahead_of: BTreeMap<String, i64>,
    ahead_of_stamps: Option<i64>,
    error: Option<BusError>,
}

impl Heard {
    /// A beat came at `now`. Only what is said while somebody listens proves that its speaker lives, whatever
    /// the clocks say.
    fn beat(&mut self, heard: HeardBeat, now: i64) {
        let HeardBeat { beat, stamped, live } = heard;
        if !live {
            return;
        }
        // On its way a beat can only get older, so the least is nearest to the truth.
        let least = |known: &mut i64, seen: i64| *known = (*known).min(seen);
        let process = beat.process.split('/').next().unwrap_or_default().to_owned();
        least(self.ahead_of.entry(process).or_insert(i64::MAX), now.saturating_sub(beat.at.0));
        least(self.ahead_of_stamps.get_or_insert(i64::MAX), now.saturating_sub(stamped.0));
        if beat.leaving {
            self.members.remove(&beat.member());
        } else {
            self.members.insert(beat.member(), beat);
        }
    }

    pub(super) fn into_fleet(self, broker_stamps: bool) -> Fleet {
        Fleet {
            living: self.members.into_values().collect(),
            ahead_of: self.ahead_of,
            ahead_of_broker: self.ahead_of_stamps.filter(|_| broker_stamps),
            error: self.error,
        }
    }
}

pub(super) fn judge(fleet: &Fleet, names: &TopicNames) -> Finding {
    if let Some(error) = fleet.error.as_ref().filter(|_| fleet.living.is_empty()) {
        return Finding::not_checked(NAME, &error.to_string(), "");
    }
    if fleet.living.is_empty() {
        let advice = "start starling-planner, starling-worker and starling-critic, or `starling dev`";
        return Finding::of(NAME, Remark::warning("no service speaks", advice));
    }
    let roles: Vec<String> = fleet.living.iter().map(|beat| role_of(beat, names)).collect();
    let mut remarks = Vec::new();
    for (role, service) in [
        ("intake", "starling-planner"),
        ("coordinator", "starling-planner"),
        ("planner", "starling-planner"),
        ("worker", "starling-worker"),
        ("critic", "starling-critic"),
    ] {
        if !roles.iter().any(|known| known == role) {
            remarks.push(Remark::warning(format!("no {role} speaks"), format!("start {service}")));
        }
    }
    let workers = || fleet.living.iter().filter(|beat| beat.role == "worker");
    let slots: i64 = workers().map(|beat| i64::from(beat.slots)).sum();
    let busy: i64 = workers().map(|beat| i64::from(beat.busy)).sum();
    let who = counted(roles.iter().map(String::as_str));
    Finding::from_remarks(NAME, format!("{who}; {busy} of {slots} worker slots busy"), remarks)
}

pub(super) fn judge_versions(fleet: &Fleet, own: &str) -> Finding {
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for beat in &fleet.living {
        versions.entry(&beat.version).or_default().insert(&beat.role);
    }
    if versions.is_empty() {
        return Finding::not_checked(VERSIONS, "no service speaks", "");
    }
    let all_own = versions.keys().all(|version| *version == own);
    let texts: Vec<String> = versions
        .iter()
        .map(|(version, roles)| {
            format!("{version} ({})", roles.iter().copied().collect::<Vec<_>>().join(", "))
        })
        .collect();
    if all_own {
        return Finding::ok(VERSIONS, format!("all services and this program are {own}"));
    }
    let found = format!("this program is {own}, services are {}", texts.join(" and "));
    let advice = "let all services and this program be of one version, coordinators last";
    Finding::of(VERSIONS, Remark::warning(found, advice))
}

pub(super) fn judge_clock(fleet: &Fleet, forget_after: Duration) -> Finding {
    let others = fleet.ahead_of.iter().map(|(process, ahead)| (format!("that of {process}"), *ahead));
    let broker = fleet.ahead_of_broker.map(|ahead| ("the broker's".to_owned(), ahead));
    let worst = others.chain(broker).max_by_key(|(_, ahead)| ahead.unsigned_abs());
    let Some((whose, ahead)) = worst else {
        return Finding::not_checked(CLOCK, "no service speaks, so there is no clock to compare with", "");
    };
    let amount = ahead.unsigned_abs();
    let direction = if ahead >= 0 { "ahead of" } else { "behind" };
    let found = format!("this clock is {amount} ms {direction} {whose}");
    let with = if fleet.ahead_of_broker.is_some() { " and the broker" } else { "" };
    let well = format!(
        "within {} ms of {} process{}{with}",
        amount.max(1),
        fleet.ahead_of.len(),
        if fleet.ahead_of.len() == 1 { "" } else { "es" }
    );
    let advice = "synchronise the clocks of all machines (NTP): deadlines and beats are compared across them";
    let forgotten = u64::try_from(forget_after.as_millis()).unwrap_or(u64::MAX);
    let remarks = if amount > forgotten {
        let found =
            format!("{found}; beyond {forgotten} ms (fleet.forget_after) processes do not see each other");
        vec![Remark::fault(found, advice)]
    } else if ahead.abs() > TOLERATED {
        vec![Remark::warning(found, advice)]
    } else {
        Vec::new()
    };
    Finding::from_remarks(CLOCK, well, remarks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Status;
    use starling_protocol::Timestamp;

    fn beat(process: &str, role: &str, version: &str) -> FleetBeat {
        FleetBeat {
            process: process.into(),
            role: role.into(),
            pool: String::new(),
            version: version.into(),
            slots: 4,
            busy: 1,
            partitions: vec![0],
            active: 0,
            at: Timestamp(1_000),
            leaving: false,
            room: -1,
            asks: vec![],
        }
    }

    fn heard(beat: FleetBeat, live: bool) -> HeardBeat {
        HeardBeat { beat, stamped: Timestamp(990), live }
    }

    fn full() -> Vec<FleetBeat> {
        vec![
            beat("p/s.intake", "intake", "1"),
            beat("p/s.planner", "planner", "1"),
            beat("p/coordinator", "planner", "1"),
            beat("w/s.worker", "worker", "1"),
            beat("c/s.critic", "critic", "1"),
        ]
    }

    #[test]
    fn only_who_speaks_now_lives() {
        let mut ears = Heard::default();
        ears.beat(heard(beat("old/s.worker", "worker", "1"), false), 1_500);
        ears.beat(heard(beat("w/s.worker", "worker", "1"), true), 1_500);
        ears.beat(heard(beat("w/s.worker", "worker", "1"), true), 1_003);
        ears.beat(heard(beat("gone/s.worker", "worker", "1"), true), 1_003);
        ears.beat(heard(FleetBeat { leaving: true, ..beat("gone/s.worker", "worker", "1") }, true), 1_003);
        let fleet = ears.into_fleet(true);
        let names: Vec<&str> = fleet.living.iter().map(|beat| beat.process.as_str()).collect();
        assert_eq!(names, ["w/s.worker"]);
        assert_eq!(fleet.ahead_of.get("w"), Some(&3));
        assert_eq!(fleet.ahead_of_broker, Some(13));
    }

    #[test]
    fn missing_roles_are_named() {
        let names = TopicNames::new("s");
        let fleet = |living| Fleet { living, ..Fleet::default() };
        let finding = judge(&fleet(full()), &names);
        assert_eq!(finding.status, Status::Ok, "{finding:?}");
        assert_eq!(
            finding.found,
            "1 coordinator, 1 critic, 1 intake, 1 planner, 1 worker; 1 of 4 worker slots busy"
        );
        let finding = judge(&fleet(full().into_iter().take(3).collect()), &names);
        assert_eq!(finding.status, Status::Warning);
        assert_eq!(finding.found, "no worker speaks; no critic speaks");
        assert_eq!(finding.advice, "start starling-worker; start starling-critic");
        assert_eq!(judge(&fleet(vec![]), &names).found, "no service speaks");
    }

    #[test]
    fn mixed_versions_are_a_warning() {
        let fleet = |living| Fleet { living, ..Fleet::default() };
        assert_eq!(judge_versions(&fleet(full()), "1").status, Status::Ok);
        for (living, own) in
            [(full(), "2"), ([full(), vec![beat("x/s.worker", "worker", "2")]].concat(), "1")]
        {
            let finding = judge_versions(&fleet(living), own);
            assert_eq!(finding.status, Status::Warning, "{finding:?}");
            assert!(finding.found.contains("1 (critic, intake, planner, worker)"), "{finding:?}");
        }
        assert_eq!(judge_versions(&fleet(vec![]), "1").status, Status::Warning);
    }

    #[test]
    fn clocks_are_judged_by_the_worst_difference() {
        let forget = Duration::from_secs(5);
        for (ahead, broker, status, found) in [
            (3, None, Status::Ok, "within 3 ms of 1 process"),
            (3, Some(-900), Status::Ok, "within 900 ms of 1 process and the broker"),
            (1_500, None, Status::Warning, "1500 ms ahead of that of p"),
            (-1_500, Some(2), Status::Warning, "1500 ms behind that of p"),
            (2, Some(70_000), Status::Fault, "70000 ms ahead of the broker's"),
        ] {
            let fleet = Fleet {
                ahead_of: BTreeMap::from([("p".to_owned(), ahead)]),
                ahead_of_broker: broker,
                ..Fleet::default()
            };
            let finding = judge_clock(&fleet, forget);
            assert_eq!(finding.status, status, "{finding:?}");
            assert!(finding.found.contains(found), "{finding:?}");
        }
        assert_eq!(judge_clock(&Fleet::default(), forget).status, Status::Warning);
    }
}
