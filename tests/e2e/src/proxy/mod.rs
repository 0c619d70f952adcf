//! A proxy between processes and brokers that understands what passes: it can keep back the commits of a worker, or
//! what a coordinator writes to one topic, and it can cut the network, both ways or one way.
//!
//! Brokers need not know of it: where they tell clients how to find them, it tells them how to find itself.

mod relay;
mod rules;
mod wire;

pub use rules::{Frames, Hold, Way};
pub use wire::Api;

use anyhow::{Context as _, Result};
use rules::State;
use std::{
    collections::HashMap,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};

/// A running proxy. Dropping it closes all connections through it.
#[derive(Debug)]
pub struct Proxy {
    address: String,
    shared: Arc<Shared>,
    _doors: JoinSet<()>,
}

/// What the connections of a proxy share.
#[derive(Debug)]
struct Shared {
    state: watch::Sender<State>,
    ids: Mutex<wire::TopicIds>,
    /// Ports of the brokers and the ports that stand for them.
    ports: HashMap<u16, u16>,
}

impl Proxy {
    /// Stands before these brokers: addresses on loopback, separated by commas.
    ///
    /// # Errors
    /// An address cannot be read, or no port is to be had.
    pub async fn before(brokers: &str) -> Result<Self> {
        let mut doors = Vec::new();
        let mut ports = HashMap::new();
        for broker in brokers.split(',') {
            let broker: SocketAddr = broker.parse().with_context(|| format!("{broker} is no address"))?;
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
            ports.insert(broker.port(), listener.local_addr()?.port());
            doors.push((listener, broker));
        }
        let addresses: Vec<String> = doors
            .iter()
            .filter_map(|(_, broker)| ports.get(&broker.port()))
            .map(|port| format!("127.0.0.1:{port}"))
            .collect();
        let shared = Arc::new(Shared { state: watch::Sender::default(), ids: Mutex::default(), ports });
        let mut tasks = JoinSet::new();
        for (listener, broker) in doors {
            tasks.spawn(open(listener, broker, shared.clone()));
        }
        Ok(Self { address: addresses.join(","), shared, _doors: tasks })
    }

    /// Where clients connect instead of to the brokers.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Keeps back frames from now on.
    #[must_use = "it holds until it is dropped"]
    pub fn hold(&self, frames: Frames) -> Hold {
        self.hold_after(0, frames)
    }

    /// Keeps back frames once so many have passed.
    #[must_use = "it holds until it is dropped"]
    pub fn hold_after(&self, passes: usize, frames: Frames) -> Hold {
        State::hold(&self.shared.state, frames, passes)
    }

    /// Nothing passes that way until [`Proxy::mend`]. Connections stay open, and what is sent waits, as in a network
    /// that is cut.
    pub fn cut(&self, way: Way) {
        self.shared.state.send_modify(|state| state.cut(way, true));
    }

    /// Nothing passes either way until [`Proxy::mend`].
    pub fn cut_off(&self) {
        self.cut(Way::ToBroker);
        self.cut(Way::FromBroker);
    }

    /// Everything passes again, late.
    pub fn mend(&self) {
        self.shared.state.send_modify(|state| {
            state.cut(Way::ToBroker, false);
            state.cut(Way::FromBroker, false);
        });
    }

    /// Each frame takes so much longer.
    pub fn slow_down(&self, delay: Duration) {
        self.shared.state.send_modify(|state| state.delay = delay);
    }
}

async fn open(listener: TcpListener, broker: SocketAddr, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((client, _)) = accepted else { continue };
                let shared = shared.clone();
                connections.spawn(async move {
                    // Without a broker the client finds its connection closed, as it would find it refused.
                    if let Ok(broker) = TcpStream::connect(broker).await {
                        relay::run(client, broker, shared).await;
                    }
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}
