//! What a failed attempt means: the kind of failure, and whether to try again.

use crate::{Answer, ModelErrorKind};
use serde_json::Value;
use std::time::Duration;

/// The longest beginning of a wrong reply that the model is shown again, in characters.
const MAX_SAID_CHARS: usize = 4_000;

/// A failed attempt.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Fault {
    pub(super) kind: ModelErrorKind,
    pub(super) message: String,
    /// Whether the same question may be answered in a moment.
    pub(super) retry: bool,
    /// How long the server wants to be left alone.
    pub(super) retry_after: Option<Duration>,
    /// What the server refused about the request, lower case, if it refused the request as such:
    /// maybe a simpler request will do.
    pub(super) refusal: Option<Box<str>>,
    /// Maybe only a kept connection that had ended: worth one more attempt at once.
    pub(super) stale: bool,
    /// How to ask once more after a reply that is of no use; `None` if it was no such reply.
    pub(super) amend: Option<Box<Amend>>,
}

/// How to ask once more after a reply that is of no use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Amend {
    /// In the same words: it was not the model that went wrong.
    Repeat,
    /// With what the model did wrong.
    Tell {
        /// A sentence about the reply, for the model.
        wrong: String,
        /// The beginning of the reply; empty if nothing was said or it is not at hand.
        said: String,
    },
}

impl Fault {
    pub(super) fn new(kind: ModelErrorKind, message: impl Into<String>) -> Fault {
        Fault {
            kind,
            message: message.into(),
            retry: matches!(
                kind,
                ModelErrorKind::Unreachable | ModelErrorKind::RateLimited | ModelErrorKind::Server
            ),
            retry_after: None,
            refusal: None,
            stale: false,
            amend: None,
        }
    }

    /// What it says about the server.
    pub(super) fn answer(&self) -> Answer {
        match self.kind {
            // Where the quota is used up, fewer requests make nothing better.
            ModelErrorKind::RateLimited if self.retry => Answer::Refused,
            ModelErrorKind::RateLimited | ModelErrorKind::Deadline => Answer::Unknown,
            ModelErrorKind::Server | ModelErrorKind::Unreachable => Answer::Failed,
            _ => Answer::Accepted,
        }
    }

    /// A reply that is none, for no fault of the model's.
    pub(super) fn bad_reply(message: impl Into<String>) -> Fault {
        Fault { amend: Some(Box::new(Amend::Repeat)), ..Fault::new(ModelErrorKind::BadReply, message) }
    }

    /// A reply that the model or its provider did not let through.
    pub(super) fn held_back(message: impl Into<String>) -> Fault {
        Fault { amend: Some(Box::new(Amend::Repeat)), ..Fault::new(ModelErrorKind::Filtered, message) }
    }

    /// A reply that is not what the model was asked for. It `said` this.
    pub(super) fn wrong_reply(message: impl Into<String>, wrong: impl Into<String>, said: &str) -> Fault {
        let said = said.chars().take(MAX_SAID_CHARS).collect();
        let amend = Some(Box::new(Amend::Tell { wrong: wrong.into(), said }));
        Fault { amend, ..Fault::new(ModelErrorKind::BadReply, message) }
    }
}

/// What a server says about an error, whatever shape it says it in.
#[derive(Debug, Default, PartialEq, Eq)]
struct Complaint {
    message: String,
    /// `code` and `type`, as far as they are there.
    codes: String,
    status: Option<u16>,
}

impl Complaint {
    fn read(body: &str) -> Complaint {
        match serde_json::from_str::<Value>(body) {
            Ok(value) => Complaint::from_value(value.get("error").unwrap_or(&value)),
            Err(_) => Complaint { message: body.to_owned(), ..Complaint::default() },
        }
    }

