//! Reading replies: whole ones, and streamed ones piece by piece. No I/O.

use super::fault::{self, Fault};
use super::sse::SseEvent;
use super::tool_calls::Gathered;
use crate::json_text::{self, Cleaner, NoJson};
use crate::{ChatRequest, Deeds, Format, JsonCheck, ModelErrorKind, Tool, ToolCall};
use serde::Deserialize;
use serde_json::Value;
use starling_protocol::Usage;

#[derive(Deserialize)]
struct Completion {
    model: Option<String>,
    choices: Option<Vec<Choice>>,
    usage: Option<Value>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice {
    index: Option<u32>,
    #[serde(alias = "delta")]
    message: Option<Said>,
    finish_reason: Option<String>,
}

#[derive(Default, Deserialize)]
struct Said {
    content: Option<Content>,
    refusal: Option<String>,
    tool_calls: Option<Value>,
    reasoning_content: Option<Value>,
    /// The same; some servers write both.
    reasoning: Option<Value>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Deserialize)]
struct Part {
    text: Option<String>,
}

impl Content {
    fn into_text(self) -> String {
        match self {
            Content::Text(text) => text,
            Content::Parts(parts) => parts.into_iter().filter_map(|part| part.text).collect(),
        }
    }
}

/// What came back.
#[derive(Debug, PartialEq)]
pub(super) struct Reply {
    pub(super) text: String,
    pub(super) deeds: Deeds,
    /// As the server names it.
    pub(super) model: Option<String>,
    /// As the server counts.
    pub(super) usage: Option<Usage>,
}

/// A failure after the server did its work, so that tokens were spent.
#[derive(Debug, PartialEq)]
pub(super) struct Spoiled {
    pub(super) fault: Fault,
    pub(super) model: Option<Box<str>>,
    pub(super) usage: Option<Usage>,
}

impl From<Fault> for Spoiled {
    fn from(fault: Fault) -> Spoiled {
        Spoiled { fault, model: None, usage: None }
    }
}

/// What a reply has to be.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted<'r> {
    /// The bracket that it begins with; `None` for prose.
    pub(super) opener: Option<char>,
    /// Whether JSON is what it should be.
    check: Option<JsonCheck>,
    /// What it may call in place of that.
    tools: &'r [Tool],
    /// Where it stands in the conversation.
    turn: usize,
}

impl Wanted<'_> {
    pub(super) fn by(request: &ChatRequest) -> Wanted<'_> {
        let wanted = Wanted { tools: &request.tools, turn: request.messages.len(), ..Wanted::default() };
        match &request.format {
            Format::Text => wanted,
            Format::Json { schema, check, .. } => {
                let array = schema.get("type").and_then(Value::as_str) == Some("array");
                Wanted { opener: Some(if array { '[' } else { '{' }), check: check.clone(), ..wanted }
            }
        }
    }
}

/// Reads the body of a 200.
pub(super) fn read_completion(body: &[u8], wanted: &Wanted<'_>) -> Result<Reply, Spoiled> {
    let completion = once(body).map_err(|error| {
        let start = String::from_utf8_lossy(body.get(..200).unwrap_or(body));
        Fault::bad_reply(format!(
            "the reply is no chat completion ({error}): {}; is the base URL right?",
            fault::quote(&start)
        ))
    })?;
    if let Some(error) = completion.error.filter(|error| !error.is_null()) {
        return Err(fault::of_error_object(&error).into());
    }
    let usage = completion.usage.as_ref().and_then(read_usage);
    let model = completion.model.filter(|name| !name.is_empty());
    let spoil = |fault| Spoiled { fault, model: model.as_deref().map(Box::from), usage };
    let Some(choice) = completion.choices.into_iter().flatten().next() else {
        return Err(spoil(Fault::bad_reply("the reply has no choices")));
    };
    let said = choice.message.unwrap_or_default();
    let finish = choice.finish_reason.as_deref();
    if let Some(fault) = refused(finish, said.refusal.as_deref()) {
        return Err(spoil(fault));
    }
    let raw = said.content.map(Content::into_text).unwrap_or_default();
    let reasoning = thoughts(said.reasoning_content, said.reasoning);
    let gathered = Gathered::whole(said.tool_calls.as_ref());
    if !gathered.is_empty() && !wanted.tools.is_empty() {
        return match complete(gathered, wanted, finish, &raw) {
            Ok(calls) => {
                // Whatever is said beside a call is taken as it is, without what nobody is to read.
                let text = json_text::prose(&raw).unwrap_or_default().to_owned();
                Ok(Reply { text, deeds: Deeds { calls, reasoning }, model, usage })
            }
            Err(fault) => Err(spoil(fault)),
        };
    }
    match usable_text(&raw, wanted, finish) {
        Ok(text) => Ok(Reply { text, deeds: Deeds { calls: Vec::new(), reasoning }, model, usage }),
        Err(fault) => Err(spoil(fault)),
    }
}

