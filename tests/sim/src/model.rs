//! A model that plans, works and judges in virtual time, as the dice fall, and counts what it is asked.

use crate::{dice::Dice, network::Network};
use async_trait::async_trait;
use futures::{StreamExt as _, stream};
use starling_llm::{
    ChatReply, ChatRequest, Deeds, Model, ModelError, ModelErrorKind, ModelInfo, Purpose, StreamEvent,
    TextStream,
};
use starling_protocol::{CallReport, Usage};
use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::time::{sleep, sleep_until};

/// What a call is about: the marks that goals and instructions bear.
pub(crate) type About = (String, String);

/// What all models of a run were asked.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    work: Mutex<BTreeMap<About, u64>>,
    open: Mutex<BTreeMap<u32, usize>>,
}

impl Calls {
    /// Calls for work, by goal and task.
    pub(crate) fn work(&self) -> MutexGuard<'_, BTreeMap<About, u64>> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls that a life has open.
    #[must_use]
    pub(crate) fn open(&self, life: u32) -> usize {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).get(&life).copied().unwrap_or(0)
    }

    fn change(&self, life: u32, by: isize) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.entry(life).or_default();
        *count = count.saturating_add_signed(by);
    }
}

/// The model of one life of a process.
pub(crate) struct SimModel {
    network: Arc<Network>,
    calls: Arc<Calls>,
    life: u32,
    dice: Mutex<Dice>,
}

/// Holds a place among the open calls.
struct OpenCall(Arc<Calls>, u32);

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.0.change(self.1, -1);
    }
}

enum Mood {
    Answers,
    Hangs,
    Fails(ModelErrorKind),
    Babbles,
}

impl SimModel {
    /// A model that `life` asks.
    #[must_use]
    pub(crate) fn new(network: Arc<Network>, calls: Arc<Calls>, life: u32, seed: u64) -> Arc<Self> {
        let dice = Mutex::new(Dice::of(seed, &format!("model {life}")));
        Arc::new(Self { network, calls, life, dice })
    }

    /// What a question takes. One that may take several calls takes some of them now and then, as if it had been asked
    /// again; of how it went nothing else is told.
    fn report(request: &ChatRequest, luck: u64) -> CallReport {
        let tries = request
            .allowance
            .map_or(1, |allowance| allowance.calls.min(1 + i64::try_from(luck % 3).unwrap_or(0)));
        CallReport { calls: tries, ..report() }
    }

    fn begin(&self, request: &ChatRequest) -> (OpenCall, Mood, Duration, u64) {
        self.calls.change(self.life, 1);
        if request.purpose == Purpose::Work {
            *self.calls.work().entry(about(request)).or_default() += 1;
        }
        let weather = self.network.weather();
        let mut dice = self.dice.lock().unwrap_or_else(PoisonError::into_inner);
        let slow = dice.chance(weather.model_slow);
        let wait = if slow { dice.millis(1_000, 8_000) } else { dice.millis(1, 300) };
        let (hangs, fails) = (dice.chance(weather.model_hangs), dice.chance(weather.model_fails));
        let babbles = dice.chance(weather.model_babbles);
        let kind = dice.pick(&[
            ModelErrorKind::RateLimited,
            ModelErrorKind::Server,
            ModelErrorKind::BadReply,
            ModelErrorKind::Filtered,
            ModelErrorKind::Unreachable,
        ]);
        let mood = match () {
            () if self.network.is_stormy() => Mood::Fails(ModelErrorKind::RateLimited),
            () if hangs => Mood::Hangs,
            () if fails => Mood::Fails(kind),
            () if babbles => Mood::Babbles,
            () => Mood::Answers,
        };
        (OpenCall(self.calls.clone(), self.life), mood, wait, dice.bits())
    }
}

#[async_trait]
impl Model for SimModel {
    fn info(&self) -> ModelInfo {
        ModelInfo { model: "simulated".into(), offline: false, endpoint: "simulation".into() }
    }

    async fn chat(&self, request: ChatRequest) -> Result<ChatReply, ModelError> {
        let (_open, mood, wait, luck) = self.begin(&request);
        match mood {
            Mood::Hangs => std::future::pending().await,
            Mood::Fails(kind) => {
                sleep(wait).await;
                Err(failure(kind, Self::report(&request, luck)))
            }
            mood => {
                let ready = tokio::time::Instant::now() + wait;
                sleep_until(ready.min(request.deadline)).await;
                if ready > request.deadline {
                    return Err(failure(ModelErrorKind::Deadline, Self::report(&request, luck)));
                }
                let text = if matches!(mood, Mood::Babbles) { babble(luck) } else { reply(&request, luck) };
                Ok(ChatReply { text, deeds: Deeds::default(), report: Self::report(&request, luck) })
            }
        }
    }

