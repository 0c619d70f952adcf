use crate::pages::{damaged, pdf, scan};
use starling_inputs::{Format, Text, TextLimits, text_of};
use std::time::Duration;

fn read(name: &str, bytes: &[u8]) -> Result<Text, String> {
    text_of(name, bytes, TextLimits::default()).map_err(|fault| fault.to_string())
}

fn utf16(text: &str, bytes_of: fn(u16) -> [u8; 2], mark: [u8; 2]) -> Vec<u8> {
    mark.into_iter().chain(text.encode_utf16().flat_map(bytes_of)).collect()
}

#[test]
fn texts_come_in_utf_8_and_marked_utf_16() {
    let text = "Zürich 漢字 👩‍🚀\r\nend";
    for (name, bytes) in [
        ("plain", text.as_bytes().to_vec()),
        ("with a mark", [b"\xef\xbb\xbf", text.as_bytes()].concat()),
        ("little", utf16(text, u16::to_le_bytes, [0xff, 0xfe])),
        ("big", utf16(text, u16::to_be_bytes, [0xfe, 0xff])),
    ] {
        assert_eq!(read("a.txt", &bytes).unwrap().text, text, "{name}");
    }
}

#[test]
fn what_is_no_text_is_named_with_the_reason() {
    let lone = utf16("", u16::to_le_bytes, [0xff, 0xfe]).into_iter().chain([0x00, 0xd8]).collect::<Vec<u8>>();
    for (bytes, says) in [
        (b"caf\xe9 au lait".to_vec(), "neither UTF-8 nor UTF-16 with a byte order mark: byte 3"),
        (b"\xff\xfea".to_vec(), "ends in the middle of a character"),
        (lone, "0xd800 is no part of a character"),
        (b"PK\x03\x04\x14\0\0\0".to_vec(), "an archive, such as .docx"),
        (b"a\0b".to_vec(), "NUL character at byte 1"),
        (b" \n\t".to_vec(), "has no text in it"),
        (b"".to_vec(), "has no text in it"),
    ] {
        let why = read("a.txt", &bytes).unwrap_err();
        assert!(why.contains(says), "{why}");
    }
    let small = TextLimits { bytes: 3, ..TextLimits::default() };
    let why = text_of("a.txt", b"four", small).unwrap_err().to_string();
    assert_eq!(why, "has 4 bytes of text, at most 3 are taken");
}

#[test]
fn the_name_says_the_format_and_a_beginning_helps() {
    for (name, bytes, format, media_type) in [
        ("a.MD", "x", Format::Markdown, "text/markdown"),
        ("a.csv", "x", Format::Csv, "text/csv"),
        ("a.tsv", "x", Format::Tsv, "text/tab-separated-values"),
        ("a.json", "x", Format::Json, "application/json"),
        ("a.ndjson", "x", Format::JsonLines, "application/jsonl"),
        ("a.htm", "x", Format::Html, "text/markdown"),
        ("saved", "\n<!DOCTYPE HTML><p>x", Format::Html, "text/markdown"),
        ("letter.txt", "%PDF-1.7", Format::Pdf, "text/plain"),
        ("Makefile", "x", Format::Plain, "text/plain"),
    ] {
        let found = Format::of(name, bytes.as_bytes());
        assert_eq!((found, found.media_type()), (format, media_type), "{name}");
    }
}

#[test]
fn of_a_page_remains_what_a_reader_sees() {
    let page = "<!doctype html><html><head><title>The page</title><style>p { x: 'y' }</style>\
        <script>if (a < b) { document.write('<p>no</p>') }</script></head><body>\
        <h1>Big &amp; <em>bold</em></h1>\n<p>One   line,\n  and <b>bo</b>ld.</p><p>Two<br>lines</p>\
        <ul><li>first<li>second</ul><table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td></tr></table>\
        <pre>as\n  it is</pre><!-- nobody sees this --><select><option>no</select><p>caf&eacute;</div></p>";
    let text = read("page.html", page.as_bytes()).unwrap().text;
    assert_eq!(
        text,
        "# The page\n\n# Big & bold\n\nOne line, and bold.\n\nTwo\nlines\n\n- first\n- second\n\na | b\n1 | 2\n\n\
         as\n  it is\n\ncafé\n"
    );
}

#[test]
fn a_page_of_any_depth_and_disorder_is_read() {
    let deep = format!("{}core{}", "<div><b>".repeat(100_000), "</i></table>".repeat(100_000));
    assert_eq!(read("deep.html", deep.as_bytes()).unwrap().text, "core\n");
    let why = read("empty.html", b"<script>only this</script>").unwrap_err();
    assert_eq!(why, "has no text in it");
}

#[test]
fn a_pdf_gives_its_pages_in_order_and_says_what_is_missing() {
    let read = read("a.pdf", &pdf(&["First page", "", "Third page"])).unwrap();
    assert_eq!(read.format, Format::Pdf);
    let (first, third) = (read.text.find("First page").unwrap(), read.text.find("Third page").unwrap());
    assert!(first < third, "{:?}", read.text);
    assert_eq!(read.missing, ["page 2 without text, perhaps scans or pictures"]);
}

#[test]
fn a_pdf_without_text_or_with_damage_is_named_and_never_a_panic() {
    let why = read("scan.pdf", &scan(3)).unwrap_err();
    assert!(why.contains("a PDF of 3 pages without text, probably scans"), "{why}");
    for (name, bytes) in damaged() {
        // Some damage is mended by the reader; what matters is that it comes back.
        if let Err(why) = read("x.pdf", &bytes) {
            assert!(why.contains("PDF"), "{name}: {why}");
        }
    }
    let patient = TextLimits { time: Duration::ZERO, ..TextLimits::default() };
    let why = text_of("slow.pdf", &pdf(&["x"; 3]), patient).unwrap_err().to_string();
    assert!(why.contains("takes longer than 0 s"), "{why}");
}