/// The completion that a body is, or that it says twice, word for word, as some proxies do when they try again.
fn once(body: &[u8]) -> serde_json::Result<Completion> {
    let error = match serde_json::from_slice(body) {
        Ok(completion) => return Ok(completion),
        Err(error) => error,
    };
    let mut values = serde_json::Deserializer::from_slice(body).into_iter::<Completion>();
    let (Some(Ok(first)), Some((said, rest))) = (values.next(), body.split_at_checked(values.byte_offset()))
    else {
        return Err(error);
    };
    if said.trim_ascii() == rest.trim_ascii() { Ok(first) } else { Err(error) }
}

/// A reply that was held back. Another one to the same question may pass, so it is asked for once more; a question that was
/// refused comes with a status of its own and is not.
fn refused(finish: Option<&str>, refusal: Option<&str>) -> Option<Fault> {
    if let Some(refusal) = refusal.filter(|text| !text.is_empty()) {
        return Some(Fault::held_back(format!("the model refused: {}", fault::quote(refusal))));
    }
    (finish == Some("content_filter"))
        .then(|| Fault::held_back("the provider's content filter stopped the reply"))
}

/// The calls of tools of a reply that said this beside them.
fn complete(
    gathered: Gathered,
    wanted: &Wanted<'_>,
    finish: Option<&str>,
    said: &str,
) -> Result<Vec<ToolCall>, Fault> {
    let cut = finish == Some("length");
    gathered.complete(wanted.tools, wanted.turn).map_err(|wrong| {
        let (message, wrong) = match cut {
            true => ("a call of a tool was cut off at max_tokens".to_owned(), TOO_LONG.to_owned()),
            false => (format!("a call of a tool cannot be used: {wrong}"), wrong),
        };
        Fault::wrong_reply(message, wrong, said)
    })
}

/// What a model thought, in words, wherever its server writes it.
fn thoughts(content: Option<Value>, reasoning: Option<Value>) -> Option<String> {
    [content, reasoning].into_iter().flatten().find_map(|said| match said {
        Value::String(text) => Some(text),
        _ => None,
    })
}

fn usable_text(raw: &str, wanted: &Wanted<'_>, finish: Option<&str>) -> Result<String, Fault> {
    let cut = finish == Some("length");
    let Some(opener) = wanted.opener else {
        return match json_text::prose(raw) {
            Ok("") => Err(empty(cut)),
            Ok(text) => Ok(text.to_owned()),
            Err(reason) => Err(Fault::wrong_reply(reason.to_string(), "Answer in words.", raw)),
        };
    };
    if raw.trim().is_empty() {
        return Err(empty(cut));
    }
    let json = json_text::extract(raw, opener).map_err(|reason| no_json(&reason, cut, raw))?;
    match wanted.check.as_ref().map_or(Ok(()), |check| check.of(&json)) {
        Ok(()) => Ok(json.into_owned()),
        Err(wrong) => {
            let message = format!("the JSON of the reply is not what was asked for: {wrong}");
            Err(Fault::wrong_reply(message, format!("{ONLY_JSON} {wrong}"), raw))
        }
    }
}

