//! How much of the protocol an endpoint understands. Found out by asking, remembered for the process.

use super::options::{OpenAiOptions, ReplayReasoning};
use crate::{ChatRequest, Deeds, Format, Message, Speaker, Tool, ToolCall};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// How JSON is asked for, from the strictest to the one that every model understands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum JsonForm {
    /// `response_format` with the schema.
    #[default]
    Schema,
    /// `response_format` json_object; the schema is in the prompt.
    Object,
    /// The schema is in the prompt, nothing else.
    Prompt,
}

/// What may be sent. Default: everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Dialect {
    pub(super) json: JsonForm,
    pub(super) no_stream_usage: bool,
    pub(super) no_temperature: bool,
    /// `max_completion_tokens` in place of `max_tokens`.
    pub(super) completion_tokens: bool,
}

impl Dialect {
    /// A simpler dialect to try after a refusal, or `None` if the refusal is about something else.
    pub(super) fn simpler(self, refusal: &str, wants_json: bool, streams: bool) -> Option<Dialect> {
        let mentions = |word: &str| refusal.contains(word);
        let mut next = self;
        if streams && (mentions("stream_options") || mentions("include_usage")) {
            next.no_stream_usage = true;
        } else if mentions("max_completion_tokens") && mentions("max_tokens") {
            next.completion_tokens = true;
        } else if mentions("temperature") {
            next.no_temperature = true;
        } else if wants_json
            && ["response_format", "json_schema", "json_object", "schema", "grammar"]
                .into_iter()
                .any(mentions)
        {
            next.json = match self.json {
                JsonForm::Schema => JsonForm::Object,
                JsonForm::Object | JsonForm::Prompt => JsonForm::Prompt,
            };
        }
        (next != self).then_some(next)
    }

    /// What both have learned.
    fn merge(self, other: Dialect) -> Dialect {
        Dialect {
            json: self.json.max(other.json),
            no_stream_usage: self.no_stream_usage || other.no_stream_usage,
            no_temperature: self.no_temperature || other.no_temperature,
            completion_tokens: self.completion_tokens || other.completion_tokens,
        }
    }

    /// The request body.
    pub(super) fn body(
        self,
        request: &ChatRequest,
        model: &str,
        streams: bool,
        options: &OpenAiOptions,
    ) -> Value {
        let mut body = Map::new();
        body.insert("model".to_owned(), json!(model));
        let mut messages = request.messages.clone();
        if let Format::Json { name, schema, .. } = &request.format {
            if self.json != JsonForm::Schema {
                explain_schema(&mut messages, schema);
            }
            match self.json {
                JsonForm::Schema => body.insert(
                    "response_format".to_owned(),
                    json!({"type": "json_schema", "json_schema": {"name": name, "schema": schema}}),
                ),
                JsonForm::Object => body.insert("response_format".to_owned(), json!({"type": "json_object"})),
                JsonForm::Prompt => None,
            };
        }
        let messages: Vec<Value> =
            messages.into_iter().map(|message| turn(message, options.replay_reasoning)).collect();
        body.insert("messages".to_owned(), Value::Array(messages));
        if !request.tools.is_empty() {
            body.insert("tools".to_owned(), request.tools.iter().map(offer).collect());
        }
        if let Some(max) = request.max_tokens {
            let field = if self.completion_tokens { "max_completion_tokens" } else { "max_tokens" };
            body.insert(field.to_owned(), json!(max));
        }
        if let Some(temperature) = request.temperature
            && !self.no_temperature
        {
            // Through its shortest decimal form, else 0.2 becomes 0.20000000298.
            let short = temperature.to_string().parse::<f64>().unwrap_or_default();
            body.insert("temperature".to_owned(), json!(short));
        }
        if streams {
            body.insert("stream".to_owned(), json!(true));
            if !self.no_stream_usage {
                body.insert("stream_options".to_owned(), json!({"include_usage": true}));
            }
        }
        for name in &options.omit {
            body.remove(name);
        }
        for (key, value) in &options.extra_body {
            body.insert(key.clone(), value.clone());
        }
        Value::Object(body)
    }
}

