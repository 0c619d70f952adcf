//! Dead letters for people, and as JSON.

use super::letter::{Contents, Letter, LetterId};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use starling_bus::InRecord;
use starling_protocol::{
    Timestamp,
    dead_letter::{Settled, own_headers},
};
use starling_runtime::router::{attempt_of, task_of};
use std::fmt::Write as _;

/// Bytes of a value that cannot be read which are shown.
const PREVIEW: usize = 256;
/// Longest text of a value that is shown to people.
const LONGEST: usize = 16 << 10;

/// A letter in a list. Holds nothing of its value.
#[derive(Clone, Debug)]
pub struct Row {
    /// Which.
    pub id: LetterId,
    /// When it was buried.
    pub time: Timestamp,
    code: String,
    reason: String,
    from: String,
    topic: String,
    count: u32,
    kind: &'static str,
    intent: Option<String>,
    settled: Option<Settled>,
}

impl Row {
    /// Of a letter.
    #[must_use]
    pub fn of(letter: &Letter, settled: Option<Settled>) -> Self {
        let burial = &letter.burial;
        Self {
            id: LetterId::of(&letter.record),
            time: burial.time,
            code: burial.code.clone(),
            reason: burial.reason.clone(),
            from: format!("{}[{}]@{}", burial.topic, burial.partition, burial.offset),
            topic: burial.topic.clone(),
            count: burial.count,
            kind: letter.contents.kind(),
            intent: letter.intent.as_ref().map(|intent| intent.as_str().to_owned()),
            settled,
        }
    }

    /// What stands above the lines.
    pub const HEAD: &str = "id        buried                    reason       count  kind          from";

    /// One line for the letter, and one for the reason.
    #[must_use]
    pub fn lines(&self) -> String {
        let code = if self.code.is_empty() { "-" } else { &self.code };
        let mut line = format!(
            "{:<9} {:<25} {:<12} {:>5}  {:<13} {}",
            self.id.to_string(),
            instant(self.time),
            clean(code),
            self.count,
            self.kind,
            clean(&self.from)
        );
        if let Some(intent) = &self.intent {
            let _ = write!(line, "  intent {}", clean(intent)); // writing to a String cannot fail
        }
        if let Some(settled) = self.settled {
            let _ = write!(line, "  ({})", settled.name());
        }
        let reason: String = clean(&self.reason).chars().take(200).collect();
        format!("{line}\n          {reason}")
    }

    /// As JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        json!({
            "id": self.id.to_string(),
            "time": instant(self.time),
            "code": self.code,
            "reason": self.reason,
            "topic": self.topic,
            "from": self.from,
            "count": self.count,
            "kind": self.kind,
            "intent": self.intent,
            "settled": self.settled.map(Settled::name),
        })
    }
}

/// Everything about a letter, for people.
#[must_use]
pub fn text(letter: &Letter, settled: Option<Settled>) -> String {
    let (burial, record) = (&letter.burial, &letter.record);
    let mut out = String::new();
    // Writing to a String cannot fail, so the results are of no interest.
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(out, "{name:<9} {}", clean(value));
    };
    line("letter", &LetterId::of(record).to_string());
    let by = match (burial.process.as_str(), burial.group.as_str()) {
        ("", "") => String::new(),
        (process, group) => format!(" by {process} of group {group}"),
    };
    line("buried", &format!("{}{by}; burial number {}", instant(burial.time), burial.count));
    let code = if burial.code.is_empty() { String::new() } else { format!("{}: ", burial.code) };
    line("reason", &format!("{code}{}", burial.reason));
    line("from", &format!("{}[{}]@{}", burial.topic, burial.partition, burial.offset));
    line("state", settled.map_or("not settled", Settled::name));
    if let Some(intent) = &letter.intent {
        let how = if letter.intent_by_place { " (by the place where it lay)" } else { "" };
        line("intent", &format!("{intent}{how}"));
    }
    line("key", &record.key.as_deref().map_or("none".to_owned(), shown));
    for (name, value) in own_headers(&record.headers) {
        line("header", &format!("{name}: {}", shown(value)));
    }
    line("value", &form(record, &letter.contents));
    match &letter.contents {
        Contents::Envelope(envelope) => {
            let task = task_of(&envelope.body).map(|task| format!(", task {task}")).unwrap_or_default();
            let attempt =
                attempt_of(&envelope.body).map(|attempt| format!(", attempt {attempt}")).unwrap_or_default();
            line("says", &format!("{} for {}{task}{attempt}", envelope.body.kind(), envelope.tag));
            body(&mut out, serde_json::to_value(envelope));
        }
        Contents::Intent(parsed) => {
            line("says", &format!("an intent of tenant {}", parsed.tenant));
            body(&mut out, serde_json::to_value(&parsed.intent));
        }
        Contents::Unreadable(why) => {
            line("unread", why);
            preview(&mut out, record.value());
        }
        Contents::Omitted => {}
    }
    out
}

