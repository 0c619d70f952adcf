//! What the processes of an installation know of each other: each tells, once a second, what it can do.

use crate::clock::Clock;
use bytes::Bytes;
use starling_bus::{Bus, BusError, LogReader, OutRecord, PartitionId, ReaderEvent, StartAt};
use starling_engine::coordinator::FleetView;
use starling_protocol::{Codec, fleet::FleetBeat};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicI32, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, MissedTickBehavior, interval},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// How many beats before the end of the topic are read at the start: enough for the last seconds of a
/// thousand processes.
const LOOK_BACK: i64 = 4_000;

/// Bounds of the fleet's conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FleetOptions {
    /// Time between two beats. Default 1 s.
    pub interval: Duration,
    /// Silence after which a process is forgotten. Default 5 s.
    pub forget_after: Duration,
}

impl Default for FleetOptions {
    fn default() -> Self {
        Self { interval: Duration::from_secs(1), forget_after: Duration::from_secs(5) }
    }
}

/// Listens to all processes and speaks for this one. Cheap to clone.
#[derive(Clone)]
pub struct Fleet {
    bus: Arc<dyn Bus>,
    topic: PartitionId,
    codec: Codec,
    options: FleetOptions,
    clock: Clock,
    stop: CancellationToken,
    speakers: TaskTracker,
    view: watch::Receiver<FleetView>,
    beats: watch::Receiver<Arc<Vec<FleetBeat>>>,
}

/// Speaks for one role of this process.
#[derive(Clone, Debug)]
pub struct Announcer {
    said: Arc<Said>,
}

#[derive(Debug)]
struct Said {
    partitions: std::sync::Mutex<Vec<i32>>,
    active: AtomicI32,
    busy: AtomicUsize,
    changed: Notify,
}

impl Fleet {
    /// Follows the fleet topic until `stop`.
    ///
    /// # Errors
    /// The topic is missing, or the broker is unreachable.
    pub async fn follow(
        bus: Arc<dyn Bus>,
        topic: PartitionId,
        codec: Codec,
        options: FleetOptions,
        clock: Clock,
        stop: CancellationToken,
    ) -> Result<Self, BusError> {
        let reader = bus.reader().await?;
        let marks = bus.watermarks(&topic).await?;
        reader.add(topic.clone(), StartAt::Offset(marks.low.max(marks.high - LOOK_BACK))).await?;
        let (view_sender, view) = watch::channel(FleetView::default());
        let (beats_sender, beats) = watch::channel(Arc::default());
        let listener = Listener {
            reader,
            topic: topic.clone(),
            codec: codec.clone(),
            options,
            clock: clock.clone(),
            known: BTreeMap::new(),
            view: view_sender,
            beats: beats_sender,
        };
        tokio::spawn(listener.listen(stop.clone()));
        Ok(Self { bus, topic, codec, options, clock, stop, speakers: TaskTracker::new(), view, beats })
    }

    /// What dispatch needs to know; changes only when that changes.
    #[must_use]
    pub fn view(&self) -> watch::Receiver<FleetView> {
        self.view.clone()
    }

    /// The latest beat of each living process, in the order of their names.
    #[must_use]
    pub fn beats(&self) -> watch::Receiver<Arc<Vec<FleetBeat>>> {
        self.beats.clone()
    }

    /// Begins to speak for a role of this process: at once, at every interval, whenever something changes,
    /// and once more when the process leaves.
    #[must_use]
    pub fn announce(&self, process: &str, role: &str, pool: Option<&str>, slots: usize) -> Announcer {
        let said = Arc::new(Said {
            partitions: std::sync::Mutex::default(),
            active: AtomicI32::new(0),
            busy: AtomicUsize::new(0),
            changed: Notify::new(),
        });
        let beat = FleetBeat {
            process: process.to_owned(),
            role: role.to_owned(),
            pool: pool.unwrap_or_default().to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            slots: i32::try_from(slots).unwrap_or(i32::MAX),
            busy: 0,
            partitions: Vec::new(),
            active: 0,
            at: self.clock.now(),
            leaving: false,
        };
        self.speakers.spawn(self.clone().speak(beat, said.clone()));
        Announcer { said }
    }

    /// Waits until this process has said that it leaves, after `stop`.
    pub async fn left(&self, within: Duration) {
        self.speakers.close();
        // Silence says the same after a few seconds.
        let _ = tokio::time::timeout(within, self.speakers.wait()).await;
    }