/// A turn of the conversation. What a model thought goes along where its provider wants it.
fn turn(message: Message, replay: ReplayReasoning) -> Value {
    let Message { speaker, text } = message;
    let Deeds { calls, reasoning } = match speaker {
        Speaker::System => return json!({"role": "system", "content": text}),
        Speaker::User => return json!({"role": "user", "content": text}),
        Speaker::Tool { call_id } => {
            return json!({"role": "tool", "tool_call_id": call_id, "content": text});
        }
        Speaker::Assistant(deeds) => deeds,
    };
    let mut turn = Map::new();
    turn.insert("role".to_owned(), json!("assistant"));
    let content = if text.is_empty() && !calls.is_empty() { Value::Null } else { json!(text) };
    turn.insert("content".to_owned(), content);
    let reasoning = match replay {
        ReplayReasoning::Never => None,
        // Without any, it says so: the field must be there.
        ReplayReasoning::WithCalls if !calls.is_empty() => Some(reasoning.unwrap_or_default()),
        ReplayReasoning::WithCalls => None,
        ReplayReasoning::Always => reasoning,
    };
    if let Some(reasoning) = reasoning {
        turn.insert("reasoning_content".to_owned(), json!(reasoning));
    }
    if !calls.is_empty() {
        let call = |ToolCall { id, name, arguments }: ToolCall| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
        turn.insert("tool_calls".to_owned(), calls.into_iter().map(call).collect());
    }
    Value::Object(turn)
}

fn offer(tool: &Tool) -> Value {
    let Tool { name, description, parameters } = tool;
    json!({"type": "function", "function": {"name": name, "description": description, "parameters": parameters}})
}

fn explain_schema(messages: &mut Vec<Message>, schema: &Value) {
    let order = format!(
        "Reply with one JSON value that matches this JSON Schema, and with nothing else: \
         no prose, no code fence.\n{schema}"
    );
    match messages.iter_mut().rev().find(|m| m.speaker == Speaker::System) {
        Some(system) => {
            system.text.push_str("\n\n");
            system.text.push_str(&order);
        }
        None => messages.insert(0, Message::system(order)),
    }
}

/// The dialects found out so far, by model; as many entries as models in the settings.
pub(super) struct Dialects {
    /// What is spoken as long as nothing was found out.
    first: Dialect,
    known: Mutex<BTreeMap<String, Dialect>>,
}

impl Dialects {
    pub(super) fn beginning_with(json: JsonForm) -> Dialects {
        Dialects { first: Dialect { json, ..Dialect::default() }, known: Mutex::default() }
    }

    pub(super) fn of(&self, model: &str) -> Dialect {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(model).copied().unwrap_or(self.first)
    }

    /// Remembers; what other calls found out in the meantime stays.
    pub(super) fn learn(&self, model: &str, dialect: Dialect) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = known.entry(model.to_owned()).or_insert(self.first);
        *entry = entry.merge(dialect);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_leads_to_the_next_simpler_request_until_none_is_left() {
        let refusal = "response_format.type json_schema is not supported";
        let mut forms = vec![];
        let mut dialect = Dialect::default();
        while let Some(next) = dialect.simpler(refusal, true, false) {
            forms.push(next.json);
            dialect = next;
        }
        assert_eq!(forms, [JsonForm::Object, JsonForm::Prompt]);

        let full = Dialect::default();
        for (refusal, json, streams, expected) in [
            ("unknown field stream_options", false, true, Some(Dialect { no_stream_usage: true, ..full })),
            ("unknown field stream_options", false, false, None),
            (
                "'max_tokens' is not supported, use 'max_completion_tokens'",
                false,
                false,
                Some(Dialect { completion_tokens: true, ..full }),
            ),
            (
                "unsupported value: 'temperature'",
                false,
                false,
                Some(Dialect { no_temperature: true, ..full }),
            ),
            ("invalid json_schema", false, false, None),
            ("messages: too few", true, true, None),
        ] {
            assert_eq!(full.simpler(refusal, json, streams), expected, "{refusal}");
        }
    }
}
