//! Server-sent events, decoded from bytes as they come.
//!
//! Works on bytes and cuts at line ends only, so that a character or a CR LF that is split between
//! two chunks is nothing special. One event is bounded.

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SseEvent {
    /// Its `event` field; empty mostly.
    pub(super) name: String,
    /// Its `data` lines.
    pub(super) data: String,
}

/// The stream is no event stream that can be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SseError {
    #[error("the stream is not UTF-8")]
    NotUtf8,
    #[error("one event of the stream is longer than {0} bytes")]
    TooLong(usize),
}

/// The decoder. Feed it chunks; take events until there is none.
pub(super) struct SseDecoder {
    buffer: Vec<u8>,
    /// Where the next line begins.
    line_start: usize,
    /// Up to where there is no line end, so that a long line is searched once.
    searched: usize,
    /// The last line ended with CR at the end of a chunk: a LF that follows belongs to it.
    after_cr: bool,
    first_line: bool,
    event: SseEvent,
    has_fields: bool,
    max_event_bytes: usize,
}

impl SseDecoder {
    pub(super) fn new(max_event_bytes: usize) -> SseDecoder {
        SseDecoder {
            buffer: Vec::new(),
            line_start: 0,
            searched: 0,
            after_cr: false,
            first_line: true,
            event: SseEvent::default(),
            has_fields: false,
            max_event_bytes,
        }
    }

    pub(super) fn feed(&mut self, chunk: &[u8]) {
        // Drop what was read, once a chunk: moving the rest is cheap then.
        self.buffer.drain(..self.line_start);
        self.searched -= self.line_start;
        self.line_start = 0;
        self.buffer.extend_from_slice(chunk);
    }

    /// The next whole event.
    pub(super) fn next_event(&mut self) -> Result<Option<SseEvent>, SseError> {
        while let Some((start, end)) = self.next_line() {
            let line = self.buffer.get(start..end).unwrap_or_default();
            let mut line = std::str::from_utf8(line).map_err(|_| SseError::NotUtf8)?;
            if std::mem::take(&mut self.first_line) {
                line = line.strip_prefix('\u{feff}').unwrap_or(line);
            }
            if line.is_empty() {
                if std::mem::take(&mut self.has_fields) {
                    return Ok(Some(std::mem::take(&mut self.event)));
                }
                continue;
            }
            let (field, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "data" => {
                    if !self.event.data.is_empty() {
                        self.event.data.push('\n');
                    }
                    self.event.data.push_str(value);
                    self.has_fields = true;
                }
                "event" => {
                    self.event.name = value.to_owned();
                    self.has_fields = true;
                }
                // Comments (an empty field name), ids and reconnection times.
                _ => {}
            }
            if self.event.data.len() > self.max_event_bytes {
                return Err(SseError::TooLong(self.max_event_bytes));
            }
        }
        if self.buffer.len() - self.line_start > self.max_event_bytes {
            return Err(SseError::TooLong(self.max_event_bytes));
        }
        Ok(None)
    }

    /// The end of the stream has come; an event whose blank line is missing is given out.
    pub(super) fn finish(&mut self) -> Result<Option<SseEvent>, SseError> {
        self.feed(b"\n\n");
        self.next_event()
    }

    /// Start and end of the next whole line.
    fn next_line(&mut self) -> Option<(usize, usize)> {
        if self.after_cr && self.line_start < self.buffer.len() {
            self.after_cr = false;
            if self.buffer.get(self.line_start) == Some(&b'\n') {
                self.line_start += 1;
                self.searched = self.searched.max(self.line_start);
            }
        }
        let tail = self.buffer.get(self.searched..).unwrap_or_default();
        let Some(offset) = tail.iter().position(|b| matches!(b, b'\n' | b'\r')) else {
            self.searched = self.buffer.len();
            return None;
        };
        let end = self.searched + offset;
        let start = self.line_start;
        self.after_cr = self.buffer.get(end) == Some(&b'\r');
        self.line_start = end + 1;
        self.searched = self.line_start;
        Some((start, end))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn decode(bytes: &[u8], chunk: usize) -> Vec<(String, String)> {
        let mut decoder = SseDecoder::new(1000);
        let mut events = vec![];
        for piece in bytes.chunks(chunk) {
            decoder.feed(piece);
            while let Some(event) = decoder.next_event().unwrap() {
                events.push((event.name, event.data));
            }
        }
        if let Some(event) = decoder.finish().unwrap() {
            events.push((event.name, event.data));
        }
        events
    }

    #[test]
    fn every_line_end_and_every_cut_gives_the_same_events() {
        let text = "\u{feff}: hello\n\ndata: grüß 🦜\n\nid: 1\nretry: 3\nevent: error\ndata:{\"a\":1}\ndata:  b\n\n\n: keep-alive\n\nevent: lonely\n\ndata: last";
        let expected: Vec<(String, String)> =
            [("", "grüß 🦜"), ("error", "{\"a\":1}\n b"), ("lonely", ""), ("", "last")]
                .map(|(a, b)| (a.to_owned(), b.to_owned()))
                .to_vec();
        for end in ["\n", "\r\n", "\r"] {
            let bytes = text.replace('\n', end).into_bytes();
            for chunk in [1, 2, 3, 7, 1000] {
                assert_eq!(decode(&bytes, chunk), expected, "{end:?} by {chunk}");
            }
        }
    }

    #[test]
    fn an_endless_event_is_refused() {
        let mut decoder = SseDecoder::new(100);
        decoder.feed(&[b'x'; 101]);
        assert_eq!(decoder.next_event(), Err(SseError::TooLong(100)));
        let mut decoder = SseDecoder::new(100);
        decoder.feed("data: 0123456789\n".repeat(11).as_bytes());
        assert_eq!(decoder.next_event(), Err(SseError::TooLong(100)));
        let mut decoder = SseDecoder::new(100);
        decoder.feed(b"data: \xff\xfe\n\n");
        assert_eq!(decoder.next_event(), Err(SseError::NotUtf8));
    }
}
