//! A long conversation with tools, made to fit: what was done early is summed up by a cheaper model, and what does not fit
//! into the window stays out. What goes and what does not, `starling_engine::conversation` decides.

use starling_agents::prompt::{SummaryPrompt, ToolUse, escape, summary_messages};
use starling_engine::conversation::{PackLimits, SummaryLimits, Turn, TurnKind, pack, to_sum_up};
use starling_llm::{
    ChatReply, ChatRequest, Encoding, Format, Message, Model, ModelChoice, ModelError, Purpose, Reuse,
    Speaker, TextStream, stream_after,
};
use starling_protocol::CallReport;
use starling_runtime::Settings;
use std::sync::Arc;

/// The heading of what was summed up, below what is wanted. Text of users never has it: their headings are escaped.
const SUMMARY: &str = "\n\n## What the tools have brought so far\n";
/// Tokens of the note that turns are left out.
const NOTE_TOKENS: i64 = 40;

/// Bounds of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConversationLimits {
    /// Turns that are sent beside the orders and what is wanted.
    pub turns: usize,
    /// When rounds of tools are summed up.
    pub summary: SummaryLimits,
    /// Most tokens of a summary.
    pub summary_tokens: u32,
    /// Most bytes of what a summary is made of.
    pub summary_bytes: usize,
    /// The model that sums up, by its name; `None` takes the critic's.
    pub summarizer: Option<String>,
}

impl ConversationLimits {
    /// Those of the settings.
    #[must_use]
    pub fn of(settings: &Settings) -> Self {
        let conversation = &settings.conversation;
        Self {
            turns: conversation.keep_turns,
            summary: SummaryLimits {
                rounds: conversation.summarize_rounds,
                chars: conversation.summarize_chars,
            },
            summary_tokens: conversation.summary_tokens,
            summary_bytes: settings.agents_prompt,
            summarizer: conversation.summarizer.clone(),
        }
    }
}

/// Asks a model in conversations that go on and on.
pub struct Conversations {
    model: Arc<dyn Model>,
    limits: ConversationLimits,
}

impl Conversations {
    /// Asks `model`.
    #[must_use]
    pub fn new(model: Arc<dyn Model>, limits: ConversationLimits) -> Self {
        Self { model, limits }
    }

    /// Asks for the next turn of `conversation`, which stays the caller's: the reply is for it to add, and the results of
    /// the tools that it calls. Early rounds of tools may have become a summary in it; what is left out for its size is left
    /// out of this question alone. The report has the summary's calls, too.
    ///
    /// # Errors
    /// See [`ModelError`]. No summary is no error: the conversation goes on as it is.
    pub async fn chat(&self, conversation: &mut ChatRequest) -> Result<ChatReply, ModelError> {
        let spent = self.sum_up(conversation).await;
        let replied = self.model.chat(self.question(conversation, &spent)).await;
        replied.map(|reply| reply.after(&spent)).map_err(|error| error.after(&spent))
    }

    /// The same for a reply that is read as it comes.
    ///
    /// # Errors
    /// As [`Self::chat`].
    pub async fn stream(&self, conversation: &mut ChatRequest) -> Result<TextStream, ModelError> {
        let spent = self.sum_up(conversation).await;
        match self.model.stream(self.question(conversation, &spent)).await {
            Ok(events) => Ok(stream_after(events, spent)),
            Err(error) => Err(error.after(&spent)),
        }
    }

    /// Puts a summary in the place of early rounds of tools, if they are many or long. What that took.
    async fn sum_up(&self, conversation: &mut ChatRequest) -> CallReport {
        let none = CallReport::default();
        let turns = turns(&conversation.messages, |_| 0);
        let (Some(places), Some(wanted)) =
            (to_sum_up(&turns, self.limits.summary), wanted(&conversation.messages))
        else {
            return none;
        };
        let question = self.summary_question(conversation, &places, wanted);
        match self.model.chat(question).await {
            Ok(reply) => {
                replace(&mut conversation.messages, &places, wanted, &reply.text);
                reply.report
            }
            Err(error) => {
                tracing::warn!(
                    reason = %error,
                    kind = error.kind.code(),
                    "early rounds of tools cannot be summed up, the conversation goes on with all of them"
                );
                error.report
            }
        }
    }