    async fn speak(self, mut beat: FleetBeat, said: Arc<Said>) {
        let mut ticks = interval(self.options.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = said.changed.notified() => {}
                () = self.stop.cancelled() => beat.leaving = true,
            }
            beat.partitions.clone_from(&said.partitions());
            beat.active = said.active.load(Ordering::Relaxed);
            beat.busy = i32::try_from(said.busy.load(Ordering::Relaxed)).unwrap_or(i32::MAX);
            beat.at = self.clock.now();
            match self.codec.encode(&beat) {
                Ok(value) => self.say(&beat, value.into()).await,
                Err(error) => tracing::error!(%error, "a beat cannot be encoded"),
            }
            if beat.leaving {
                return;
            }
        }
    }

    async fn say(&self, beat: &FleetBeat, value: Bytes) {
        let record = OutRecord {
            to: self.topic.clone(),
            key: Some(Bytes::copy_from_slice(beat.process.as_bytes())),
            headers: Vec::new(),
            payload: Some(value),
        };
        // Another beat follows soon, so a lost one is not sent again.
        if let Err(error) = self.bus.send(record).await {
            tracing::debug!(%error, "a beat was not sent");
        }
    }
}

impl Said {
    fn partitions(&self) -> std::sync::MutexGuard<'_, Vec<i32>> {
        self.partitions.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Announcer {
    /// The partitions of its inbox that this process owns now.
    pub fn partitions(&self, mut partitions: Vec<i32>) {
        partitions.sort_unstable();
        let mut said = self.said.partitions();
        if *said != partitions {
            *said = partitions;
            self.said.changed.notify_one();
        }
    }

    /// Coordinator partitions of this process that have tasks waiting or outstanding.
    pub fn active(&self, active: i32) {
        if self.said.active.swap(active, Ordering::Relaxed) != active {
            self.said.changed.notify_one();
        }
    }

    /// Handlers that run now. Told with the next beat.
    pub fn busy(&self, busy: usize) {
        self.said.busy.store(busy, Ordering::Relaxed);
    }
}

struct Listener {
    reader: Arc<dyn LogReader>,
    topic: PartitionId,
    codec: Codec,
    options: FleetOptions,
    clock: Clock,
    /// The latest beat of each process, and when it was heard.
    known: BTreeMap<String, (FleetBeat, Instant)>,
    view: watch::Sender<FleetView>,
    beats: watch::Sender<Arc<Vec<FleetBeat>>>,
}

impl Listener {
    async fn listen(mut self, stop: CancellationToken) {
        let reader = self.reader.clone();
        let mut sweep = interval(self.options.interval);
        sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut next = reader.next();
        loop {
            let event = tokio::select! {
                event = &mut next => Some(event),
                _ = sweep.tick() => None,
                () = stop.cancelled() => return,
            };
            match event {
                Some(event) => {
                    next = reader.next();
                    self.hear(event).await;
                }
                None => {
                    let limit = self.options.forget_after;
                    self.known.retain(|_, (_, heard)| heard.elapsed() <= limit);
                    self.publish();
                }
            }
        }
    }

    async fn hear(&mut self, event: ReaderEvent) {
        match event {
            ReaderEvent::Record(record) => {
                let age = self.clock.now().since(record.timestamp);
                match self.codec.decode::<FleetBeat>(record.value()) {
                    Ok(beat) if beat.leaving => {
                        if self.known.remove(&beat.process).is_some() {
                            self.publish();
                        }
                    }
                    Ok(beat) if age <= self.options.forget_after => {
                        self.known.insert(beat.process.clone(), (beat, Instant::now()));
                        self.publish();
                    }
                    Ok(_) => {} // from before this process began
                    Err(error) => tracing::warn!(%error, "a beat is unreadable, passed over"),
                }
            }
            ReaderEvent::End { .. } => {}
            ReaderEvent::OutOfRange { .. } => {
                self.reader.remove(&self.topic).await;
                if let Err(error) = self.reader.add(self.topic.clone(), StartAt::End).await {
                    tracing::error!(%error, "the fleet cannot be followed any more");
                }
            }
            ReaderEvent::Trouble(error) => tracing::warn!(%error, "the fleet is not readable now"),
        }
    }

    fn publish(&self) {
        let beats: Vec<FleetBeat> = self.known.values().map(|(beat, _)| beat.clone()).collect();
        let view = FleetView::of_beats(&beats);
        self.view.send_if_modified(|known| {
            let changed = *known != view;
            *known = view;
            changed
        });
        self.beats.send_replace(Arc::new(beats));
    }
}
