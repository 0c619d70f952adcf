//! A reply that others were asked for before has what these took in its report.

use crate::{ChatReply, ModelError, StreamEvent, TextStream};
use futures::StreamExt as _;
use starling_protocol::CallReport;

impl ChatReply {
    /// The same, after `spent` was spent on it.
    #[must_use]
    pub fn after(self, spent: &CallReport) -> Self {
        Self { report: self.report.after(spent), ..self }
    }
}

impl ModelError {
    /// The same, after `spent` was spent on it.
    #[must_use]
    pub fn after(self, spent: &CallReport) -> Self {
        Self { report: self.report.after(spent), ..self }
    }
}

/// The stream, with what was spent before it in its report.
#[allow(clippy::result_large_err)] // it is the port's item, and one of a stream
pub fn stream_after(events: TextStream, spent: CallReport) -> TextStream {
    let add = move |event| match event {
        Ok(StreamEvent::Done(report)) => Ok(StreamEvent::Done(report.after(&spent))),
        Err(error) => Err(ModelError::after(error, &spent)),
        more => more,
    };
    events.map(add).boxed()
}
