//! The thread that polls one consumer, always.
//!
//! Everything that touches the consumer happens here, commits excepted; so no event of a partition that
//! was removed or revoked can slip through, and a rebalance is served whatever the application does.
//! The thread sleeps until librdkafka or a caller unparks it; the watchdog covers a lost wake-up.

use super::{
    convert::{decode, list_of},
    errors::code_of,
    shared::{Command, Probe, PumpConsumer, Shared},
};
use crate::{BusError, Deliver, GroupEvent, PartitionId, StartAt};
use rdkafka::{
    Message, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer, ConsumerContext},
    error::{KafkaError, RDKafkaErrorCode},
    message::BorrowedMessage,
};
use std::{
    sync::{Arc, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};

/// How long a lost wake-up can go unnoticed.
const WATCHDOG: Duration = Duration::from_millis(100);
/// How long a full hand-over is waited for before the partitions are paused. Shorter than any session.
const PATIENCE: Duration = Duration::from_millis(50);
/// How long a consumer that is to be closed is polled, or left alone, at a time.
const TURN: Duration = Duration::from_millis(20);
/// Events taken between two looks at the commands.
const BATCH: usize = 256;
/// How long to ask whether the brokers are there before the consumer is closed in the orderly way.
pub(super) const PROBE: Duration = Duration::from_secs(1);

/// The loop. Ends when it is told to; then `release` is called when nobody may use the consumer any more, and
/// `ended` when the application need not wait any longer.
///
/// That can be before the consumer is closed. Closing while the brokers are away can hang or crash inside
/// librdkafka, so they are waited for, as long as it takes: a member that went without a word would go on sending
/// heartbeats from librdkafka's own threads, and its group would wait minutes for it to answer.
pub(super) fn run(
    consumer: Arc<PumpConsumer>,
    shared: &Shared,
    release: impl FnOnce(),
    ended: impl FnOnce(),
) {
    let pump = Pump { consumer: &consumer, shared };
    let deadline = pump.run();
    release();
    let mut closing = Closing::Asking;
    let in_time = pump.close(&mut closing, deadline);
    shared.handover.put(GroupEvent::Closed);
    ended();
    if !in_time {
        tracing::warn!("the brokers do not answer: a consumer is closed when they do");
        while !pump.close(&mut closing, Instant::now() + PROBE) {}
    }
    // A commit that hangs may still use it: then it goes with that.
    drop(consumer);
}

/// How far the end of a consumer has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Closing {
    /// Whether the brokers answer is not known.
    Asking,
    /// librdkafka is told to close.
    Told,
}

struct Pump<'a> {
    consumer: &'a PumpConsumer,
    shared: &'a Shared,
}

