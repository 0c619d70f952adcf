//! What a proxy does with what passes through it.

use super::wire::{Api, Request};
use anyhow::{Result, bail};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{sync::watch, time::timeout};

/// How long frames are awaited that are to be kept back.
const PATIENCE: Duration = Duration::from_secs(60);

/// From whom to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Requests.
    ToBroker,
    /// Answers.
    FromBroker,
}

/// Some of what passes: one kind of request on its way to the broker, or its answers.
#[derive(Clone, Debug)]
pub struct Frames {
    api: Api,
    way: Way,
    topic: Option<String>,
}

impl Frames {
    /// All requests of a kind.
    #[must_use]
    pub fn requests(api: Api) -> Self {
        Self { api, way: Way::ToBroker, topic: None }
    }

    /// The answers to all requests of a kind.
    #[must_use]
    pub fn answers(api: Api) -> Self {
        Self { api, way: Way::FromBroker, topic: None }
    }

    /// Only those about a topic.
    #[must_use]
    pub fn of(self, topic: &str) -> Self {
        Self { topic: Some(topic.to_owned()), ..self }
    }

    fn match_with(&self, way: Way, request: &Request) -> bool {
        self.way == way
            && self.api == request.api
            && self.topic.as_ref().is_none_or(|topic| request.topics.contains(topic))
    }
}

/// Frames that a proxy keeps back until [`Hold::release`], or until this is dropped. What its clients send meanwhile
/// otherwise passes.
#[derive(Debug)]
pub struct Hold {
    rule: Arc<Rule>,
    state: watch::Sender<State>,
}

impl Hold {
    /// How many frames are kept back now.
    #[must_use]
    pub fn held(&self) -> usize {
        *self.rule.held.borrow()
    }

    /// Waits until at least so many frames are kept back.
    ///
    /// # Errors
    /// They are not within a minute: whoever was to send them has nothing to send.
    pub async fn until_held(&self, count: usize) -> Result<()> {
        let mut held = self.rule.held.subscribe();
        let enough = held.wait_for(|held| *held >= count);
        // The rule lives as long as this, so that only the time can run out.
        if timeout(PATIENCE, enough).await.is_err() {
            let (frames, held) = (&self.rule.frames, self.held());
            bail!("{held} of {count} frames are kept back after {PATIENCE:?}: {frames:?}");
        }
        Ok(())
    }

    /// Lets so many frames pass that are kept back, or will come.
    pub fn pass(&self, count: usize) {
        self.rule.passes.fetch_add(count, Ordering::SeqCst);
        self.state.send_modify(|_| {});
    }

    /// Lets all of them pass, and keeps none back any more.
    pub fn release(self) {
        drop(self);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.rule.over.store(true, Ordering::SeqCst);
        self.state.send_modify(|state| state.rules.retain(|rule| !Arc::ptr_eq(rule, &self.rule)));
    }
}

#[derive(Debug)]
pub(super) struct Rule {
    frames: Frames,
    passes: AtomicUsize,
    held: watch::Sender<usize>,
    over: AtomicBool,
}

impl Rule {
    /// Whether one of its frames may pass now; if so, it counts.
    pub(super) fn lets_pass(&self) -> bool {
        let one_less = |passes: usize| passes.checked_sub(1);
        self.over.load(Ordering::SeqCst)
            || self.passes.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok()
    }
}

/// Counts a frame that is kept back.
pub(super) struct Kept(pub(super) Arc<Rule>);

impl Kept {
    pub(super) fn by(rule: Arc<Rule>) -> Self {
        rule.held.send_modify(|held| *held += 1);
        Self(rule)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.0.held.send_modify(|held| *held -= 1);
    }
}

/// What is in force.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    rules: Vec<Arc<Rule>>,
    cut_to: bool,
    cut_from: bool,
    pub(super) delay: Duration,
}

impl State {
    pub(super) fn hold(state: &watch::Sender<State>, frames: Frames, passes: usize) -> Hold {
        let rule = Arc::new(Rule {
            frames,
            passes: AtomicUsize::new(passes),
            held: watch::Sender::new(0),
            over: AtomicBool::new(false),
        });
        state.send_modify(|state| state.rules.push(rule.clone()));
        Hold { rule, state: state.clone() }
    }

    pub(super) fn cut(&mut self, way: Way, cut: bool) {
        match way {
            Way::ToBroker => self.cut_to = cut,
            Way::FromBroker => self.cut_from = cut,
        }
    }

    pub(super) fn is_cut(&self, way: Way) -> bool {
        match way {
            Way::ToBroker => self.cut_to,
            Way::FromBroker => self.cut_from,
        }
    }

    /// The rule that a frame falls under.
    pub(super) fn rule_for(&self, way: Way, request: &Request) -> Option<&Arc<Rule>> {
        self.rules.iter().find(|rule| rule.frames.match_with(way, request))
    }
}
