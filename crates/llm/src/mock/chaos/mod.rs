//! Everything bad that an endpoint sends with a status of 200, one kind each, and what a careful client makes of it.
//!
//! All of it was seen in the wild, from servers, proxies in front of them, and models.

mod bodies;
mod content;
mod endings;
mod near_json;
mod streams;
#[cfg(test)]
mod tests;

use super::MockAction;
use super::MockCall;
use super::rehearsal::{content_type, pieces};
use super::wire::{self, Frame};
use crate::ModelErrorKind;
use axum::body::Bytes;
use serde_json::{Value, json};
use std::time::Duration;

/// Pieces of a streamed reply.
const PIECES: usize = 8;

macro_rules! kinds {
    ($($kind:ident $name:literal $about:literal)*) => {
        /// A kind of bad reply.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind {
            $(#[doc = $about] $kind,)*
        }

        impl Kind {
            /// All of them.
            pub const ALL: &[Kind] = &[$(Kind::$kind,)*];

            /// Its name.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Kind::$kind => $name,)* }
            }

            /// What it is.
            #[must_use]
            pub fn about(self) -> &'static str {
                match self { $(Kind::$kind => $about,)* }
            }
        }
    };
}

kinds! {
    NoChoices "no_choices" "No choices in the reply."
    EmptyChoices "empty_choices" "An empty list of choices."
    EmptyContent "empty_content" "A message with an empty text."
    NullContent "null_content" "A message without a text."
    FinishLength "finish_length" "Cut off at max_tokens, in the middle."
    FinishMissing "finish_missing" "Nobody says why the model has ended."
    ContentFilter "content_filter" "The provider's filter has stopped the reply."
    Refusal "refusal" "The model refuses."
    ThinkClosed "think_closed" "A thought before the answer, in `<think>` tags."
    ThinkNested "think_nested" "A thought within a thought before the answer."
    ThinkUnopened "think_unopened" "A thought whose opening tag is in the template of the prompt."
    ThinkUnclosed "think_unclosed" "A thought that does not end; what looks like the answer is part of it."
    EndToken "end_token" "`<|im_end|>` behind the answer."
    EotToken "eot_token" "`<|eot_id|>` and a blank line behind the answer, twice."
    ToolCallTags "tool_call_tags" "A `<tool_call>` as text, in place of an answer."
    ToolCallTokens "tool_call_tokens" "A call of a tool in special tokens as text, in place of an answer."
    ProseAround "prose_around" "Kind words before and behind the answer."
    Fences "fences" "The answer in a code fence."
    TruncatedJson "truncated_json" "JSON that breaks off in the middle, as if it were finished."
    MissingBracket "missing_bracket" "JSON without its last bracket."
    WrongTypes "wrong_types" "JSON with numbers as text and lists as objects."
    TrailingCommas "trailing_commas" "JSON with a comma behind every last element."
    SingleQuotes "single_quotes" "JSON as Python prints it: single quotes, `True`, `None`."
    Comments "comments" "JSON with comments."
    NotANumber "not_a_number" "JSON with `NaN` in it."
    RawLineEnds "raw_line_ends" "JSON with line ends within its strings."
    NestedBrackets "nested_brackets" "100,000 opening brackets as the answer."
    NestedBody "nested_body" "100,000 opening brackets as the body."
    HugeBody "huge_body" "A body of 50 MB."
    InvalidUtf8 "invalid_utf8" "Bytes that are no UTF-8, within the text."
    DuplicatedBody "duplicated_body" "The whole body twice."
    Html "html" "A page of HTML, which shows the headers of the request."
    SseComments "sse_comments" "A stream with comments between its events."
    SseKeepAlives "sse_keep_alives" "A stream with blank lines and events that say nothing."
    SseCrlf "sse_crlf" "A stream whose lines end with CR LF."
    SplitCodePoints "split_code_points" "A stream that is cut into packets of one byte, within characters."
    MissingDone "missing_done" "A stream without `[DONE]`."
    ErrorEvent "error_event" "An event called error, in the middle of a stream."
    ErrorObject "error_object" "An error in place of a part of a stream, or of a reply."
    UsageEmptyChoices "usage_empty_choices" "A stream that counts in a part without choices."
    UsageEmptyDelta "usage_empty_delta" "A stream that counts in a part with an empty choice."
    UsageNowhere "usage_nowhere" "A reply that counts nothing."
    WholeForStream "whole_for_stream" "A whole reply for who asked for a stream."
}

