//! Which formats there are, and how a file's is told.

/// The format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Text without a structure that anybody could rely on.
    Plain,
    /// Markdown.
    Markdown,
    /// Records in lines, with a header line; fields are separated by whatever character.
    Csv,
    /// The same with tabs.
    Tsv,
    /// One JSON value.
    Json,
    /// One JSON value a line.
    JsonLines,
    /// A web page.
    Html,
    /// PDF.
    Pdf,
}

impl Format {
    /// The format of a file with this name and beginning. The beginning counts where the name says nothing, and for PDF
    /// always: nothing else begins like it.
    #[must_use]
    pub fn of(name: &str, bytes: &[u8]) -> Self {
        if bytes.starts_with(b"%PDF-") {
            return Format::Pdf;
        }
        let extension = name.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase());
        match extension.as_deref() {
            Some("md" | "markdown") => Format::Markdown,
            Some("csv") => Format::Csv,
            Some("tsv") => Format::Tsv,
            Some("json") => Format::Json,
            Some("jsonl" | "ndjson") => Format::JsonLines,
            Some("html" | "htm" | "xhtml") => Format::Html,
            Some("pdf") => Format::Pdf,
            _ if is_page(bytes) => Format::Html,
            _ => Format::Plain,
        }
    }

    /// The media type of the text that is made of it.
    #[must_use]
    pub fn media_type(self) -> &'static str {
        match self {
            Format::Plain | Format::Pdf => "text/plain",
            // Headings of a page are written as Markdown has them.
            Format::Markdown | Format::Html => "text/markdown",
            Format::Csv => "text/csv",
            Format::Tsv => "text/tab-separated-values",
            Format::Json => "application/json",
            Format::JsonLines => "application/jsonl",
        }
    }
}

fn is_page(bytes: &[u8]) -> bool {
    let head = bytes.get(..bytes.len().min(256)).unwrap_or_default().trim_ascii_start().to_ascii_lowercase();
    head.starts_with(b"<!doctype html") || head.starts_with(b"<html")
}
