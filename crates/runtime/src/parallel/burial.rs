//! What happens to a record that nobody can handle.

use super::run::{End, Runner, Running};
use crate::{
    courier::EmitError,
    dead_letter::{Reason, Undertaker, dead_letter, without_value},
    outbox::Outbox,
};
use starling_protocol::{Envelope, Topic, topic::partition_of};

/// A burial that has begun; unless it is said to be done, it has not come about.
struct Burying<'r>(Option<&'r Runner>);

impl Burying<'_> {
    fn done(mut self) {
        if let Some(runner) = self.0.take() {
            runner.burials().buried();
        }
    }
}

impl Drop for Burying<'_> {
    fn drop(&mut self) {
        if let Some(runner) = self.0.take() {
            runner.burials().withdrawn();
        }
    }
}

impl Running<'_> {
    /// Puts the record into the dead letters, unchanged, and tells the coordinator; unless too many were.
    pub(super) async fn bury(mut self, reason: Reason, failure: Option<Envelope>) -> End {
        self.span.fail(&reason.text);
        let runner = self.runner;
        let begun = runner.burials().begin(&format!("{}: {}", reason.code, reason.text));
        let burying = match begun {
            Ok(()) => Burying(Some(runner)),
            Err(excess) => return End::TooManyDead(excess),
        };
        let record = &self.job.record;
        tracing::error!(
            at = %record.at, offset = record.offset, code = %reason.code, reason = %reason.text,
            intent = failure.as_ref().map(|f| f.intent_id.as_str()), "the record is a dead letter"
        );
        let courier = &runner.node.courier;
        let partitions = courier.router().partitions(&Topic::Dlq).unwrap_or(1);
        let partition = match &record.key {
            Some(key) => partition_of(&String::from_utf8_lossy(key), partitions),
            None => record.at.partition.rem_euclid(partitions.max(1)),
        };
        let to = match courier.router().route(&Topic::Dlq, None, Some(partition)) {
            Ok(to) => to,
            Err(error) => return End::Fatal(error.to_string()),
        };
        let (group, process, now) = (&*runner.config.group, &*runner.node.process, runner.node.clock.now());
        let by = Undertaker { group, process, now };
        let buried = match courier.send_raw(dead_letter(record, to.clone(), &reason, by)).await {
            Err(EmitError::Refused(_)) => courier.send_raw(without_value(record, to, &reason, by)).await,
            other => other,
        };
        match buried {
            Ok(_) => {}
            Err(EmitError::Refused(why)) => {
                return End::Fatal(format!("the dead letters take no record: {why}"));
            }
            Err(passing) => return self.again(&passing.to_string(), false),
        }
        // What the handler said before it failed may have left traces of its own; the coordinator takes
        // the first of two results.
        if let Some(failure) = failure {
            let told = Outbox::new(courier.clone(), self.span.traceparent().clone());
            let telling = told.guard();
            told.emit(failure); // acknowledged below
            match telling.settled().await {
                Ok(()) => {}
                Err(EmitError::Refused(why)) => {
                    tracing::error!(why, "the coordinator cannot be told of the dead letter");
                }
                Err(passing) => return self.again(&passing.to_string(), false),
            }
        }
        burying.done();
        runner.metrics.dead.inc();
        runner.node.metrics.count_dead_letter(reason.code);
        End::Done
    }
}