impl Pump<'_> {
    /// Until when the consumer is to be closed.
    fn run(&self) -> Instant {
        loop {
            while let Some(command) = self.shared.next_command() {
                match command {
                    Command::Add(at, start, done) => {
                        let _ = done.send(self.add(at, start)); // the caller may have gone
                    }
                    Command::Remove(at, done) => {
                        self.remove(&at);
                        let _ = done.send(());
                    }
                    Command::Leave(deadline) => return self.leave(deadline),
                    Command::Abandon => {
                        self.shared.leaving.store(true, Ordering::Relaxed);
                        return Instant::now() + self.shared.request_timeout;
                    }
                }
            }
            self.relieve();
            self.settle();
            if !self.poll_batch() {
                thread::park_timeout(WATCHDOG);
            }
        }
    }

    /// Takes what is there; false if nothing was left.
    fn poll_batch(&self) -> bool {
        for _ in 0..BATCH {
            match self.consumer.poll(Duration::ZERO) {
                Some(Ok(message)) => self.deliver(&message),
                Some(Err(error)) => self.complain(&error),
                None if self.shared.served.swap(false, Ordering::Relaxed) => {}
                None => return false,
            }
        }
        true
    }

    fn deliver(&self, message: &BorrowedMessage<'_>) {
        let mut book = self.shared.book();
        let came = book.came(message.topic(), message.partition(), message.offset());
        let Some(at) = came.filter(|_| self.shared.deliver == Deliver::Records) else { return };
        let record = decode(message, at);
        if book.is_throttled() {
            book.in_hand.push_back(GroupEvent::Record(record));
            return;
        }
        drop(book);
        if let Err(record) = self.shared.handover.put_record(record, PATIENCE) {
            let mut book = self.shared.book();
            book.in_hand.push_back(GroupEvent::Record(record));
            book.throttle(true);
            drop(book);
            self.settle();
        }
    }

    /// After the queue was full: hands over what is in hand and lets the partitions run again.
    fn relieve(&self) {
        if !self.shared.book().is_throttled() || !self.shared.handover.has_room() {
            return;
        }
        loop {
            let Some(event) = self.shared.book().in_hand.pop_front() else { break };
            let GroupEvent::Record(record) = event else {
                self.shared.handover.put(event);
                continue;
            };
            if let Err(record) = self.shared.handover.put_record(record, Duration::ZERO) {
                self.shared.book().in_hand.push_front(GroupEvent::Record(record));
                return;
            }
        }
        self.shared.book().throttle(false);
    }

    /// Hands over an event that must not overtake the records in hand.
    fn emit(&self, event: GroupEvent) {
        let mut book = self.shared.book();
        if book.is_throttled() {
            book.in_hand.push_back(event);
        } else {
            drop(book);
            self.shared.handover.put(event);
        }
    }

    fn settle(&self) {
        let (pause, resume) = self.shared.book().settle();
        self.tell("pause", &pause, |list| self.consumer.pause(list));
        self.tell("resume", &resume, |list| self.consumer.resume(list));
    }

    fn tell(
        &self,
        what: &str,
        partitions: &[PartitionId],
        act: impl FnOnce(&TopicPartitionList) -> Result<(), KafkaError>,
    ) {
        if partitions.is_empty() {
            return;
        }
        if let Err(error) = act(&list_of(partitions)) {
            self.emit(GroupEvent::Trouble(BusError::Retry(format!("cannot {what} {partitions:?}: {error}"))));
        }
    }

    fn complain(&self, error: &KafkaError) {
        match error {
            KafkaError::PartitionEOF(partition) => self.end_reached(*partition),
            KafkaError::MessageConsumptionFatal(_) => {
                let partitions = self.shared.book().all();
                self.shared.retract(&partitions);
                if !partitions.is_empty() {
                    self.shared.handover.put(GroupEvent::Lost(partitions));
                }
                let reason = format!("{error}: {}", self.shared.last_words());
                self.shared.handover.put(GroupEvent::Fatal(BusError::Fatal(reason)));
            }
            _ => match code_of(error) {
                Some(RDKafkaErrorCode::AutoOffsetReset | RDKafkaErrorCode::OffsetOutOfRange) => {
                    self.check_ranges()
                }
                _ => self.shared.handover.put(GroupEvent::Trouble(self.shared.error(error))),
            },
        }
    }

    /// librdkafka names the partition by its number only. If several topics have it, ask where they end.
    fn end_reached(&self, partition: i32) {
        if self.shared.deliver == Deliver::AssignmentOnly {
            return;
        }
        let candidates = self.shared.book().numbered(partition);
        if let [(at, place)] = candidates.as_slice() {
            if let Some(next_offset) = offset_in(&self.shared.last_words()).or(place.position) {
                self.emit(GroupEvent::End { at: at.clone(), next_offset });
            }
            return;
        }
        for (at, place) in candidates {
            if let Some((low, high)) = self.watermarks(&at)
                && place.position.unwrap_or(low) >= high
            {
                self.emit(GroupEvent::End { at, next_offset: high });
            }
        }
    }

    /// Some partition's offset is not there; librdkafka does not say whose, and has stopped fetching it. Those
    /// that are out of range are told; all that may be meant otherwise are begun again where they were.
    fn check_ranges(&self) {
        if self.shared.deliver == Deliver::AssignmentOnly {
            return;
        }
        let (mut suspects, mut found) = (Vec::new(), false);
        let places = self.shared.book().places(); // not in the loop's head, which would hold the book all along
        for (at, place) in places {
            match place.position {
                _ if place.stopped => {}
                // The leader of a fresh topic did not know it yet when it was asked where it begins.
                None => suspects.push((at, Offset::Beginning, true)),
                Some(offset) => match self.watermarks(&at) {
                    Some((low, high)) if offset < low || offset > high => {
                        self.shared.book().stop(&at);
                        self.emit(GroupEvent::OutOfRange { at, offset });
                        found = true;
                    }
                    // Not to be known now: it may be the one.
                    answer => suspects.push((at, Offset::Offset(offset), answer.is_none())),
                },
            }
        }
        // If none is out of range any more, its log has moved meanwhile.
        for (at, to, _) in suspects.into_iter().filter(|(_, _, doubtful)| *doubtful || !found) {
            if let Err(error) = self.go_to(&at, to) {
                let reason = format!("cannot go to {to:?} of {at}: {error}");
                self.emit(GroupEvent::Trouble(BusError::Retry(reason)));
            }
        }
    }

    /// Seeks. A partition whose fetcher has stopped, as after the leader of a fresh topic did not know it
    /// yet, cannot be sought in: then it is assigned anew, or it would stand still for good.
    fn go_to(&self, at: &PartitionId, to: Offset) -> Result<(), KafkaError> {
        if self.consumer.seek(&at.topic, at.partition, to, self.shared.request_timeout).is_ok() {
            return Ok(());
        }
        self.consumer.incremental_unassign(&list_of(std::slice::from_ref(at)))?;
        let mut list = TopicPartitionList::with_capacity(1);
        list.add_partition_offset(&at.topic, at.partition, to)?;
        self.consumer.incremental_assign(&list)
    }

    fn watermarks(&self, at: &PartitionId) -> Option<(i64, i64)> {
        self.consumer.fetch_watermarks(&at.topic, at.partition, self.shared.request_timeout).ok()
    }

    fn add(&self, at: PartitionId, start: StartAt) -> Result<(), BusError> {
        self.remove(&at);
        let (offset, position) = match start {
            StartAt::Beginning => (Offset::Beginning, None),
            StartAt::End => (Offset::End, None),
            StartAt::Offset(offset) => (Offset::Offset(offset), Some(offset)),
        };
        let mut list = TopicPartitionList::with_capacity(1);
        let refused =
            |error: KafkaError| BusError::Refused(format!("cannot read {at} from {start:?}: {error}"));
        list.add_partition_offset(&at.topic, at.partition, offset).map_err(refused)?;
        self.consumer.incremental_assign(&list).map_err(refused)?;
        self.shared.book().insert(at.clone(), position, false);
        self.settle();
        Ok(())
    }

    fn remove(&self, at: &PartitionId) {
        if !self.shared.book().contains(at) {
            return;
        }
        let held = self.shared.book().held(std::slice::from_ref(at));
        self.tell("resume", &held, |list| self.consumer.resume(list));
        self.shared.retract(std::slice::from_ref(at));
        self.tell("stop reading", std::slice::from_ref(at), |list| self.consumer.incremental_unassign(list));
    }

    fn leave(&self, deadline: Instant) -> Instant {
        let partitions = self.shared.book().all();
        if !partitions.is_empty() {
            self.shared.handover.purge(|at| partitions.contains(at));
            let left = deadline.saturating_duration_since(Instant::now());
            self.shared.revoke(partitions.clone(), self.shared.revoke_timeout.min(left));
            self.shared.retract(&partitions);
        }
        self.shared.leaving.store(true, Ordering::Relaxed);
        deadline
    }

    /// Leaves the group and closes; false if that cannot be done in time, but it may be tried again.
    fn close(&self, closing: &mut Closing, deadline: Instant) -> bool {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return self.consumer.closed();
            }
            if *closing == Closing::Told {
                if self.consumer.closed() {
                    return true;
                }
                drop(self.consumer.poll(left.min(TURN)));
            } else if self.answers(left.min(PROBE)) {
                *closing = Closing::Told;
                let _ = self.consumer.close_queue(); // an error means that there is nothing to leave
            } else {
                while self.consumer.poll(Duration::ZERO).is_some() {} // of no interest any more
                thread::park_timeout(left.min(TURN));
            }
        }
    }

    fn answers(&self, within: Duration) -> bool {
        match &self.shared.probe {
            Probe::Coordinator(topic) => {
                let list = list_of(&[PartitionId::new(topic.as_str(), 0)]);
                self.consumer.committed_offsets(list, within).is_ok()
            }
            Probe::Broker(topic) => broker_answers(self.consumer, topic, within),
        }
    }
}

/// Whether any broker is there: before a consumer is closed, see [`run`]. That `topic` is unknown is an answer too;
/// it should be one that this client may ask for.
pub(super) fn broker_answers<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    topic: &str,
    within: Duration,
) -> bool {
    consumer.fetch_metadata(Some(topic), within).is_ok()
}

/// The offset in librdkafka's sentence about a partition's end, which has it nowhere else.
fn offset_in(words: &str) -> Option<i64> {
    let (_, rest) = words.split_once("at offset ")?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}
