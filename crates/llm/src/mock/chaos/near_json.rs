//! JSON as models get it wrong. What is no JSON is put into an object first.

use serde_json::{Value, json};

/// The answer as JSON.
fn value(answer: &str) -> Value {
    match serde_json::from_str(answer) {
        Ok(value @ (Value::Object(_) | Value::Array(_))) => value,
        _ => json!({"answer": answer}),
    }
}

pub(super) fn truncated(answer: &str) -> String {
    let text = value(answer).to_string();
    text.chars().take(text.chars().count() / 2).collect()
}

pub(super) fn missing_bracket(answer: &str) -> String {
    let mut text = value(answer).to_string();
    text.pop();
    text
}

pub(super) fn wrong_types(answer: &str) -> String {
    fn bend(value: Value) -> Value {
        match value {
            Value::Number(number) => Value::String(number.to_string()),
            Value::Array(items) => {
                let items = items.into_iter().enumerate();
                Value::Object(items.map(|(n, item)| (n.to_string(), bend(item))).collect())
            }
            Value::Object(fields) => {
                Value::Object(fields.into_iter().map(|(name, field)| (name, bend(field))).collect())
            }
            other => other,
        }
    }
    bend(value(answer)).to_string()
}

pub(super) fn trailing_commas(answer: &str) -> String {
    Style { last_comma: true, ..Style::JSON }.write(&value(answer))
}

pub(super) fn single_quotes(answer: &str) -> String {
    Style { quote: '\'', python: true, ..Style::JSON }.write(&value(answer))
}

pub(super) fn comments(answer: &str) -> String {
    Style { comments: true, ..Style::JSON }.write(&value(answer))
}

/// Where no text has a line end, there is a note that has one.
pub(super) fn raw_line_ends(answer: &str) -> String {
    let mut value = value(answer);
    if let Value::Object(fields) = &mut value
        && !answer.contains("\\n")
    {
        fields.insert("note".to_owned(), json!("first line\nsecond line"));
    }
    Style { raw_line_ends: true, ..Style::JSON }.write(&value)
}

pub(super) fn not_a_number(answer: &str) -> String {
    let text = value(answer).to_string();
    let Some(rest) = text.strip_prefix('{') else { return format!("[NaN,{text}]") };
    let comma = if rest == "}" { "" } else { "," };
    format!("{{\"confidence\": NaN{comma}{rest}")
}

/// How JSON is written.
#[derive(Clone, Copy)]
struct Style {
    quote: char,
    python: bool,
    last_comma: bool,
    comments: bool,
    raw_line_ends: bool,
}

impl Style {
    const JSON: Style =
        Style { quote: '"', python: false, last_comma: false, comments: false, raw_line_ends: false };

    fn write(self, value: &Value) -> String {
        let mut out = String::new();
        self.value(value, &mut out);
        out
    }

    fn value(self, value: &Value, out: &mut String) {
        match value {
            Value::Null => out.push_str(if self.python { "None" } else { "null" }),
            Value::Bool(true) => out.push_str(if self.python { "True" } else { "true" }),
            Value::Bool(false) => out.push_str(if self.python { "False" } else { "false" }),
            Value::Number(number) => out.push_str(&number.to_string()),
            Value::String(text) => self.text(text, out),
            Value::Array(items) => {
                self.list('[', ']', items, out, |item, out| self.value(item, out));
            }
            Value::Object(fields) => {
                let fields: Vec<_> = fields.iter().collect();
                self.list('{', '}', &fields, out, |(name, field), out| {
                    self.text(name, out);
                    out.push_str(": ");
                    self.value(field, out);
                });
            }
        }
    }

    fn list<T>(
        self,
        open: char,
        close: char,
        items: &[T],
        out: &mut String,
        write: impl Fn(&T, &mut String),
    ) {
        out.push(open);
        if self.comments {
            out.push_str(" // \"one\": {by one\n");
        }
        for (n, item) in items.iter().enumerate() {
            if n > 0 {
                out.push_str(", ");
            }
            write(item, out);
        }
        if self.comments {
            out.push_str(" /* that's all] */ ");
        }
        if self.last_comma && !items.is_empty() {
            out.push_str(",\n");
        }
        out.push(close);
    }

    fn text(self, text: &str, out: &mut String) {
        out.push(self.quote);
        for c in text.chars() {
            match c {
                '\n' if self.raw_line_ends => out.push(c),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\\' => out.push_str("\\\\"),
                c if c == self.quote => out.extend(['\\', c]),
                c if c.is_control() => out.push_str(&format!("\\u{:04x}", u32::from(c))),
                c => out.push(c),
            }
        }
        out.push(self.quote);
    }
}
