//! The text of a web page. Tags are taken one by one as they come and no tree is built, so that neither depth nor
//! disorder of a page costs anything.

use html5ever::tendril::StrTendril;
use html5ever::tokenizer::states::RawKind;
use html5ever::tokenizer::{
    BufferQueue, TagKind, Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts,
};
use std::cell::RefCell;

/// What a reader of the page would see, with headings as Markdown writes them, a list's entries as lines, and the cells
/// of a row in one line.
pub(crate) fn text_of(page: &str) -> String {
    let tokenizer = Tokenizer::new(Page::default(), TokenizerOpts::default());
    let input = BufferQueue::default();
    input.push_back(StrTendril::from_slice(page));
    // A script's end hands back control; there is nothing to be run.
    while !input.is_empty() {
        let _ = tokenizer.feed(&input);
    }
    tokenizer.end();
    tokenizer.sink.0.into_inner().finish()
}

#[derive(Default)]
struct Page(RefCell<Writer>);

impl TokenSink for Page {
    type Handle = ();

    fn process_token(&self, token: Token, _line: u64) -> TokenSinkResult<()> {
        let mut writer = self.0.borrow_mut();
        match token {
            Token::CharacterTokens(text) => writer.text(&text),
            Token::TagToken(tag) => {
                let name: &str = &tag.name;
                match tag.kind {
                    TagKind::StartTag => writer.begin(name),
                    TagKind::EndTag => writer.end(name),
                }
                let raw = match name {
                    "script" => Some(RawKind::ScriptData),
                    "style" | "noframes" | "iframe" | "noembed" => Some(RawKind::Rawtext),
                    "textarea" | "title" => Some(RawKind::Rcdata),
                    _ => None,
                };
                if let Some(raw) = raw.filter(|_| tag.kind == TagKind::StartTag) {
                    return TokenSinkResult::RawData(raw);
                }
            }
            _ => {}
        }
        TokenSinkResult::Continue
    }
}

/// What is still to be written before the next word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Gap {
    #[default]
    None,
    Space,
    Line,
    Paragraph,
}

#[derive(Default)]
struct Writer {
    out: String,
    gap: Gap,
    /// What the next word begins with: a heading's or an entry's mark.
    mark: &'static str,
    /// The element whose content nobody sees.
    hidden: Option<&'static str>,
    /// Whether line breaks and spaces are as they are written.
    as_written: usize,
}

/// Elements whose content is not shown as text of the page.
const HIDDEN: [&str; 9] =
    ["script", "style", "template", "iframe", "noframes", "noembed", "svg", "textarea", "select"];
/// Elements that are paragraphs of their own.
const PARAGRAPHS: [&str; 20] = [
    "p",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "ul",
    "ol",
    "dl",
    "table",
    "pre",
    "blockquote",
    "section",
    "article",
    "header",
    "footer",
    "main",
    "title",
    "hr",
];
/// Elements that begin a line.
const LINES: [&str; 14] = [
    "br",
    "div",
    "li",
    "tr",
    "dt",
    "dd",
    "caption",
    "figcaption",
    "form",
    "fieldset",
    "nav",
    "aside",
    "address",
    "option",
];

impl Writer {
    fn begin(&mut self, name: &str) {
        if self.hidden.is_some() {
            return;
        }
        if let Some(hidden) = HIDDEN.iter().find(|hidden| **hidden == name) {
            self.hidden = Some(hidden);
            return;
        }
        self.break_at(name);
        self.mark = match name {
            "title" | "h1" => "# ",
            "h2" => "## ",
            "h3" => "### ",
            "h4" => "#### ",
            "h5" => "##### ",
            "h6" => "###### ",
            "li" => "- ",
            _ => self.mark,
        };
        match name {
            "td" | "th" if self.gap < Gap::Line && !self.out.is_empty() => self.separate(),
            "pre" => self.as_written += 1,
            _ => {}
        }
    }

    fn end(&mut self, name: &str) {
        if let Some(hidden) = self.hidden {
            if hidden == name {
                self.hidden = None;
            }
            return;
        }
        self.break_at(name);
        if name == "pre" {
            self.as_written = self.as_written.saturating_sub(1);
        }
        if matches!(name, "h1" | "h2" | "h3" | "h4" | "h5" | "h6" | "title" | "li") {
            self.mark = ""; // an empty one
        }
    }

    fn break_at(&mut self, name: &str) {
        let gap = if PARAGRAPHS.contains(&name) {
            Gap::Paragraph
        } else if LINES.contains(&name) {
            Gap::Line
        } else {
            return;
        };
        self.gap = self.gap.max(gap);
    }

    /// Between the cells of a row.
    fn separate(&mut self) {
        self.out.push_str(" |");
        self.gap = Gap::Space;
    }

    fn text(&mut self, text: &str) {
        if self.hidden.is_some() {
            return;
        }
        if self.as_written > 0 && !text.trim().is_empty() {
            self.close_gap();
            self.out.push_str(text);
            return;
        }
        for (n, word) in text.split(is_space).enumerate() {
            if n > 0 {
                self.gap = self.gap.max(Gap::Space);
            }
            if !word.is_empty() {
                self.close_gap();
                self.out.push_str(word);
            }
        }
    }

    fn close_gap(&mut self) {
        let gap = std::mem::take(&mut self.gap);
        if !self.out.is_empty() {
            self.out.push_str(match gap {
                Gap::None => "",
                Gap::Space => " ",
                Gap::Line => "\n",
                Gap::Paragraph => "\n\n",
            });
        }
        self.out.push_str(std::mem::take(&mut self.mark));
    }

    fn finish(mut self) -> String {
        if !self.out.is_empty() && !self.out.ends_with('\n') {
            self.out.push('\n');
        }
        self.out
    }
}

fn is_space(c: char) -> bool {
    c.is_ascii_whitespace() || c == '\u{a0}'
}