/// Everything about a letter, as JSON.
#[must_use]
pub fn json(letter: &Letter, settled: Option<Settled>) -> Value {
    let (burial, record) = (&letter.burial, &letter.record);
    let mut value = Row::of(letter, settled).json();
    let headers: Vec<Value> = own_headers(&record.headers)
        .map(|(name, value)| json!({ "name": name, "value": shown(value) }))
        .collect();
    let mut more = json!({
        "partition": burial.partition,
        "offset": burial.offset,
        "group": burial.group,
        "process": burial.process,
        "key": record.key.as_deref().map(shown),
        "headers": headers,
        "value": form(record, &letter.contents),
        "bytes": burial.omitted.as_ref().map_or(Some(record.value().len()), |omitted| omitted.bytes),
    });
    let contents = match &letter.contents {
        Contents::Envelope(envelope) => ("envelope", serde_json::to_value(envelope).unwrap_or_default()),
        Contents::Intent(parsed) => {
            let intent = serde_json::to_value(&parsed.intent).unwrap_or_default();
            ("wanted", json!({ "tenant": parsed.tenant, "intent": intent }))
        }
        Contents::Unreadable(why) => {
            let value = record.value();
            let begins = STANDARD.encode(value.get(..PREVIEW).unwrap_or(value));
            ("unreadable", json!({ "why": why, "begins_base64": begins }))
        }
        Contents::Omitted => ("omitted", json!(true)),
    };
    if let (Value::Object(all), Value::Object(more)) = (&mut value, &mut more) {
        all.append(more);
        all.insert(contents.0.to_owned(), contents.1);
    }
    value
}

/// Text without what a terminal would obey.
#[must_use]
pub fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn instant(time: Timestamp) -> String {
    time.to_rfc3339().unwrap_or_else(|| time.to_string())
}

/// Bytes as text where they are text, else in base64.
fn shown(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
        _ => format!("base64 {}", STANDARD.encode(bytes)),
    }
}

/// Size and framing of a value.
fn form(record: &InRecord, contents: &Contents) -> String {
    if matches!(contents, Contents::Omitted) {
        return "not here: it was too large; replay takes it from where it lay".to_owned();
    }
    let Some(value) = &record.payload else { return "none (a tombstone)".to_owned() };
    let framing = match &value[..] {
        [0xc3, 0x01, fingerprint @ ..] if fingerprint.len() >= 8 => {
            let hex: String = fingerprint.iter().take(8).rev().map(|byte| format!("{byte:02x}")).collect();
            format!(", single-object encoding of the schema with fingerprint {hex}")
        }
        [0x00, a, b, c, d, ..] => {
            format!(", Confluent framing of schema id {}", i32::from_be_bytes([*a, *b, *c, *d]))
        }
        _ => String::new(),
    };
    format!("{} bytes{framing}", value.len())
}

fn body(out: &mut String, value: Result<Value, serde_json::Error>) {
    let text = value.and_then(|value| serde_json::to_string_pretty(&value)).unwrap_or_else(|e| e.to_string());
    let mut end = text.len().min(LONGEST);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    // Line breaks are ours; within JSON texts they are escaped.
    let shown: Vec<String> = text.get(..end).unwrap_or_default().lines().map(clean).collect();
    let _ = writeln!(out, "{}", shown.join("\n"));
    if end < text.len() {
        let _ = writeln!(out, "… and {} bytes more; --json shows all", text.len() - end);
    }
}

/// The beginning of bytes that nobody can read: sixteen in a line, in hex and as text.
fn preview(out: &mut String, value: &[u8]) {
    for (n, line) in value.chunks(16).take(PREVIEW / 16).enumerate() {
        let hex: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        let text: String = line
            .iter()
            .map(|byte| if (0x20..0x7f).contains(byte) { char::from(*byte) } else { '.' })
            .collect();
        let _ = writeln!(out, "  {:04x}  {:<47}  {text}", n * 16, hex.join(" "));
    }
    if value.len() > PREVIEW {
        let _ = writeln!(out, "  … and {} bytes more", value.len() - PREVIEW);
    }
}