/// What was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// A stream, or a whole reply.
    pub streams: bool,
    /// JSON, or prose.
    pub json: bool,
}

/// What a careful client makes of a bad reply without asking again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// The answer: all of it is there, and nothing leaves a doubt.
    Answer,
    /// A text that may be taken for the answer, though it is not what a good endpoint would have sent. Only who asked can
    /// tell.
    Lookalike,
    /// Nothing; another try may bring the answer.
    AskAgain(ModelErrorKind),
    /// Nothing, and another try will bring nothing either.
    GiveUp(ModelErrorKind),
}

impl Kind {
    /// The kind of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Kind> {
        Kind::ALL.iter().copied().find(|kind| kind.name() == name)
    }

    /// Whether there is such a bad reply to this call. To others it is a good one.
    #[must_use]
    pub fn suits(self, call: &MockCall) -> bool {
        match self {
            Kind::TruncatedJson
            | Kind::MissingBracket
            | Kind::WrongTypes
            | Kind::TrailingCommas
            | Kind::SingleQuotes
            | Kind::Comments
            | Kind::NotANumber
            | Kind::RawLineEnds => call.wants_json(),
            Kind::SseComments
            | Kind::SseKeepAlives
            | Kind::SseCrlf
            | Kind::SplitCodePoints
            | Kind::MissingDone
            | Kind::ErrorEvent
            | Kind::UsageEmptyChoices
            | Kind::UsageEmptyDelta
            | Kind::WholeForStream => call.streams,
            _ => true,
        }
    }

    /// What a careful client makes of it.
    #[must_use]
    pub fn expected(self, form: Form) -> Expected {
        use ModelErrorKind::{BadReply, Filtered, Server};
        let for_json = |json| if form.json { json } else { Expected::Lookalike };
        match self {
            Kind::NoChoices
            | Kind::EmptyChoices
            | Kind::EmptyContent
            | Kind::NullContent
            | Kind::ThinkUnclosed
            | Kind::ToolCallTags
            | Kind::ToolCallTokens
            | Kind::NestedBody
            | Kind::HugeBody
            | Kind::InvalidUtf8
            | Kind::Html => Expected::AskAgain(BadReply),
            Kind::ContentFilter | Kind::Refusal => Expected::GiveUp(Filtered),
            Kind::FinishLength | Kind::TruncatedJson | Kind::MissingBracket | Kind::NestedBrackets => {
                for_json(Expected::AskAgain(BadReply))
            }
            Kind::ProseAround
            | Kind::Fences
            | Kind::TrailingCommas
            | Kind::SingleQuotes
            | Kind::Comments
            | Kind::RawLineEnds => for_json(Expected::Answer),
            Kind::WrongTypes | Kind::NotANumber => Expected::Lookalike,
            // What a stream has passed on cannot be taken back.
            Kind::ThinkUnopened if form.streams && !form.json => Expected::Lookalike,
            Kind::ErrorEvent | Kind::ErrorObject if form.streams => Expected::AskAgain(Server),
            Kind::ErrorObject => Expected::AskAgain(Server),
            Kind::FinishMissing
            | Kind::ThinkClosed
            | Kind::ThinkNested
            | Kind::ThinkUnopened
            | Kind::EndToken
            | Kind::EotToken
            | Kind::DuplicatedBody
            | Kind::SseComments
            | Kind::SseKeepAlives
            | Kind::SseCrlf
            | Kind::SplitCodePoints
            | Kind::MissingDone
            | Kind::ErrorEvent
            | Kind::UsageEmptyChoices
            | Kind::UsageEmptyDelta
            | Kind::UsageNowhere
            | Kind::WholeForStream => Expected::Answer,
        }
    }

    /// The bad reply in place of this answer, after a delay.
    #[must_use]
    pub fn act(self, call: &MockCall, answer: &str, delay: Duration) -> MockAction {
        let bad = Bad { call, frame: Frame::of(call), answer, delay };
        match self {
            Kind::NoChoices => endings::no_choices(&bad),
            Kind::EmptyChoices => endings::empty_choices(&bad),
            Kind::EmptyContent => bad.says(""),
            Kind::NullContent => endings::null_content(&bad),
            Kind::FinishLength => endings::finish_length(&bad),
            Kind::FinishMissing => endings::finish_missing(&bad),
            Kind::ContentFilter => endings::content_filter(&bad),
            Kind::Refusal => endings::refusal(&bad),
            Kind::ThinkClosed => bad.says(&content::think_closed(answer)),
            Kind::ThinkNested => bad.says(&content::think_nested(answer)),
            Kind::ThinkUnopened => bad.says(&content::think_unopened(answer)),
            Kind::ThinkUnclosed => bad.says(&content::think_unclosed(answer)),
            Kind::EndToken => bad.says(&format!("{answer}<|im_end|>")),
            Kind::EotToken => bad.says(&format!("{answer}<|eot_id|>\n\n<|eot_id|>")),
            Kind::ToolCallTags => bad.says(content::TOOL_CALL_TAGS),
            Kind::ToolCallTokens => bad.says(content::TOOL_CALL_TOKENS),
            Kind::ProseAround => bad.says(&content::prose_around(answer)),
            Kind::Fences => bad.says(&content::fences(answer, call.wants_json())),
            Kind::TruncatedJson => bad.says(&near_json::truncated(answer)),
            Kind::MissingBracket => bad.says(&near_json::missing_bracket(answer)),
            Kind::WrongTypes => bad.says(&near_json::wrong_types(answer)),
            Kind::TrailingCommas => bad.says(&near_json::trailing_commas(answer)),
            Kind::SingleQuotes => bad.says(&near_json::single_quotes(answer)),
            Kind::Comments => bad.says(&near_json::comments(answer)),
            Kind::NotANumber => bad.says(&near_json::not_a_number(answer)),
            Kind::RawLineEnds => bad.says(&near_json::raw_line_ends(answer)),
            Kind::NestedBrackets => bad.says(&bodies::brackets()),
            Kind::NestedBody => bodies::nested(&bad),
            Kind::HugeBody => bodies::huge(&bad),
            Kind::InvalidUtf8 => bodies::invalid_utf8(&bad),
            Kind::DuplicatedBody => bodies::duplicated(&bad),
            Kind::Html => bodies::html(&bad),
            Kind::ErrorObject => streams::error_object(&bad),
            Kind::UsageNowhere => streams::usage_nowhere(&bad),
            _ if !call.streams => bad.says(answer),
            Kind::SseComments => streams::comments(&bad),
            Kind::SseKeepAlives => streams::keep_alives(&bad),
            Kind::SseCrlf => streams::crlf(&bad),
            Kind::SplitCodePoints => streams::split_code_points(&bad),
            Kind::MissingDone => streams::missing_done(&bad),
            Kind::ErrorEvent => streams::error_event(&bad),
            Kind::UsageEmptyChoices => streams::usage_empty_choices(&bad),
            Kind::UsageEmptyDelta => streams::usage_empty_delta(&bad),
            Kind::WholeForStream => streams::whole_for_stream(&bad),
        }
    }
}