    async fn stream(&self, request: ChatRequest) -> Result<TextStream, ModelError> {
        let (open, mood, wait, luck) = self.begin(&request);
        let text = match mood {
            Mood::Hangs => String::new(),
            Mood::Fails(kind) => {
                sleep(wait).await;
                return Err(failure(kind, Self::report(&request, luck)));
            }
            Mood::Babbles => babble(luck),
            Mood::Answers => reply(&request, luck),
        };
        let hangs = text.is_empty();
        let pieces: Vec<String> = text.split_inclusive("},").map(str::to_owned).collect();
        let count = u32::try_from(pieces.len()).unwrap_or(1).max(1);
        let events = pieces
            .into_iter()
            .map(StreamEvent::Text)
            .chain([StreamEvent::Done(Self::report(&request, luck))]);
        let events: Vec<_> = if hangs { Vec::new() } else { events.collect() };
        let spoken = stream::iter(events).then(move |event| {
            let _held = &open; // the call is open while its stream is
            async move {
                sleep(wait / count).await;
                Ok(event)
            }
        });
        Ok(if hangs { spoken.chain(stream::pending()).boxed() } else { spoken.boxed() })
    }
}

/// The marks of a request: `<i3>` in the goal, `<t2>` in the instruction.
fn about(request: &ChatRequest) -> About {
    let text = request.messages.last().map_or("", |message| message.text.as_str());
    let instruction = text.split("## Instruction").nth(1).unwrap_or("");
    (mark(text, "<i"), mark(instruction, "<t"))
}

/// What stands between this beginning and the next `>`.
pub(crate) fn mark(text: &str, begin: &str) -> String {
    let inner = text.split(begin).nth(1).and_then(|rest| rest.split('>').next());
    inner.unwrap_or("").to_owned()
}

fn reply(request: &ChatRequest, luck: u64) -> String {
    match request.purpose {
        Purpose::Plan => plan(luck),
        Purpose::Work => format!("what was wanted, {}", luck % 1_000),
        Purpose::Judge => {
            let score = if luck.is_multiple_of(4) { 0.3 } else { 0.9 };
            format!("{{\"score\": {score}, \"feedback\": \"more of {}\"}}", luck % 7)
        }
        Purpose::Synthesize => "the answer".to_owned(),
    }
}

/// A plan of one to six tasks; tasks depend on tasks before them, sometimes on ones that come later.
fn plan(luck: u64) -> String {
    let count = 1 + luck % 6;
    let mut bits = luck >> 8;
    let mut draw = |of: u64| {
        bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (bits >> 33) % of
    };
    let mut text = "{\"tasks\": [".to_owned();
    for task in 0..count {
        let mut needs = Vec::new();
        for other in 0..count {
            if (other < task && draw(3) == 0) || (other > task && draw(40) == 0) {
                needs.push(format!("\"k{other}\""));
            }
        }
        let comma = if task == 0 { "" } else { "," };
        let critic = draw(4) != 0;
        let _ = write!(
            text,
            "{comma}{{\"key\": \"k{task}\", \"title\": \"task {task}\", \"instruction\": \"do <t{task}>\", \
             \"depends_on\": [{}], \"critic\": {critic}}}",
            needs.join(",")
        ); // writing to a String cannot fail
    }
    text.push_str("]}");
    text
}

fn babble(luck: u64) -> String {
    let all = [
        "I would rather not.",
        "{\"tasks\": [{\"key\": \"a\"",
        "{\"tasks\": [{\"key\":\"a\",\"instruction\":\"x\",\"depends_on\":[\"b\"]},{\"key\":\"b\",\"instruction\":\"y\",\"depends_on\":[\"a\"]}]}",
        "{\"tasks\": [{\"key\":\"a\",\"instruction\":\"x\"},{\"key\":\"a\",\"instruction\":\"y\"}]}",
        "{\"score\": 12}",
        "[[[[[[[[",
    ];
    all[usize::try_from(luck % 6).unwrap_or(0)].to_owned()
}

fn report() -> CallReport {
    CallReport {
        model: "simulated".to_owned(),
        calls: 1,
        usage: Usage { prompt_tokens: 10, completion_tokens: 5, cached_tokens: 0 },
        ..CallReport::default()
    }
}

fn failure(kind: ModelErrorKind, report: CallReport) -> ModelError {
    ModelError { kind, message: "as the dice fell".into(), endpoint: "simulation".into(), report }
}