const TOO_LONG: &str = "It was cut off because it was too long: be much shorter.";
const ONLY_JSON: &str = "Reply with one JSON value that matches the schema, complete, and with nothing else: no prose, no code fence.";

fn empty(cut: bool) -> Fault {
    if cut {
        Fault::wrong_reply("the reply was cut off at max_tokens before it said anything", TOO_LONG, "")
    } else {
        Fault::bad_reply("the reply is empty")
    }
}

/// `said` is what can be shown to the model of what it said.
fn no_json(reason: &NoJson, cut: bool, said: &str) -> Fault {
    if cut {
        let wrong = format!("{TOO_LONG} {ONLY_JSON}");
        Fault::wrong_reply("the JSON of the reply was cut off at max_tokens", wrong, said)
    } else {
        Fault::wrong_reply(reason.to_string(), format!("Problem: {reason}. {ONLY_JSON}"), said)
    }
}

pub(super) fn read_usage(usage: &Value) -> Option<Usage> {
    let count = |key| usage.get(key).and_then(Value::as_i64).map(|n: i64| n.max(0));
    let prompt = count("prompt_tokens");
    let completion = count("completion_tokens");
    if prompt.is_none() && completion.is_none() {
        return None;
    }
    let prompt_tokens = prompt.unwrap_or(0);
    Some(Usage {
        prompt_tokens,
        completion_tokens: completion.unwrap_or(0),
        cached_tokens: cached_tokens(usage).clamp(0, prompt_tokens),
    })
}

/// Where providers write how much of a prompt they had in their prompt cache. All of them count it among the prompt tokens.
const CACHED_TOKENS: [&str; 5] = [
    "/prompt_tokens_details/cached_tokens", // OpenAI, and most of those who speak its protocol
    "/prompt_cache_hit_tokens",             // DeepSeek
    "/cached_tokens",                       // Moonshot
    "/cache_read_input_tokens",             // gateways to Anthropic
    "/input_tokens_details/cached_tokens",  // gateways to OpenAI's newer API
];

fn cached_tokens(usage: &Value) -> i64 {
    // Some write more than one of them, with the same number or with 0 where it does not apply.
    let said = CACHED_TOKENS.iter().filter_map(|place| usage.pointer(place)?.as_i64());
    said.max().unwrap_or(0)
}

/// Puts a streamed reply together.
pub(super) struct Assembly {
    cleaner: Cleaner,
    json: bool,
    gathered: Gathered,
    reasoning: Option<String>,
    finish: Option<String>,
    done: bool,
    /// Characters that the model produced, thoughts included.
    pub(super) raw_chars: usize,
    said_something: bool,
    pub(super) model: Option<String>,
    pub(super) usage: Option<Usage>,
}

impl Assembly {
    pub(super) fn new(opener: Option<char>) -> Assembly {
        Assembly {
            cleaner: Cleaner::new(opener),
            json: opener.is_some(),
            gathered: Gathered::default(),
            reasoning: None,
            finish: None,
            done: false,
            raw_chars: 0,
            said_something: false,
            model: None,
            usage: None,
        }
    }

    /// Nothing more is needed.
    pub(super) fn is_done(&self) -> bool {
        self.done
    }

    /// The model has finished; only counts may follow.
    pub(super) fn has_finished(&self) -> bool {
        self.finish.is_some()
    }

