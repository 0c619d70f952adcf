//! From a file to its text.

use crate::{Format, decode::decode, html, pdf};
use std::time::Duration;

/// Bounds of what is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextLimits {
    /// Largest text, in bytes. Default 64 MiB.
    pub bytes: usize,
    /// Longest time for a PDF. Default a minute.
    pub time: Duration,
}

impl Default for TextLimits {
    fn default() -> Self {
        Self { bytes: 64 << 20, time: Duration::from_secs(60) }
    }
}

/// A file as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// What it was.
    pub format: Format,
    /// What is in it.
    pub text: String,
    /// What could not be taken from it, in words; mostly nothing.
    pub missing: Vec<String>,
}

/// Why there is no text. Begins with what the file is or does, so that its name can stand before it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TextFault(pub(crate) String);

/// The text of a file with this name.
///
/// # Errors
/// It is no text, is empty, is damaged, or is too large.
pub fn text_of(name: &str, bytes: &[u8], limits: TextLimits) -> Result<Text, TextFault> {
    let format = Format::of(name, bytes);
    let mut missing = Vec::new();
    let text = match format {
        Format::Pdf => {
            let read = pdf::text_of(bytes, limits).map_err(TextFault)?;
            missing = read.missing;
            read.text
        }
        Format::Html => html::text_of(&decode(bytes).map_err(TextFault)?),
        _ => decode(bytes).map_err(TextFault)?,
    };
    if text.len() > limits.bytes {
        let most = limits.bytes;
        return Err(TextFault(format!("has {} bytes of text, at most {most} are taken", text.len())));
    }
    if text.trim().is_empty() {
        return Err(TextFault("has no text in it".to_owned()));
    }
    Ok(Text { format, text, missing })
}
