//! Bodies that are not what the protocol says.

use super::{Bad, MockAction, wire};
use axum::body::Bytes;

/// Brackets of a reply that is nothing else.
const DEPTH: usize = 100_000;

/// Bytes of a huge body, and of the one piece of it that is in memory.
const HUGE: usize = 50 << 20;
const PIECE: usize = 256 << 10;

/// A character that is cut off, and bytes that begin none.
const NO_UTF8: &[u8] = b"\xe2\x82 \xff\xfe";

pub(super) fn brackets() -> String {
    "[".repeat(DEPTH)
}

pub(super) fn nested(bad: &Bad<'_>) -> MockAction {
    let body = brackets();
    bad.sends(if bad.call.streams { format!("data: {body}\n\n{}", wire::DONE) } else { body })
}

/// One text that does not end for 50 MB.
pub(super) fn huge(bad: &Bad<'_>) -> MockAction {
    let (begin, end) = around(bad);
    let piece = Bytes::from(vec![b'x'; PIECE]);
    let pieces = std::iter::repeat_n(piece, HUGE / PIECE);
    let packets = [Bytes::from(begin)].into_iter().chain(pieces).chain([Bytes::from(end)]);
    bad.writes(super::content_type(bad.call), packets.collect())
}

pub(super) fn invalid_utf8(bad: &Bad<'_>) -> MockAction {
    let (begin, end) = around(bad);
    bad.sends([begin.as_bytes(), NO_UTF8, end.as_bytes()].concat())
}

/// A good reply before and behind a place in its text.
fn around(bad: &Bad<'_>) -> (String, String) {
    const PLACE: &str = "\u{1f99c}";
    let whole = if bad.call.streams {
        format!("{}{}", wire::event(&bad.frame.piece(PLACE)), wire::DONE)
    } else {
        bad.frame.says(PLACE, None).to_string()
    };
    match whole.split_once(PLACE) {
        Some((begin, end)) => (begin.to_owned(), end.to_owned()),
        None => (whole, String::new()),
    }
}

pub(super) fn duplicated(bad: &Bad<'_>) -> MockAction {
    let once = if bad.call.streams {
        bad.events(bad.answer).concat()
    } else {
        bad.frame.says(bad.answer, None).to_string()
    };
    bad.sends(once.repeat(2))
}

pub(super) fn html(bad: &Bad<'_>) -> MockAction {
    let sent = bad.call.header("authorization").unwrap_or_default();
    let page = format!(
        "<!DOCTYPE html>\n<html><head><title>Sign in</title></head>\n<body><p>authorization: {sent}</p></body></html>\n"
    );
    bad.writes("text/html; charset=utf-8", vec![page.into()])
}