    fn from_value(error: &Value) -> Complaint {
        if let Some(text) = error.as_str() {
            return Complaint { message: text.to_owned(), ..Complaint::default() };
        }
        let message = ["message", "detail", "error"]
            .iter()
            .find_map(|key| error.get(key))
            .map_or_else(|| error.to_string(), plain);
        let codes =
            ["code", "type"].iter().filter_map(|key| error.get(key)).map(plain).collect::<Vec<_>>().join(" ");
        let status = error
            .get("code")
            .and_then(|code| code.as_u64().or_else(|| code.as_str()?.parse().ok()))
            .and_then(|code| u16::try_from(code).ok())
            .filter(|code| (400..600).contains(code));
        Complaint { message, codes, status }
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Judges a reply whose status is not 2xx.
pub(super) fn of_status(status: u16, retry_after: Option<Duration>, body: &str) -> Fault {
    let complaint = Complaint::read(body);
    let mut fault = judge(status, &complaint);
    if fault.retry {
        fault.retry_after = retry_after;
    }
    fault
}

/// Judges the data of an event of a stream that is called an error.
pub(super) fn of_error_event(data: &str) -> Fault {
    let error = serde_json::from_str::<Value>(data).unwrap_or_else(|_| data.into());
    of_error_object(error.get("error").unwrap_or(&error))
}

/// Judges an error object that came inside a 200, such as in the middle of a stream.
pub(super) fn of_error_object(error: &Value) -> Fault {
    let complaint = Complaint::from_value(error);
    let codes = complaint.codes.to_lowercase();
    let status = complaint.status.unwrap_or(if codes.contains("rate_limit") {
        429
    } else if codes.contains("invalid_request") {
        400
    } else {
        500
    });
    judge(status, &complaint)
}

fn judge(status: u16, complaint: &Complaint) -> Fault {
    use ModelErrorKind as Kind;
    let text = complaint.message.to_lowercase();
    let codes = complaint.codes.to_lowercase();
    let says = |words: &[&str]| words.iter().any(|w| text.contains(w) || codes.contains(w));
    let quoted = quote(&complaint.message);

    if status != 429 && (status == 413 || says(CONTEXT_WORDS)) {
        return Fault::new(
            Kind::ContextTooLong,
            format!("the conversation is too long for the model ({status}): {quoted}"),
        );
    }
    if status < 500 && says(FILTER_WORDS) {
        return Fault::new(Kind::Filtered, format!("refused by the provider: {quoted}"));
    }
    match status {
        401 | 403 => Fault::new(
            Kind::Unauthorized,
            format!(
                "the API key was refused ({status}): {quoted}; set OPENAI_API_KEY to a key of this endpoint"
            ),
        ),
        400 | 404 | 422 if is_unknown_model(&text, &codes) => Fault::new(
            Kind::UnknownModel,
            format!("the endpoint does not know the model ({status}): {quoted}"),
        ),
        404 | 405 => Fault::new(
            Kind::BadRequest,
            format!("nothing there ({status}): {quoted}; the base URL mostly ends in /v1"),
        ),
        429 if says(&["insufficient_quota", "exceeded your current quota"]) => {
            let mut fault = Fault::new(Kind::RateLimited, format!("the quota is used up: {quoted}"));
            fault.retry = false;
            fault
        }
        429 => Fault::new(Kind::RateLimited, format!("too many requests (429): {quoted}")),
        300..400 => Fault::new(
            Kind::BadRequest,
            format!(
                "the endpoint redirects ({status}), which is not followed; set the base URL to where it leads"
            ),
        ),
        501 | 505 => {
            let mut fault = Fault::new(Kind::Server, format!("not supported there ({status}): {quoted}"));
            fault.retry = false;
            fault
        }
        408 | 409 | 425 | 500.. => {
            let mut fault = Fault::new(Kind::Server, format!("the server failed ({status}): {quoted}"));
            // Some servers answer a schema that they cannot compile with 500.
            if text.contains("grammar") || text.contains("json_schema") {
                fault.refusal = Some(text.into());
            }
            fault
        }
        _ => {
            let mut fault = Fault::new(Kind::BadRequest, format!("refused ({status}): {quoted}"));
            if matches!(status, 400 | 422) {
                fault.refusal = Some(format!("{text} {codes}").into());
            }
            fault
        }
    }
}

const CONTEXT_WORDS: &[&str] = &[
    "context_length_exceeded",
    "exceed_context_size",
    "maximum context length",
    "exceeds the available context size",
    "exceeds the context",
    "context length exceeded",
    "context window",
    "prompt is too long",
    "input is too long",
];

const FILTER_WORDS: &[&str] = &["content_filter", "content_policy_violation", "content management policy"];

fn is_unknown_model(text: &str, codes: &str) -> bool {
    codes.contains("model_not_found")
        || (text.contains("model")
            && ["not found", "does not exist", "unknown model", "invalid model", "not a valid model"]
                .iter()
                .any(|words| text.contains(words)))
}

/// A server's words for people: one line, not too long.
pub(super) fn quote(text: &str) -> String {
    const MOST: usize = 300;
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.is_empty() {
        return "(no explanation)".to_owned();
    }
    let mut quoted: String = line.chars().filter(|c| !c.is_control()).take(MOST).collect();
    if line.chars().count() > MOST {
        quoted.push('…');
    }
    quoted
}

/// Bytes of a secret that give it away: a quote may end in the middle of one.
const TELLING: usize = 8;

/// The text without secrets, and without beginnings of secrets that a quote has cut off. Servers like to quote the key that
/// they refuse.
pub(super) fn hide(text: &str, secrets: &[String]) -> String {
    secrets.iter().fold(text.to_owned(), |text, secret| {
        let text = text.replace(secret.as_str(), HIDDEN);
        let Some(begin) = secret.get(..TELLING) else { return text };
        let mut shown = String::with_capacity(text.len());
        let mut rest = text.as_str();
        while let Some((before, after)) = rest.split_once(begin) {
            shown.push_str(before);
            shown.push_str(HIDDEN);
            let more = secret.bytes().skip(TELLING).zip(after.bytes()).take_while(|(a, b)| a == b).count();
            // Not within a character.
            let end = (0..=more).rev().find(|end| after.is_char_boundary(*end)).unwrap_or(0);
            rest = after.get(end..).unwrap_or_default();
        }
        shown.push_str(rest);
        shown
    })
}

const HIDDEN: &str = "[secret]";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ModelErrorKind as Kind;

    #[test]
    fn neither_a_secret_nor_its_beginning_is_shown() {
        let secrets = ["sk-very-secret-key".to_owned(), "short".to_owned(), "schlüssel-ß-lang".to_owned()];
        for (text, expected) in [
            ("key sk-very-secret-key, short", "key [secret], [secret]"),
            ("key sk-very-secre…", "key [secret]…"),
            ("key sk-very-sex sk-very", "key [secret]x sk-very"),
            ("schlüssel-ß-lang schlüssel-ü", "[secret] [secret]ü"),
            ("nothing", "nothing"),
        ] {
            assert_eq!(hide(text, &secrets), expected);
        }
    }

    #[test]
    fn statuses_and_bodies() {
        let table: &[(u16, &str, Kind, bool)] = &[
            (
                400,
                r#"{"error":{"code":"context_length_exceeded","message":"x"}}"#,
                Kind::ContextTooLong,
                false,
            ),
            (
                400,
                r#"{"error":{"message":"This model's maximum context length is 8192 tokens"}}"#,
                Kind::ContextTooLong,
                false,
            ),
            (
                400,
                r#"{"error":{"code":400,"message":"request (9000 tokens) exceeds the available context size (4096 tokens)","type":"exceed_context_size_error"}}"#,
                Kind::ContextTooLong,
                false,
            ),
            (
                500,
                r#"{"error":{"message":"the request exceeds the available context size"}}"#,
                Kind::ContextTooLong,
                false,
            ),
            (413, "too large", Kind::ContextTooLong, false),
            (401, r#"{"error":{"message":"Incorrect API key"}}"#, Kind::Unauthorized, false),
            (403, "", Kind::Unauthorized, false),
            (404, r#"{"error":{"code":"model_not_found","message":"nope"}}"#, Kind::UnknownModel, false),
            (404, r#"{"error":"model 'llama9' not found"}"#, Kind::UnknownModel, false),
            (400, r#"{"message":"The model `x` does not exist"}"#, Kind::UnknownModel, false),
            (404, "<html>404</html>", Kind::BadRequest, false),
            (400, r#"{"error":{"code":"content_filter","message":"x"}}"#, Kind::Filtered, false),
            (429, r#"{"error":{"message":"slow down"}}"#, Kind::RateLimited, true),
            (
                429,
                r#"{"error":{"message":"Request too large for the context window"}}"#,
                Kind::RateLimited,
                true,
            ),
            (429, r#"{"error":{"code":"insufficient_quota","message":"pay"}}"#, Kind::RateLimited, false),
            (500, "", Kind::Server, true),
            (502, "<html>bad gateway</html>", Kind::Server, true),
            (503, r#"{"error":{"message":"Loading model"}}"#, Kind::Server, true),
            (408, "", Kind::Server, true),
            (501, "", Kind::Server, false),
            (307, "", Kind::BadRequest, false),
            (422, r#"{"detail":[{"msg":"field required"}]}"#, Kind::BadRequest, false),
            (418, "teapot", Kind::BadRequest, false),
            (400, "null", Kind::BadRequest, false),
            (400, "[[[[", Kind::BadRequest, false),
        ];
        for (status, body, kind, retry) in table {
            let fault = of_status(*status, Some(Duration::from_secs(7)), body);
            assert_eq!((fault.kind, fault.retry), (*kind, *retry), "{status} {body}");
            assert_eq!(fault.retry_after.is_some(), *retry, "{status} {body}");
        }
    }

    #[test]
    fn errors_inside_a_stream() {
        for (error, kind) in [
            (r#"{"message":"overloaded","code":503}"#, Kind::Server),
            (r#"{"message":"slow","type":"rate_limit_error"}"#, Kind::RateLimited),
            (r#"{"message":"slow","code":"429"}"#, Kind::RateLimited),
            (r#"{"message":"the context window is full","code":400}"#, Kind::ContextTooLong),
            (r#""it broke""#, Kind::Server),
            ("{}", Kind::Server),
        ] {
            let value = serde_json::from_str(error).unwrap_or_default();
            assert_eq!(of_error_object(&value).kind, kind, "{error}");
        }
    }
}
