//! Performs effects: sends each until it is acknowledged or refused.

use super::encode::performed;
use crate::{registry::Schemas, telemetry::ActiveSpan};
use futures::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use starling_bus::{Bus, DeliveryFuture, OutRecord, SendError};
use starling_protocol::state::LoggedEffect;
use std::{sync::Arc, time::Duration};

/// Waits between two tries to send the same record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resend {
    pub(super) min: Duration,
    pub(super) max: Duration,
}

/// How an effect ended.
pub(super) enum Performed {
    /// It is acknowledged.
    Done { seq: i64 },
    /// The broker will never take it.
    Refused { seq: i64, effect: LoggedEffect, reason: String },
}

/// The effects of one owner that are on their way. Dropping it gives them up; what the producer already
/// holds is still sent.
pub(super) struct Performer {
    bus: Arc<dyn Bus>,
    schemas: Schemas,
    resend: Resend,
    under_way: FuturesUnordered<BoxFuture<'static, Performed>>,
}

impl Performer {
    pub(super) fn new(bus: Arc<dyn Bus>, schemas: Schemas, resend: Resend) -> Self {
        Self { bus, schemas, resend, under_way: FuturesUnordered::new() }
    }

    /// Enqueues an effect of decision `seq` now, after all that were enqueued before.
    pub(super) fn perform(&self, seq: i64, effect: &LoggedEffect, span: Option<ActiveSpan>) {
        let record = performed(effect);
        let delivery = self.bus.send(record.clone());
        let (bus, schemas, resend) = (self.bus.clone(), self.schemas.clone(), self.resend);
        let effect = effect.clone();
        self.under_way.push(Box::pin(async move {
            let result = settle(bus, resend, record, delivery).await;
            drop(span); // the span of a send ends with its acknowledgement
            match result {
                Ok(()) => Performed::Done { seq },
                Err(reason) => {
                    // It may be from the log, written under another schema id. What it says must be readable.
                    while let Err(why) = schemas.meet(&effect.payload).await {
                        tracing::warn!(why, "waiting for the schema of an effect that the broker refuses");
                        tokio::time::sleep(resend.max).await;
                    }
                    Performed::Refused { seq, effect, reason }
                }
            }
        }));
    }

    /// Number of effects under way.
    pub(super) fn len(&self) -> usize {
        self.under_way.len()
    }

    /// The next effect that ends; pending for ever while there is none. Can be dropped without loss.
    pub(super) async fn next(&mut self) -> Performed {
        match self.under_way.next().await {
            Some(performed) => performed,
            None => std::future::pending().await,
        }
    }
}

async fn settle(
    bus: Arc<dyn Bus>,
    resend: Resend,
    record: OutRecord,
    mut delivery: DeliveryFuture,
) -> Result<(), String> {
    let mut wait = resend.min;
    loop {
        match delivery.await {
            Ok(_) => return Ok(()),
            Err(refused @ SendError::Refused { .. }) => return Err(refused.to_string()),
            Err(trouble @ (SendError::NotSent { .. } | SendError::Unknown { .. })) => {
                tracing::warn!(error = %trouble, "performing the effect again");
            }
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(resend.max);
        delivery = bus.send(record.clone());
    }
}
