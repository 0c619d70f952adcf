//! What the processes of an installation know of each other: each tells, once a second, what it can do.

use crate::clock::Clock;
use bytes::Bytes;
use starling_bus::{Bus, BusError, LogReader, OutRecord, PartitionId, ReaderEvent, StartAt};
use starling_engine::coordinator::FleetView;
use starling_protocol::{
    Codec, Timestamp,
    fleet::{FleetBeat, FleetMember, ModelAsk},
};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, MissedTickBehavior, interval, sleep},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// How many beats before the end of the topic are read at the start: enough for the last seconds of a
/// thousand processes.
pub const LOOK_BACK: i64 = 4_000;

/// A process speaks no more often than this, however often something changes.
const SHORTEST_SILENCE: Duration = Duration::from_millis(20);

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
    heard: Arc<OnceLock<Heard>>,
    asks: Arc<Asks>,
}

/// What this process asks models. One of its speakers tells it.
#[derive(Debug)]
struct Asks {
    asks: watch::Sender<Vec<ModelAsk>>,
    has_speaker: AtomicBool,
}

#[derive(Debug)]
struct Heard {
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
    room: AtomicI32,
    changed: Notify,
}

impl Fleet {
    /// Takes part in the fleet's conversation until `stop`. Begins to listen only when somebody wants to
    /// know: if every one of a hundred workers heard all the others, that alone would be 10,000 records a
    /// second.
    #[must_use]
    pub fn new(
        bus: Arc<dyn Bus>,
        topic: PartitionId,
        codec: Codec,
        options: FleetOptions,
        clock: Clock,
        stop: CancellationToken,
    ) -> Self {
        let asks = Arc::new(Asks { asks: watch::Sender::default(), has_speaker: AtomicBool::new(false) });
        let (speakers, heard) = (TaskTracker::new(), Arc::default());
        Self { bus, topic, codec, options, clock, stop, speakers, heard, asks }
    }

    /// What dispatch needs to know; changes only when that changes. Must be called within a tokio runtime.
    #[must_use]
    pub fn view(&self) -> watch::Receiver<FleetView> {
        self.heard().view.clone()
    }

    /// The latest beat of each living member, in the order of their names. Must be called within a tokio
    /// runtime.
    #[must_use]
    pub fn beats(&self) -> watch::Receiver<Arc<Vec<FleetBeat>>> {
        self.heard().beats.clone()
    }

    /// From the next beat on, this is what the process asks models. Told by one of its members.
    pub fn asks(&self, asks: Vec<ModelAsk>) {
        self.asks.asks.send_replace(asks);
    }

    /// Time between two beats.
    #[must_use]
    pub fn interval(&self) -> Duration {
        self.options.interval
    }

    /// Ends when the process stops.
    #[must_use]
    pub fn stopped(&self) -> CancellationToken {
        self.stop.clone()
    }

    fn heard(&self) -> &Heard {
        self.heard.get_or_init(|| {
            let (view_sender, view) = watch::channel(FleetView::default());
            let (beats_sender, beats) = watch::channel(Arc::default());
            let listener = Listener {
                fleet: self.clone(),
                known: BTreeMap::new(),
                complaint: None,
                view: view_sender,
                beats: beats_sender,
            };
            tokio::spawn(listener.listen());
            Heard { view, beats }
        })
    }

