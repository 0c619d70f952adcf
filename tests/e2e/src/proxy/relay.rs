//! One connection through a proxy: two directions, frame by frame.

use super::{
    Shared,
    rules::{Kept, State, Way},
    wire::{self, Request},
};
use bytes::{Buf as _, BytesMut};
use std::{
    collections::{HashMap, VecDeque},
    io,
    sync::{Arc, Mutex, PoisonError},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    time::sleep,
};

/// Nothing that Kafka's clients send is longer.
const MAX_FRAME: usize = 128 << 20;

/// Requests that are not answered yet, by their correlations.
type Asked = Arc<Mutex<HashMap<i32, Request>>>;

/// Relays until either side closes.
pub(super) async fn run(client: TcpStream, broker: TcpStream, shared: Arc<Shared>) {
    let asked = Asked::default();
    let _ = client.set_nodelay(true); // only speed depends on it
    let _ = broker.set_nodelay(true);
    let (from_client, to_client) = client.into_split();
    let (from_broker, to_broker) = broker.into_split();
    let direction = |way, source, sink| Direction {
        way,
        state: shared.state.subscribe(),
        shared: shared.clone(),
        asked: asked.clone(),
        source,
        sink,
        buffer: BytesMut::new(),
        kept: VecDeque::new(),
    };
    // How a connection ends is of no interest; with it goes what was kept back.
    tokio::select! {
        _ = direction(Way::ToBroker, from_client, to_broker).relay() => {}
        _ = direction(Way::FromBroker, from_broker, to_client).relay() => {}
    }
}

struct Direction {
    way: Way,
    state: watch::Receiver<State>,
    shared: Arc<Shared>,
    asked: Asked,
    source: OwnedReadHalf,
    sink: OwnedWriteHalf,
    buffer: BytesMut,
    kept: VecDeque<(Kept, BytesMut)>,
}

impl Direction {
    async fn relay(mut self) -> io::Result<()> {
        loop {
            let state = self.state.borrow_and_update().clone();
            if state.is_cut(self.way) {
                // As in a network that is cut: what was sent waits, and the end of the other side is not heard of.
                let _ = self.state.changed().await; // the sender lives in `shared`
                continue;
            }
            self.let_go().await?;
            while let Some(frame) = self.next_frame()? {
                self.pass_on(frame, &state).await?;
            }
            tokio::select! {
                read = self.source.read_buf(&mut self.buffer) => if read? == 0 {
                    return Ok(());
                },
                _ = self.state.changed() => {}
            }
        }
    }

    /// Sends what was kept back and may go now, in its order.
    async fn let_go(&mut self) -> io::Result<()> {
        let mut still = VecDeque::new();
        let mut kept = std::mem::take(&mut self.kept);
        while let Some((by, frame)) = kept.pop_front() {
            if by.0.lets_pass() {
                self.sink.write_all(&frame).await?;
            } else {
                still.push_back((by, frame));
            }
        }
        self.kept = still;
        Ok(())
    }

    /// The next whole frame, its length included.
    fn next_frame(&mut self) -> io::Result<Option<BytesMut>> {
        let Some(head) = self.buffer.first_chunk::<4>() else { return Ok(None) };
        let length = usize::try_from(i32::from_be_bytes(*head)).unwrap_or(usize::MAX);
        if length > MAX_FRAME {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok((self.buffer.remaining() >= 4 + length).then(|| self.buffer.split_to(4 + length)))
    }

    async fn pass_on(&mut self, mut frame: BytesMut, state: &State) -> io::Result<()> {
        let request = match self.way {
            Way::ToBroker => self.asks(&frame),
            Way::FromBroker => self.answers(&mut frame),
        };
        if !state.delay.is_zero() {
            sleep(state.delay).await;
        }
        if let Some(rule) = request.as_ref().and_then(|request| state.rule_for(self.way, request))
            && (self.kept.iter().any(|(by, _)| Arc::ptr_eq(&by.0, rule)) || !rule.lets_pass())
        {
            // Behind those of its kind that are kept back already, or they would change their order.
            self.kept.push_back((Kept::by(rule.clone()), frame));
            return Ok(());
        }
        self.sink.write_all(&frame).await
    }

    fn asks(&self, frame: &[u8]) -> Option<Request> {
        let ids = self.shared.ids.lock().unwrap_or_else(PoisonError::into_inner);
        let request = wire::request(&frame[4..], &ids)?;
        drop(ids);
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.insert(request.correlation, request.clone());
        Some(request)
    }

    fn answers(&self, frame: &mut [u8]) -> Option<Request> {
        let body = &mut frame[4..];
        let correlation = wire::correlation(body)?;
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let request = asked.remove(&correlation)?;
        drop(asked);
        wire::learn(&request, body, &mut self.shared.ids.lock().unwrap_or_else(PoisonError::into_inner));
        wire::readdress(&request, body, &self.shared.ports);
        Some(request)
    }
}