    /// Takes an event; gives the text for the reader, maybe empty.
    pub(super) fn event(&mut self, event: &SseEvent) -> Result<String, Fault> {
        let data = event.data.trim();
        if event.name == "error" {
            return Err(fault::of_error_event(data));
        }
        if data == "[DONE]" {
            self.done = true;
            return Ok(String::new());
        }
        if data.is_empty() {
            return Ok(String::new());
        }
        let chunk: Completion = serde_json::from_str(data).map_err(|error| {
            Fault::bad_reply(format!(
                "a part of the stream is no chat completion ({error}): {}",
                fault::quote(data)
            ))
        })?;
        if let Some(error) = chunk.error.filter(|error| !error.is_null()) {
            return Err(fault::of_error_object(&error));
        }
        if let Some(usage) = chunk.usage.as_ref().and_then(read_usage) {
            self.usage = Some(usage);
        }
        if let Some(model) = chunk.model.filter(|name| !name.is_empty()) {
            self.model = Some(model);
        }
        let first = chunk.choices.into_iter().flatten();
        let Some(choice) = first.into_iter().find(|c| c.index.unwrap_or(0) == 0) else {
            return Ok(String::new());
        };
        let said = choice.message.unwrap_or_default();
        if let Some(fault) = refused(choice.finish_reason.as_deref(), said.refusal.as_deref()) {
            return Err(fault);
        }
        if let Some(finish) = choice.finish_reason.filter(|reason| !reason.is_empty()) {
            self.finish = Some(finish);
        }
        if let Some(piece) = thoughts(said.reasoning_content, said.reasoning) {
            self.reasoning.get_or_insert_default().push_str(&piece);
        }
        self.gathered.take(said.tool_calls.as_ref());
        let piece = said.content.map(Content::into_text).unwrap_or_default();
        self.raw_chars += piece.chars().count();
        let clean = self.cleaner.push(&piece);
        self.said_something |= !clean.trim().is_empty();
        Ok(clean)
    }

    /// Characters that the model is known to have produced, calls of tools included.
    pub(super) fn chars(&self) -> usize {
        self.raw_chars + self.gathered.bytes()
    }

