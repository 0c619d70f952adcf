//! Prompts and the windows of models: packed to what is known of a window, and shortened where that was not enough.

use starling_agents::{Agent, PromptBudget};
use starling_llm::{
    Capacity, ChatReply, ChatRequest, Encoding, Model, ModelError, ModelErrorKind, TextStream, stream_after,
};
use starling_protocol::CallReport;
use std::sync::atomic::{AtomicI64, Ordering};

/// The window is taken for so much smaller than was said: a chat template and the schema are in it as well.
const MARGIN: f64 = 0.9;
/// And for so much smaller again where tokens are counted by rule of thumb: it was wrong already.
const RULE_OF_THUMB: f64 = 0.75;
/// How much shorter a prompt gets if nobody says how long it may be.
const UNKNOWN: f64 = 0.5;
/// No number below that is the size of a window; statuses of HTTP are.
const SMALLEST_WINDOW: i64 = 1_024;

/// What the endpoint of one model has said of its window by refusing prompts that were too long.
#[derive(Debug)]
pub struct Window {
    /// Tokens of a prompt and its reply; the largest number as long as nobody has said it.
    window: AtomicI64,
    /// Tokens of a prompt that was taken after a longer one was not.
    prompt: AtomicI64,
}

/// What came of a question.
pub struct Asked<Reply> {
    /// The question that was answered, or asked last.
    pub question: ChatRequest,
    /// The answer.
    pub reply: Result<Reply, ModelError>,
}

impl Default for Window {
    fn default() -> Self {
        Self { window: AtomicI64::new(i64::MAX), prompt: AtomicI64::new(i64::MAX) }
    }
}

impl Window {
    /// Asks, and once more with less text if the endpoint says that it is too long. Then later questions are shorter
    /// from the start. `build` makes the question, for `agent`, within the given budget.
    pub async fn chat(
        &self,
        model: &dyn Model,
        agent: &Agent,
        budget: PromptBudget,
        build: impl Fn(PromptBudget) -> ChatRequest,
    ) -> Asked<ChatReply> {
        let after = |reply: ChatReply, first: CallReport| reply.after(&first);
        self.ask(capacity(model, agent), budget, build, |question| model.chat(question), after).await
    }

    /// The same for a reply that is read as it comes.
    pub async fn stream(
        &self,
        model: &dyn Model,
        agent: &Agent,
        budget: PromptBudget,
        build: impl Fn(PromptBudget) -> ChatRequest,
    ) -> Asked<TextStream> {
        self.ask(capacity(model, agent), budget, build, |question| model.stream(question), stream_after).await
    }

    async fn ask<Reply, Sent>(
        &self,
        capacity: Capacity,
        budget: PromptBudget,
        build: impl Fn(PromptBudget) -> ChatRequest,
        send: impl Fn(ChatRequest) -> Sent,
        after: impl FnOnce(Reply, CallReport) -> Reply,
    ) -> Asked<Reply>
    where
        Sent: Future<Output = Result<Reply, ModelError>>,
    {
        let learned = |tokens: &AtomicI64| Some(tokens.load(Ordering::Relaxed)).filter(|t| *t < i64::MAX);
        let budget = PromptBudget {
            window: least(capacity.window, learned(&self.window)),
            tokens: learned(&self.prompt),
            encoding: capacity.encoding,
            ..budget
        };
        let question = build(budget);
        let first = match send(question.clone()).await {
            Err(error) if error.kind == ModelErrorKind::ContextTooLong => error,
            reply => return Asked { question, reply },
        };
        let window = window_in(&first.message);
        let tokens = fitting(&question, capacity.encoding, window);
        tracing::warn!(
            endpoint = first.endpoint,
            reason = first.message,
            tokens,
            "a prompt is too long for the model, asking with less text"
        );
        let allowance = question.allowance.map(|allowance| allowance.after(&first.report));
        let shorter =
            build(PromptBudget { window: least(budget.window, window), tokens: Some(tokens), ..budget });
        let question = ChatRequest { allowance, ..shorter };
        let reply = match send(question.clone()).await {
            Ok(reply) => {
                self.window.fetch_min(window.unwrap_or(i64::MAX), Ordering::Relaxed);
                self.prompt.fetch_min(tokens, Ordering::Relaxed);
                Ok(after(reply, first.report))
            }
            Err(error) => Err(error.after(&first.report)),
        };
        Asked { question, reply }
    }
}

fn capacity(model: &dyn Model, agent: &Agent) -> Capacity {
    model.capacity(agent.purpose.into(), agent.model.as_ref())
}

fn least(one: Option<i64>, other: Option<i64>) -> Option<i64> {
    [one, other].into_iter().flatten().min()
}

/// How many tokens the prompt of a question may have that was too long for a window, whose size may be known.
fn fitting(question: &ChatRequest, encoding: Encoding, window: Option<i64>) -> i64 {
    let sent = encoding.count_messages(&question.messages);
    let reply = question.max_tokens.map_or(0, i64::from);
    let share = |tokens: i64, share: f64| (tokens.max(0) as f64 * share) as i64;
    match window {
        Some(window) => {
            let reply = reply.min(window / 2);
            let known = if encoding == Encoding::Estimate { RULE_OF_THUMB } else { 1.0 };
            share(share(window - reply, known).min(sent), MARGIN)
        }
        None => share(sent, UNKNOWN),
    }
}

/// The size of the window, if a server's words have it: it is the smallest number that can be one, since all others are
/// those of a question that was too long.
fn window_in(said: &str) -> Option<i64> {
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
