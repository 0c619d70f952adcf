//! When two questions are the same.

use crate::{ChatRequest, Deeds, Format, Message, Speaker, Tool, ToolCall};
use sha2::{Digest, Sha256};
use std::fmt;

/// SHA-256 of everything that decides about a reply: who is asked, the messages, and the parameters. Neither the deadline
/// nor the trace is in it, nor what the question is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key(pub(super) [u8; 32]);

impl Key {
    /// The key of a question to `provenance`, see [`crate::Model::provenance`].
    pub(super) fn of(provenance: &str, request: &ChatRequest) -> Key {
        let mut fields = Fields(Sha256::new());
        fields.text("starling question 2");
        fields.text(provenance);
        match &request.format {
            Format::Text => fields.text("text"),
            Format::Json { name, schema, .. } => {
                fields.text("json");
                fields.text(name);
                fields.text(&schema.to_string());
            }
        }
        fields.number(request.max_tokens);
        fields.number(request.temperature.map(f32::to_bits));
        for Tool { name, description, parameters } in &request.tools {
            fields.text("tool");
            fields.text(name);
            fields.text(description);
            fields.text(&parameters.to_string());
        }
        for message in &request.messages {
            fields.turn(message);
        }
        Key(fields.0.finalize().into())
    }

    /// The key that [`Key`]'s `Display` writes.
    pub(super) fn parse(text: &str) -> Option<Key> {
        let mut bytes = [0; 32];
        if text.len() != 64 || !text.is_ascii() {
            return None;
        }
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
        }
        Some(Key(bytes)).filter(|key| key.to_string() == text)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Feeds a hash, each field after its length, so that no two lists of fields look alike.
struct Fields(Sha256);

impl Fields {
    fn text(&mut self, text: &str) {
        self.0.update((text.len() as u64).to_be_bytes());
        self.0.update(text.as_bytes());
    }

    fn turn(&mut self, message: &Message) {
        match &message.speaker {
            Speaker::System => self.text("system"),
            Speaker::User => self.text("user"),
            Speaker::Assistant(Deeds { calls, reasoning }) => {
                self.text("assistant");
                self.text(if reasoning.is_some() { "thought" } else { "" });
                self.text(reasoning.as_deref().unwrap_or_default());
                for ToolCall { id, name, arguments } in calls {
                    self.text("call");
                    self.text(id);
                    self.text(name);
                    self.text(arguments);
                }
            }
            Speaker::Tool { call_id } => {
                self.text("tool result");
                self.text(call_id);
            }
        }
        self.text("says");
        self.text(&message.text);
    }

    fn number(&mut self, number: Option<u32>) {
        self.text(&number.map(|number| number.to_string()).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{Purpose, Reuse};
    use std::{sync::Arc, time::Duration};
    use tokio::time::Instant;

    fn request() -> ChatRequest {
        ChatRequest {
            purpose: Purpose::Work,
            messages: vec![Message::system("Be terse."), Message::user("Say hello.")],
            tools: Vec::new(),
            format: Format::Text,
            max_tokens: Some(50),
            temperature: Some(0.2),
            deadline: Instant::now(),
            traceparent: None,
            allowance: None,
            reuse: Reuse::Allowed,
            priority: starling_protocol::Priority::default(),
            model: None,
        }
    }

    fn with(deeds: Deeds) -> Message {
        Message { speaker: Speaker::Assistant(deeds), text: String::new() }
    }

    fn calling(id: &str, name: &str, arguments: &str) -> Message {
        let call = ToolCall { id: id.into(), name: name.into(), arguments: arguments.into() };
        with(Deeds { calls: vec![call], reasoning: None })
    }

    fn thinking(reasoning: Option<&str>) -> Message {
        with(Deeds { calls: Vec::new(), reasoning: reasoning.map(str::to_owned) })
    }

    fn tool(name: &str, description: &str, parameters: serde_json::Value) -> Tool {
        Tool { name: name.into(), description: description.into(), parameters: Arc::new(parameters) }
    }

    #[test]
    fn what_decides_about_a_reply_is_in_the_key_and_nothing_else() {
        type Change = Box<dyn Fn(&mut ChatRequest)>;
        let key = Key::of("m", &request());
        let same: [fn(&mut ChatRequest); 4] = [
            |r| r.deadline += Duration::from_secs(9),
            |r| r.traceparent = Some("00-1-2-01".into()),
            |r| r.purpose = Purpose::Synthesize,
            |r| r.reuse = Reuse::Refused,
        ];
        for change in same {
            let mut request = request();
            change(&mut request);
            assert_eq!(Key::of("m", &request).to_string(), key.to_string());
        }
        let json =
            |name: &str, schema| Format::Json { name: name.into(), schema: Arc::new(schema), check: None };
        let others: Vec<Change> = vec![
            Box::new(|_| ()),
            Box::new(|r| r.messages[1].text.push('!')),
            Box::new(|r| r.messages[1].speaker = Speaker::Assistant(Deeds::default())),
            Box::new(|r| r.messages.push(calling("1", "find", "{}"))),
            Box::new(|r| r.messages.push(calling("2", "find", "{}"))),
            Box::new(|r| r.messages.push(calling("1", "read", "{}"))),
            Box::new(|r| r.messages.push(calling("1", "find", "{ }"))),
            Box::new(|r| r.messages.push(thinking(Some("hm")))),
            Box::new(|r| r.messages.push(thinking(Some("")))),
            Box::new(|r| r.messages.push(thinking(None))),
            Box::new(|r| r.messages.push(Message::tool("1", "x"))),
            Box::new(|r| r.messages.push(Message::tool("2", "x"))),
            Box::new(|r| r.tools.push(tool("find", "finds", true.into()))),
            Box::new(|r| r.tools.push(tool("read", "finds", true.into()))),
            Box::new(|r| r.tools.push(tool("find", "looks", true.into()))),
            Box::new(|r| r.tools.push(tool("find", "finds", false.into()))),
            Box::new(|r| drop(r.messages.remove(0))),
            Box::new(|r| r.messages.swap(0, 1)),
            // The same characters, cut elsewhere.
            Box::new(|r| {
                r.messages[0].text.pop();
                r.messages[1].text.insert(0, '.');
            }),
            Box::new(|r| r.max_tokens = None),
            Box::new(|r| r.max_tokens = Some(51)),
            Box::new(|r| r.temperature = None),
            Box::new(|r| r.temperature = Some(0.3)),
            Box::new(move |r| r.format = json("a", true.into())),
            Box::new(move |r| r.format = json("b", true.into())),
            Box::new(move |r| r.format = json("a", false.into())),
        ];
        let mut keys = vec![Key::of("another", &request()).to_string()];
        for change in others {
            let mut request = request();
            change(&mut request);
            keys.push(Key::of("m", &request).to_string());
        }
        let all = keys.len();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), all);
        assert!(Key::parse(&key.to_string()).unwrap() == key);
        assert!(["", "zz", &key.to_string().to_uppercase()].iter().all(|text| Key::parse(text).is_none()));
    }
}