    fn summary_question(&self, conversation: &ChatRequest, places: &[usize], wanted: usize) -> ChatRequest {
        let messages = || places.iter().filter_map(|at| conversation.messages.get(*at));
        // Results follow their calls, and come in any order.
        let calls: Vec<ToolUse<'_>> = messages()
            .flat_map(Message::calls)
            .filter_map(|call| {
                let result = messages().find(
                    |message| matches!(&message.speaker, Speaker::Tool { call_id } if *call_id == call.id),
                )?;
                Some(ToolUse { name: &call.name, arguments: &call.arguments, result: &result.text })
            })
            .collect();
        let wanted = conversation.messages.get(wanted).map_or("", |message| message.text.as_str());
        let (wanted, earlier) = match wanted.rsplit_once(SUMMARY) {
            Some((wanted, earlier)) => (wanted, Some(earlier)),
            None => (wanted, None),
        };
        let prompt = SummaryPrompt { wanted, earlier, calls: &calls };
        ChatRequest {
            // An answer out of results, if not the last one.
            purpose: Purpose::Synthesize,
            messages: summary_messages(&prompt, self.limits.summary_bytes),
            tools: Vec::new(),
            format: Format::Text,
            max_tokens: Some(self.limits.summary_tokens),
            temperature: None,
            deadline: conversation.deadline,
            traceparent: conversation.traceparent.clone(),
            allowance: conversation.allowance,
            reuse: Reuse::Allowed,
            priority: conversation.priority,
            model: Some(match &self.limits.summarizer {
                Some(name) => ModelChoice::Named(name.clone()),
                None => ModelChoice::Role(Purpose::Judge),
            }),
        }
    }

    /// What is sent of the conversation, after `spent` was spent on it.
    fn question(&self, conversation: &ChatRequest, spent: &CallReport) -> ChatRequest {
        let capacity = self.model.capacity(conversation.purpose, conversation.model.as_ref());
        let reply = conversation.max_tokens.map_or(0, i64::from);
        let room = capacity.window.map(|window| window - reply.min(window / 2));
        let (turns, tokens) = match room {
            Some(room) => measured(conversation, capacity.encoding, room),
            None => (turns(&conversation.messages, |_| 0), None),
        };
        let packed = pack(&turns, PackLimits { turns: self.limits.turns, tokens, note: NOTE_TOKENS });
        let kept = packed.kept.iter().filter_map(|at| conversation.messages.get(*at));
        let mut messages: Vec<Message> = kept.cloned().collect();
        if packed.left_out > 0
            && let Some(wanted) = wanted(&messages).and_then(|at| messages.get_mut(at))
        {
            let note = format!("\n\n(… {} earlier messages of this conversation left out)", packed.left_out);
            wanted.text.push_str(&note);
        }
        let allowance = conversation.allowance.map(|allowance| allowance.after(spent));
        ChatRequest { messages, allowance, ..conversation.clone() }
    }
}

/// The turns with their tokens, and how many of these fit into a question that may have `room` tokens in all.
fn measured(conversation: &ChatRequest, encoding: Encoding, room: i64) -> (Vec<Turn>, Option<i64>) {
    let bytes: usize = conversation.messages.iter().map(Message::bytes).sum();
    let tools = ChatRequest { messages: Vec::new(), ..conversation.clone() };
    let room = room - encoding.count_request(&tools);
    let count = |message: &Message| encoding.count_messages(std::slice::from_ref(message));
    // No token is shorter than a byte: what is short enough in bytes need not be counted.
    match i64::try_from(bytes) {
        Ok(bytes) if bytes + 16 * conversation.messages.len() as i64 <= room => {
            (turns(&conversation.messages, |_| 0), None)
        }
        _ => (turns(&conversation.messages, count), Some(room)),
    }
}

fn turns(messages: &[Message], count: impl Fn(&Message) -> i64) -> Vec<Turn> {
    let wanted = wanted(messages);
    let turn = |(at, message): (usize, &Message)| Turn {
        kind: match &message.speaker {
            Speaker::System => TurnKind::Standing,
            Speaker::User if Some(at) == wanted => TurnKind::Standing,
            Speaker::Assistant(deeds) if !deeds.calls.is_empty() => TurnKind::Calls(deeds.calls.len()),
            Speaker::Tool { .. } => TurnKind::Result,
            Speaker::User | Speaker::Assistant(_) => TurnKind::Said,
        },
        tokens: count(message),
        chars: message.texts().map(|text| text.chars().count()).sum(),
    };
    messages.iter().enumerate().map(turn).collect()
}

/// The place of what is wanted: the first thing that the one who asks says.
fn wanted(messages: &[Message]) -> Option<usize> {
    messages.iter().position(|message| message.speaker == Speaker::User)
}

/// Takes the turns at `places` out, and puts the summary of them below what is wanted, in place of an earlier one.
fn replace(messages: &mut Vec<Message>, places: &[usize], wanted: usize, summary: &str) {
    if let Some(wanted) = messages.get_mut(wanted) {
        let end = wanted.text.rfind(SUMMARY).unwrap_or(wanted.text.len());
        wanted.text.truncate(end);
        wanted.text.push_str(SUMMARY);
        wanted.text.push_str(&escape(summary));
    }
    let mut at = 0;
    messages.retain(|_| {
        at += 1;
        places.binary_search(&(at - 1)).is_err()
    });
}
