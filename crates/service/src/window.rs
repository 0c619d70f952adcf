//! Prompts that turn out to be too long for a model's window.

use futures::StreamExt as _;
use starling_agents::PromptBudget;
use starling_llm::{ChatReply, ChatRequest, Model, ModelError, ModelErrorKind, StreamEvent, TextStream};
use starling_protocol::CallReport;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of a token where four were too many.
const BYTES_A_TOKEN: usize = 3;
/// The window is taken for so much smaller than was said: a chat template and the schema are in it as well.
const MARGIN: f64 = 0.9;
/// How much shorter a prompt gets if nobody says how long it may be.
const UNKNOWN: f64 = 0.5;
/// No number below that is the size of a window; statuses of HTTP are.
const SMALLEST_WINDOW: usize = 1_024;

/// How large the texts of a prompt for one model may be, as far as its endpoint has said.
#[derive(Debug)]
pub struct Window(AtomicUsize);

/// What came of a question.
pub struct Asked<Reply> {
    /// The question that was answered, or asked last.
    pub question: ChatRequest,
    /// The answer.
    pub reply: Result<Reply, ModelError>,
}

impl Default for Window {
    fn default() -> Self {
        Self(AtomicUsize::new(usize::MAX))
    }
}

impl Window {
    /// Asks, and once more with less text if the endpoint says that it is too long. Then later questions are shorter
    /// from the start. `build` makes the question with texts of at most the given size.
    pub async fn chat(
        &self,
        model: &dyn Model,
        budget: PromptBudget,
        build: impl Fn(PromptBudget) -> ChatRequest,
    ) -> Asked<ChatReply> {
        let after =
            |reply: ChatReply, first: CallReport| ChatReply { report: reply.report.after(&first), ..reply };
        self.ask(budget, build, |question| model.chat(question), after).await
    }

    /// The same for a reply that is read as it comes.
    pub async fn stream(
        &self,
        model: &dyn Model,
        budget: PromptBudget,
        build: impl Fn(PromptBudget) -> ChatRequest,
    ) -> Asked<TextStream> {
        let after = |events: TextStream, first: CallReport| {
            #[allow(clippy::result_large_err)] // it is what a stream yields
            let add = move |event| match event {
                Ok(StreamEvent::Done(report)) => Ok(StreamEvent::Done(report.after(&first))),
                Err(error) => Err(spent_before(error, &first)),
                text => text,
            };
            events.map(add).boxed()
        };
        self.ask(budget, build, |question| model.stream(question), after).await
    }

    async fn ask<Reply, Sent>(
        &self,
        budget: PromptBudget,
        build: impl Fn(PromptBudget) -> ChatRequest,
        send: impl Fn(ChatRequest) -> Sent,
        after: impl FnOnce(Reply, CallReport) -> Reply,
    ) -> Asked<Reply>
    where
        Sent: Future<Output = Result<Reply, ModelError>>,
    {
        let budget = PromptBudget { bytes: budget.bytes.min(self.0.load(Ordering::Relaxed)) };
        let question = build(budget);
        let first = match send(question.clone()).await {
            Err(error) if error.kind == ModelErrorKind::ContextTooLong => error,
            reply => return Asked { question, reply },
        };
        let fixed = length(&build(PromptBudget { bytes: 0 }));
        let shorter = shorter(&question, fixed, budget, &first.message);
        tracing::warn!(
            endpoint = first.endpoint,
            reason = first.message,
            bytes = shorter.bytes,
            "a prompt is too long for the model, asking with less text"
        );
        let allowance = question.allowance.map(|allowance| allowance.after(&first.report));
        let question = ChatRequest { allowance, ..build(shorter) };
        let reply = match send(question.clone()).await {
            Ok(reply) => {
                self.0.fetch_min(shorter.bytes, Ordering::Relaxed);
                Ok(after(reply, first.report))
            }
            Err(error) => Err(spent_before(error, &first.report)),
        };
        Asked { question, reply }
    }
}

fn spent_before(error: ModelError, first: &CallReport) -> ModelError {
    ModelError { report: error.report.after(first), ..error }
}

/// How large the texts may be so that the question fits, by what was said about it, if so much of it is no text.
fn shorter(question: &ChatRequest, fixed: usize, budget: PromptBudget, said: &str) -> PromptBudget {
    let sent = length(question);
    let reply = question.max_tokens.map_or(0, |tokens| tokens as usize);
    let room = match window_in(said) {
        Some(window) => {
            let room = (window.saturating_sub(reply) * BYTES_A_TOKEN).min(sent);
            room as f64 * MARGIN
        }
        None => sent as f64 * UNKNOWN,
    };
    PromptBudget { bytes: budget.bytes.min((room as usize).saturating_sub(fixed)) }
}

/// Bytes of all messages.
fn length(question: &ChatRequest) -> usize {
    question.messages.iter().map(|message| message.text.len()).sum()
}

/// The size of the window, if a server's words have it: it is the smallest number that can be one, since all others are
/// those of a question that was too long.
fn window_in(said: &str) -> Option<usize> {
    let numbers = said.split(|c: char| !c.is_ascii_digit() && c != ',');
    let numbers = numbers.filter_map(|number| number.replace(',', "").parse().ok());
    numbers.filter(|number| *number >= SMALLEST_WINDOW).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_is_found_in_the_words_of_servers() {
        for (said, window) in [
            (
                "(400): This model's maximum context length is 8192 tokens. However, you requested 10,021 tokens",
                8192,
            ),
            ("(400): the request (9000 tokens) exceeds the available context size (4096 tokens)", 4096),
            ("(400): prompt is too long: 210000 tokens > 200000 maximum", 200_000),
            ("(413): too large", 0),
            ("(400): input is too long", 0),
        ] {
            assert_eq!(window_in(said).unwrap_or(0), window, "{said}");
        }
    }
}
