//! A handler whose behaviour the title of a task names, and a processor that runs it.
#![allow(dead_code, unreachable_pub)]

use super::{PATIENCE, result, title};
use async_trait::async_trait;
use starling_bus::MemoryBus;
use starling_protocol::{Envelope, RecordRef, Topic};
use starling_runtime::{
    EnvelopeHandler, HandleError, HandlerContext, Node,
    parallel::{ParallelConfig, ParallelProcessor, ProcessorError},
};
use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{sync::watch, task::JoinHandle};
use tokio_util::sync::CancellationToken;

/// What a task does is the part of its title before the colon: `reply`, `hold` (until released), `once` (replies the first
/// time, then as `hold`),
/// `wait` (as `retry`, until released), `retry`, `refuse`, `panic`, `sleep` (for ever, until cancelled), `stubborn` (also when cancelled).
pub struct Scripted {
    pub calls: Mutex<Vec<String>>,
    released: watch::Sender<HashSet<String>>,
}

impl Scripted {
    pub fn new() -> Arc<Self> {
        Arc::new(Self { calls: Mutex::default(), released: watch::Sender::default() })
    }

    pub fn release(&self, title: &str) {
        self.released.send_modify(|released| _ = released.insert(title.to_owned()));
    }

    pub fn calls(&self) -> Vec<String> {
        self.calls.lock().unwrap().clone()
    }

    pub fn count(&self, title: &str) -> usize {
        self.calls().iter().filter(|call| *call == title).count()
    }

    /// Waits until a task was handled so often.
    pub async fn handled(&self, title: &str, times: usize) {
        super::until(&format!("{title} is handled {times} times"), || async {
            (self.count(title) >= times).then_some(())
        })
        .await;
    }
}

#[async_trait]
impl EnvelopeHandler for Scripted {
    async fn handle(&self, envelope: Envelope, _: RecordRef, cx: &HandlerContext) -> Result<(), HandleError> {
        let title = title(&envelope);
        self.calls.lock().unwrap().push(title.clone());
        match title.split(':').next().unwrap_or_default() {
            "once" if self.count(&title) == 1 => {}
            "hold" | "once" => {
                let mut released = self.released.subscribe();
                released.wait_for(|released| released.contains(&title)).await.unwrap();
            }
            "wait" if !self.released.borrow().contains(&title) => {
                return Err(HandleError::Wait("not there".into()));
            }
            "retry" => return Err(HandleError::Retry("not now".into())),
            "refuse" => return Err(HandleError::DeadLetter("not this".into())),
            "panic" => panic!("at the disco"),
            "sleep" => {
                cx.cancelled.cancelled().await;
                return Ok(());
            }
            "stubborn" => std::future::pending().await,
            _ => {}
        }
        cx.outbox.emit(result(&envelope, "done"));
        Ok(())
    }

    fn failed(&self, envelope: &Envelope, reason: &str) -> Option<Envelope> {
        Some(result(envelope, &format!("failed: {reason}")))
    }
}

/// A running processor of the worker inbox.
pub struct Worker {
    pub stop: CancellationToken,
    pub ended: JoinHandle<Result<(), ProcessorError>>,
}

impl Worker {
    /// Starts one, with changes to a configuration that is quick.
    pub fn start(node: &Node, handler: &Arc<Scripted>, change: impl FnOnce(&mut ParallelConfig)) -> Self {
        let mut config = ParallelConfig::new(&node.settings, Topic::Worker(None), "worker", 8);
        config.backoff_min = Duration::from_millis(1);
        config.backoff_max = Duration::from_millis(5);
        config.commit_interval = Duration::from_millis(5);
        config.commit_idle = Duration::from_millis(1);
        config.tries = 3;
        change(&mut config);
        let processor = ParallelProcessor::envelopes(config, node.clone(), handler.clone());
        let stop = CancellationToken::new();
        let ended = tokio::spawn(processor.run(stop.clone()));
        Self { stop, ended }
    }

    /// Stops it and waits.
    pub async fn stop(self) {
        self.stop.cancel();
        tokio::time::timeout(PATIENCE, self.ended).await.expect("the processor ends").unwrap().unwrap();
    }
}

/// Waits until the group has committed `offset` for a worker partition.
pub async fn commits(node: &Node, bus: &MemoryBus, partition: i32, offset: i64) {
    let at = starling_bus::PartitionId::new(node.router.name(&Topic::Worker(None)).unwrap(), partition);
    super::until(&format!("{at} is committed at {offset}"), || async {
        (super::committed(bus, "starling.worker", &at).await == Some(offset)).then_some(())
    })
    .await;
}