/// A bad reply in the making.
struct Bad<'a> {
    call: &'a MockCall,
    frame: Frame,
    /// What a good endpoint would say.
    answer: &'a str,
    delay: Duration,
}

impl Bad<'_> {
    /// A reply of the right form that says this.
    fn says(&self, text: &str) -> MockAction {
        if !self.call.streams {
            return self.sends(self.frame.says(text, None).to_string());
        }
        self.streams(self.events(text))
    }

    /// All parts of a stream that says this, `[DONE]` excepted.
    fn parts(&self, text: &str) -> Vec<Value> {
        let mut parts = vec![self.frame.chunk(json!({"role": "assistant", "content": ""}), Value::Null)];
        parts.extend(pieces(text, PIECES).iter().map(|piece| self.frame.piece(piece)));
        parts.push(self.frame.stop());
        parts
    }

    /// The events of a good stream that says this.
    fn events(&self, text: &str) -> Vec<String> {
        let usage = self.frame.counts(json!([]), self.frame.usage(None, text.len()));
        let parts = self.parts(text).into_iter().chain([usage]);
        parts.map(|part| wire::event(&part)).chain([wire::DONE.to_owned()]).collect()
    }

    /// This as the body.
    fn sends(&self, body: impl Into<Bytes>) -> MockAction {
        self.writes(content_type(self.call), vec![body.into()])
    }

    /// These events as the body, each in a packet of its own.
    fn streams(&self, events: Vec<String>) -> MockAction {
        self.writes(content_type(self.call), events.into_iter().map(Bytes::from).collect())
    }

    fn writes(&self, content_type: &'static str, packets: Vec<Bytes>) -> MockAction {
        let mut delay = self.delay;
        let chunks = packets.into_iter().map(|packet| (std::mem::take(&mut delay), packet)).collect();
        MockAction::Bytes { content_type, chunks, complete: true }
    }
}
