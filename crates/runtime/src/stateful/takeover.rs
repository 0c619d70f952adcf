//! Taking a partition over: announce the epoch, read the state log up to it.

use super::{
    failure::Failure,
    feed::{FeedEvent, Tap},
    machine::Machine,
    partition::Shared,
    report::count,
};
use starling_bus::{Delivered, InRecord, OutRecord, PartitionId, StartAt};
use starling_engine::statelog::{Observed, Owner, Refusal, Replay, Replayed, Takeover};
use starling_protocol::state::StateRecord;
use tokio::time::timeout;

/// A partition that was taken over.
pub(super) struct Taken<M> {
    pub(super) owner: Box<Owner>,
    pub(super) machine: M,
    pub(super) inbox: Tap,
    /// Where the inbox is read from, if the log does not say so yet.
    pub(super) start_input: i64,
    /// Deadlines fire only once the inbox was read up to here.
    pub(super) backlog_end: i64,
    /// Decisions since the last snapshot.
    pub(super) since_snapshot: u64,
}

pub(super) async fn take_over<M: Machine>(shared: &Shared<M>, number: i32) -> Result<Taken<M>, Failure> {
    let state = shared.state(number);
    let nonce = format!("{:032x}", shared.random.name());
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let takeover = Takeover::new(nonce, shared.partitions, version, shared.clock.now());
    let record = encode(shared, &takeover.record())?;
    let epoch = append(shared, &state, record).await?;
    count(&shared.reporter.counters.epochs, 1);

    let (owner, machine, since_snapshot) = read_state(shared, number, &state, &takeover, epoch).await?;
    let inbox = shared.inbox(number);
    let marks = shared.bus.watermarks(&inbox).await?;
    let start_input = owner.position().next_input.unwrap_or(marks.low);
    tracing::info!(
        partition = number,
        epoch,
        seq = owner.position().seq,
        next_input = start_input,
        undone_effects = owner.effects_outstanding(),
        "the partition is taken over"
    );
    let tap = shared.inboxes.tap(inbox, StartAt::Offset(start_input)).await?;
    Ok(Taken { owner, machine, inbox: tap, start_input, backlog_end: marks.high, since_snapshot })
}

/// Reads from the hint if there is a good one, else from the start.
async fn read_state<M: Machine>(
    shared: &Shared<M>,
    number: i32,
    state: &PartitionId,
    takeover: &Takeover,
    epoch: i64,
) -> Result<(Box<Owner>, M, u64), Failure> {
    let hint = shared.bus.committed(&shared.options.group, state).await?.map(|committed| committed.offset);
    if let Some(hint) = hint.filter(|hint| (0..epoch).contains(hint)) {
        match replay(shared, number, state, takeover.clone().appended(epoch), StartAt::Offset(hint)).await {
            Err(Failure::Refused(
                refusal @ (Refusal::NoBeginning { .. } | Refusal::StaleBeginning { .. }),
            )) => {
                tracing::warn!(partition = number, hint, %refusal, "no snapshot at the hint: reading from the start");
            }
            Err(Failure::Uncertain(reason)) => {
                tracing::warn!(partition = number, hint, reason, "reading from the start");
            }
            other => return other,
        }
    }
    replay(shared, number, state, takeover.clone().appended(epoch), StartAt::Beginning).await
}

async fn replay<M: Machine>(
    shared: &Shared<M>,
    number: i32,
    state: &PartitionId,
    mut replay: Replay,
    start: StartAt,
) -> Result<(Box<Owner>, M, u64), Failure> {
    let mut machine = (shared.make)(number);
    let mut since_snapshot = 0;
    let mut tap = shared.logs.tap(state.clone(), start).await?;
    loop {
        let record = next_record(shared, &mut tap, replay.epoch()).await?;
        count(&shared.reporter.counters.replayed, 1);
        match replay.observe(record.offset, decode(shared, &record)?)? {
            Replayed::More(more, observed) => {
                replay = more;
                match observed {
                    Observed::Decision { changed, deleted } => {
                        machine.apply(&changed, &deleted);
                        since_snapshot += 1;
                    }
                    Observed::Base(entities) => machine.apply(&entities, &[]),
                    Observed::Snapshot => since_snapshot = 0,
                    Observed::Epoch | Observed::SnapshotPart | Observed::Ignored(_) => {}
                }
            }
            Replayed::Owned(owner) => return Ok((owner, machine, since_snapshot)),
        }
    }
}

/// The next record of the state log, which holds all up to `last`.
pub(super) async fn next_record<M>(
    shared: &Shared<M>,
    tap: &mut Tap,
    last: i64,
) -> Result<InRecord, Failure> {
    loop {
        let event = timeout(shared.options.append_timeout, tap.next())
            .await
            .map_err(|_| Failure::Uncertain("the state log cannot be read".into()))?;
        match event {
            Some(FeedEvent::Record(record)) => return Ok(record),
            Some(FeedEvent::End(next)) if next > last => return Err(Refusal::Missing { offset: last }.into()),
            Some(FeedEvent::End(_)) => {} // a replica that has not heard of the last records yet
            Some(FeedEvent::OutOfRange(offset)) => {
                return Err(Failure::Uncertain(format!("the state log has no offset {offset}")));
            }
            None => return Err(Failure::Fatal("the reader of the state log has ended".into())),
        }
    }
}

pub(super) fn encode<M>(shared: &Shared<M>, record: &StateRecord) -> Result<Vec<u8>, Failure> {
    let encoded = shared.encoder.schemas.codec().encode(record);
    encoded.map_err(|error| Failure::Fatal(format!("a state record cannot be encoded: {error}")))
}

pub(super) fn decode<M>(shared: &Shared<M>, record: &InRecord) -> Result<StateRecord, Refusal> {
    let decoded = shared.encoder.schemas.codec().decode(record.value());
    decoded.map_err(|error| Refusal::Undecodable { offset: record.offset, reason: error.to_string() })
}

/// Appends to the state log; the offset, or why it is not known.
pub(super) async fn append<M>(
    shared: &Shared<M>,
    state: &PartitionId,
    payload: Vec<u8>,
) -> Result<i64, Failure> {
    let record =
        OutRecord { to: state.clone(), key: None, headers: Vec::new(), payload: Some(payload.into()) };
    let delivery = shared.bus.send(record); // under way already
    match timeout(shared.options.append_timeout, delivery).await {
        Ok(Ok(Delivered { offset: Some(offset) })) => Ok(offset),
        Ok(Ok(Delivered { offset: None })) => {
            Err(Failure::Uncertain("the broker did not say where the record lies".into()))
        }
        Ok(Err(error)) => Err(Failure::Uncertain(error.to_string())),
        Err(_) => Err(Failure::Uncertain("the broker did not answer in time".into())),
    }
}