    /// Begins to speak for a role of this process: at once, at every interval, whenever something changes,
    /// and once more when the process leaves.
    #[must_use]
    pub fn announce(&self, process: &str, role: &str, pool: Option<&str>, slots: usize) -> Announcer {
        let said = Arc::new(Said {
            partitions: std::sync::Mutex::default(),
            active: AtomicI32::new(0),
            busy: AtomicUsize::new(0),
            room: AtomicI32::new(-1),
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
            room: -1,
            asks: Vec::new(),
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
        let speaks_for_all = !self.asks.has_speaker.swap(true, Ordering::Relaxed);
        let mut ticks = interval(self.options.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                _ = ticks.tick() => {}
                () = said.changed.notified() => {}
                () = self.stop.cancelled() => beat.leaving = true,
            }
            beat.partitions.clone_from(&said.partitions());
            beat.active = said.active.load(Ordering::Relaxed);
            beat.busy = i32::try_from(said.busy.load(Ordering::Relaxed)).unwrap_or(i32::MAX);
            beat.room = said.room.load(Ordering::Relaxed);
            if speaks_for_all {
                beat.asks.clone_from(&self.asks.asks.borrow());
            }
            beat.at = self.clock.now();
            match self.codec.encode(&beat) {
                Ok(value) => self.say(&beat, value.into()).await,
                Err(error) => tracing::error!(%error, "a beat cannot be encoded"),
            }
            if beat.leaving {
                return;
            }
            // Whatever changes meanwhile is told together.
            tokio::select! {
                biased;
                () = sleep(SHORTEST_SILENCE) => {}
                () = self.stop.cancelled() => {}
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

    /// Intents that can still be taken in, `None` if that is not known. Told with the next beat; that there is no
    /// room, or room again, at once.
    pub fn room(&self, room: Option<usize>) {
        let room = room.map_or(-1, |room| i32::try_from(room).unwrap_or(i32::MAX));
        if (self.said.room.swap(room, Ordering::Relaxed) == 0) != (room == 0) {
            self.said.changed.notify_one();
        }
    }

    /// Handlers that run now. Told with the next beat.
    pub fn busy(&self, busy: usize) {
        self.said.busy.store(busy, Ordering::Relaxed);
    }
}

struct Listener {
    fleet: Fleet,
    /// The latest beat of each member, and when it was heard.
    known: BTreeMap<FleetMember, (FleetBeat, Instant)>,
    /// What was said last about a beat that cannot be read: said once.
    complaint: Option<String>,
    view: watch::Sender<FleetView>,
    beats: watch::Sender<Arc<Vec<FleetBeat>>>,
}

impl Listener {
    async fn listen(mut self) {
        let stop = self.fleet.stop.clone();
        let reader = tokio::select! {
            biased;
            reader = self.open() => reader,
            () = stop.cancelled() => return,
        };
        let mut sweep = interval(self.fleet.options.interval);
        sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut next = reader.next();
        loop {
            let event = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                _ = sweep.tick() => None,
                event = &mut next => Some(event),
            };
            match event {
                Some(event) => {
                    next = reader.next();
                    self.hear(reader.as_ref(), event).await;
                }
                None => {
                    let limit = self.fleet.options.forget_after;
                    let before = self.known.len();
                    self.known.retain(|_, (_, heard)| heard.elapsed() <= limit);
                    if self.known.len() != before {
                        self.publish();
                    }
                }
            }
        }
    }

    /// Opens the topic a little before its end; tries until it succeeds.
    async fn open(&self) -> Arc<dyn LogReader> {
        loop {
            match self.try_open().await {
                Ok(reader) => return reader,
                Err(error) => tracing::warn!(%error, "the fleet cannot be followed yet"),
            }
            tokio::time::sleep(self.fleet.options.interval).await;
        }
    }

    async fn try_open(&self) -> Result<Arc<dyn LogReader>, BusError> {
        let Fleet { bus, topic, .. } = &self.fleet;
        let reader = bus.reader().await?;
        let marks = bus.watermarks(topic).await?;
        reader.add(topic.clone(), StartAt::Offset(marks.low.max(marks.high - LOOK_BACK))).await?;
        Ok(reader)
    }

    async fn hear(&mut self, reader: &dyn LogReader, event: ReaderEvent) {
        match event {
            ReaderEvent::Record(record) => self.hear_beat(record.timestamp, record.value()),
            ReaderEvent::End { .. } => {}
            ReaderEvent::OutOfRange { .. } => {
                let topic = &self.fleet.topic;
                reader.remove(topic).await;
                if let Err(error) = reader.add(topic.clone(), StartAt::End).await {
                    tracing::error!(%error, "the fleet cannot be followed any more");
                }
            }
            ReaderEvent::Trouble(error) => tracing::warn!(%error, "the fleet is not readable now"),
        }
    }

    fn hear_beat(&mut self, said_at: Timestamp, value: &[u8]) {
        let age = self.fleet.clock.now().since(said_at);
        let changed = match self.fleet.codec.decode::<FleetBeat>(value) {
            Ok(beat) if beat.leaving => self.known.remove(&beat.member()).is_some(),
            Ok(beat) if age <= self.fleet.options.forget_after => {
                let known = self.known.insert(beat.member(), (beat.clone(), Instant::now()));
                // A beat that says nothing new is most of them.
                known.is_none_or(|(known, _)| FleetBeat { at: beat.at, ..known } != beat)
            }
            Ok(_) => false, // from before this process began
            Err(error) => {
                // Beats of a newer version come every second, as long as the upgrade takes.
                let complaint = error.to_string();
                if self.complaint.as_ref() != Some(&complaint) {
                    tracing::warn!(%error, "beats are unreadable, passed over");
                    self.complaint = Some(complaint);
                }
                false
            }
        };
        if changed {
            self.publish();
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