    /// The stream is over. The last text for the reader, maybe empty, and the calls of tools, or why the reply is none.
    pub(super) fn end(&mut self, wanted: &Wanted<'_>) -> Result<(String, Option<Deeds>), Fault> {
        if !self.done && self.finish.is_none() {
            return Err(Fault::new(
                ModelErrorKind::Server,
                "the stream was cut before the reply was complete",
            ));
        }
        let cut = self.finish.as_deref() == Some("length");
        let last = self.cleaner.finish();
        self.said_something |= !last.trim().is_empty();
        if !self.gathered.is_empty() && !wanted.tools.is_empty() {
            let gathered = std::mem::take(&mut self.gathered);
            let calls = complete(gathered, wanted, self.finish.as_deref(), "")?;
            return Ok((last, Some(Deeds { calls, reasoning: self.reasoning.take() })));
        }
        if self.raw_chars == 0 {
            return Err(empty(cut));
        }
        self.cleaner.verdict().map_err(|reason| no_json(&reason, cut, ""))?;
        if !self.json && !self.said_something {
            return Err(empty(cut));
        }
        Ok((last, None))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::ModelErrorKind as Kind;

    fn said(content: &str, finish: &str) -> String {
        serde_json::json!({
            "model": "m", "usage": {"prompt_tokens": 3, "completion_tokens": null},
            "choices": [{"message": {"content": content}, "finish_reason": finish}]
        })
        .to_string()
    }

    #[test]
    fn whole_replies() {
        let table = [
            (said("hi\n", "stop"), None, Ok("hi")),
            (said("half a sen", "length"), None, Ok("half a sen")),
            (said("", "length"), None, Err(Kind::BadReply)),
            (said(" ", "stop"), None, Err(Kind::BadReply)),
            (said("<think>hm", "length"), None, Err(Kind::BadReply)),
            (said("```json\n{\"a\":1}\n```", "stop"), Some('{'), Ok("{\"a\":1}")),
            (said("[{\"a\":1}]", "stop"), Some('['), Ok("[{\"a\":1}]")),
            (said("{\"a\":1}", "length"), Some('{'), Ok("{\"a\":1}")),
            (said("{\"a\":", "length"), Some('{'), Err(Kind::BadReply)),
            (said("I cannot", "stop"), Some('{'), Err(Kind::BadReply)),
            (said("x", "content_filter"), None, Err(Kind::Filtered)),
            (
                r#"{"choices":[{"message":{"content":null,"refusal":"no"}}]}"#.into(),
                None,
                Err(Kind::Filtered),
            ),
            (
                r#"{"choices":[{"message":{"content":[{"type":"text","text":"a"},{"text":"b"}]}}]}"#.into(),
                None,
                Ok("ab"),
            ),
            (r#"{"choices":[]}"#.into(), None, Err(Kind::BadReply)),
            (r#"{"object":"x"}"#.into(), None, Err(Kind::BadReply)),
            (r#"{"error":{"code":429,"message":"x"}}"#.into(), None, Err(Kind::RateLimited)),
            ("<html>".into(), None, Err(Kind::BadReply)),
            ("[".repeat(100_000), None, Err(Kind::BadReply)),
            (said("hi", "stop").repeat(2), None, Ok("hi")),
            (format!("{}\n{}\n", said("hi", "stop"), said("hi", "stop")), None, Ok("hi")),
            (said("hi", "stop") + &said("ho", "stop"), None, Err(Kind::BadReply)),
            (said("hi", "stop").repeat(3), None, Err(Kind::BadReply)),
            (said("hi<|im_end|>", "stop"), None, Ok("hi")),
            (said("<|im_end|>", "stop"), None, Err(Kind::BadReply)),
            (said("<tool_call>{\"name\":\"x\"}</tool_call>", "stop"), None, Err(Kind::BadReply)),
            (said("<tool_call>{\"name\":\"x\"}</tool_call>", "stop"), Some('{'), Err(Kind::BadReply)),
            (said("{'a': 1,}", "stop"), Some('{'), Ok("{\"a\": 1}")),
            (said("<think>{\"a\":1}", "stop"), Some('{'), Err(Kind::BadReply)),
        ];
        for (body, opener, expected) in table {
            let got = read_completion(body.as_bytes(), &Wanted { opener, ..Wanted::default() });
            match expected {
                Ok(text) => assert_eq!(got.unwrap().text, text),
                Err(kind) => assert_eq!(got.unwrap_err().fault.kind, kind, "{}", fault::quote(&body)),
            }
        }
        for (usage, cached) in [
            (
                r#"{"prompt_tokens":100,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":64}}"#,
                64,
            ),
            (r#"{"prompt_tokens":100,"prompt_cache_hit_tokens":64,"prompt_cache_miss_tokens":36}"#, 64),
            (r#"{"prompt_tokens":100,"cached_tokens":64}"#, 64),
            (r#"{"prompt_tokens":100,"cached_tokens":64,"prompt_tokens_details":{"cached_tokens":0}}"#, 64),
            (r#"{"prompt_tokens":100,"cache_read_input_tokens":64}"#, 64),
            (r#"{"prompt_tokens":100,"input_tokens_details":{"cached_tokens":64}}"#, 64),
            (r#"{"prompt_tokens":100,"cached_tokens":640}"#, 100),
            (r#"{"prompt_tokens":100,"cached_tokens":-1}"#, 0),
            (r#"{"prompt_tokens":100,"prompt_tokens_details":null,"cached_tokens":"many"}"#, 0),
        ] {
            let usage = read_usage(&serde_json::from_str(usage).unwrap()).unwrap();
            assert_eq!((usage.prompt_tokens, usage.cached_tokens), (100, cached));
        }
        let spoiled = read_completion(
            said("{", "length").as_bytes(),
            &Wanted { opener: Some('{'), ..Wanted::default() },
        )
        .unwrap_err();
        assert!(spoiled.fault.message.contains("cut off at max_tokens"));
        assert_eq!(spoiled.usage.unwrap().prompt_tokens, 3);
    }
}
