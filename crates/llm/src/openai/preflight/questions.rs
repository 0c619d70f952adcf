//! What is asked in a trial. Small enough for any model, and such that no reply keeps to it by chance.

use crate::{ChatRequest, Format, JsonForm, Message, PreflightOptions, Reuse, Tool};
use serde_json::json;
use std::sync::Arc;
use tokio::time::Instant;

/// A model that nobody has.
pub(super) const MADE_UP_MODEL: &str = "starling-preflight-no-such-model";

/// A bird that no model comes upon by itself.
pub(super) const BIRD: &str = "quillwarbler";

/// The function that is offered.
pub(super) const TOOL: &str = "note_bird";

/// A question that one field of the request makes a trial.
pub(super) struct Question {
    /// The field that it is all about: it must be in the request as it is here.
    pub(super) field: &'static str,
    pub(super) request: ChatRequest,
    /// The model that is asked for, if it is not the one of the settings.
    pub(super) model: Option<&'static str>,
    /// The form in which JSON is asked for, if it is.
    pub(super) form: Option<JsonForm>,
    pub(super) streams: bool,
}

impl Question {
    fn new(field: &'static str, text: String, options: &PreflightOptions, deadline: Instant) -> Question {
        let request = ChatRequest {
            purpose: options.purpose,
            messages: vec![Message::user(text)],
            tools: Vec::new(),
            format: Format::Text,
            max_tokens: Some(options.max_tokens),
            temperature: None,
            deadline,
            traceparent: None,
            allowance: None,
            reuse: Reuse::Refused,
            priority: starling_protocol::Priority::default(),
            model: None,
        };
        Question { field, request, model: None, form: None, streams: false }
    }

    /// A model that nobody has, for one token.
    pub(super) fn unknown_name(options: &PreflightOptions, deadline: Instant) -> Question {
        let question = Question::new("model", "Say yes.".to_owned(), options, deadline);
        let request = ChatRequest { max_tokens: Some(1), ..question.request };
        Question { model: Some(MADE_UP_MODEL), request, ..question }
    }

    /// JSON by a schema that allows one word. As long as the schema goes in a field of its own, the word is nowhere else.
    pub(super) fn json(form: JsonForm, options: &PreflightOptions, deadline: Instant) -> Question {
        let field = if form == JsonForm::Prompt { "messages" } else { "response_format" };
        let text = "Name a bird, as a JSON object with the field \"bird\".".to_owned();
        let question = Question::new(field, text, options, deadline);
        let schema = json!({
            "type": "object",
            "properties": {"bird": {"type": "string", "enum": [BIRD]}},
            "required": ["bird"],
            "additionalProperties": false,
        });
        let format = Format::Json { name: "bird".to_owned(), schema: Arc::new(schema), check: None };
        Question { form: Some(form), request: ChatRequest { format, ..question.request }, ..question }
    }

    /// Some words, as they come.
    pub(super) fn stream(options: &PreflightOptions, deadline: Instant) -> Question {
        let text = "Count from one to ten in words.".to_owned();
        Question { streams: true, ..Question::new("stream", text, options, deadline) }
    }

    /// An order to call a function.
    pub(super) fn tools(options: &PreflightOptions, deadline: Instant) -> Question {
        let text = format!("Call the function {TOOL} with the bird \"{BIRD}\". Do not say anything.");
        let parameters = json!({
            "type": "object",
            "properties": {"bird": {"type": "string", "description": "Its name."}},
            "required": ["bird"],
            "additionalProperties": false,
        });
        let tool = Tool {
            name: TOOL.to_owned(),
            description: "Notes down a bird.".to_owned(),
            parameters: Arc::new(parameters),
        };
        let question = Question::new("tools", text, options, deadline);
        Question { request: ChatRequest { tools: vec![tool], ..question.request }, ..question }
    }
}
