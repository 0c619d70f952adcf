//! The map of done offsets above a commit, as text.
//!
//! What is written are the distances between the offsets that are *not* done, Rice-coded with the
//! parameter that makes them shortest. With parameter 0 that is a bit set, with a large one it is a list
//! of run lengths; in between it is close to the least that such a set can take.
//!
//! `1` (the version), then base64 of: checksum (4 bytes), Rice parameter (1), number of distances (2),
//! their codes. The checksum covers the committed offset too, so that metadata which somebody carried
//! over to another offset is not believed.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};

const VERSION: char = '1';
/// Checksum, parameter and count.
const HEADER_BYTES: usize = 7;
const CHECKSUM_BYTES: usize = 4;
const MAX_PARAMETER: u32 = 40;

/// What is done after a committed offset: everything before `end` that is not listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DoneMap {
    /// Ascending, after the committed offset.
    pub(super) incomplete: Vec<i64>,
    /// What lies here or after is not known to be done.
    pub(super) end: i64,
}

/// Whether any map with at most `holes` offsets that are not done within `span` offsets fits into
/// `max_chars`.
pub(super) fn fits(holes: usize, span: i64, max_chars: usize) -> bool {
    let (holes, span) = (holes as u64, span.unsigned_abs());
    let budget = bit_budget(max_chars);
    let count_fits = holes <= u64::from(u16::MAX);
    count_fits
        && (0..=MAX_PARAMETER).any(|k| {
            // The quotients of all distances together are at most the quotient of their sum.
            let distances = span.saturating_sub(holes);
            holes.saturating_mul(u64::from(k) + 1).saturating_add(distances >> k) <= budget
        })
}

fn bit_budget(max_chars: usize) -> u64 {
    let raw = max_chars.saturating_sub(1) / 4 * 3;
    (raw.saturating_sub(HEADER_BYTES) as u64).saturating_mul(8)
}

impl DoneMap {
    /// The map as text of at most `max_chars`; empty if nothing is done. A map that does not fit loses
    /// its upper end: those records would run again.
    pub(super) fn encode(&self, base: i64, max_chars: usize) -> String {
        let mut gaps = self.gaps(base);
        let parameter = (0..=MAX_PARAMETER).min_by_key(|k| cost(&gaps, *k)).unwrap_or(0);
        let mut left = bit_budget(max_chars);
        let fitting = gaps.iter().take(usize::from(u16::MAX)).take_while(|gap| {
            let bits = code_bits(**gap, parameter);
            let fits = bits <= left;
            left = left.saturating_sub(bits);
            fits
        });
        let fitting = fitting.count();
        gaps.truncate(fitting);
        while gaps.last() == Some(&0) {
            gaps.pop(); // the upper end is not done: there is nothing to say about it
        }
        let Ok(count) = u16::try_from(gaps.len()) else { return String::new() };
        if count == 0 {
            return String::new();
        }
        let mut body = vec![parameter as u8];
        body.extend(count.to_be_bytes());
        let mut bits = BitWriter { bytes: body, free: 0 };
        for gap in gaps {
            bits.push_rice(gap, parameter);
        }
        let mut raw = checksum(base, &bits.bytes).to_be_bytes().to_vec();
        raw.extend(bits.bytes);
        let mut text = String::from(VERSION);
        URL_SAFE_NO_PAD.encode_string(raw, &mut text);
        text
    }

    /// Reads what [`DoneMap::encode`] wrote for the same `base`. `None` if it is anything else.
    pub(super) fn decode(base: i64, text: &str) -> Option<Self> {
        let raw = URL_SAFE_NO_PAD.decode(text.strip_prefix(VERSION)?).ok()?;
        let (sum, body) = raw.split_first_chunk::<CHECKSUM_BYTES>()?;
        if u32::from_be_bytes(*sum) != checksum(base, body) {
            return None;
        }
        let (&[parameter, high, low], codes) = body.split_first_chunk::<3>()?;
        let parameter = u32::from(parameter);
        if parameter > MAX_PARAMETER {
            return None;
        }
        let mut bits = BitReader { bytes: codes, at: 0 };
        let mut incomplete = Vec::new();
        let mut last = base;
        for _ in 0..u16::from_be_bytes([high, low]) {
            let gap = i64::try_from(bits.rice(parameter)?).ok()?;
            last = last.checked_add(gap)?.checked_add(1)?;
            incomplete.push(last);
        }
        let end = incomplete.pop()?;
        Some(Self { incomplete, end })
    }

    /// How many done offsets lie before each that is not done, and before the end.
    fn gaps(&self, base: i64) -> Vec<u64> {
        let mut last = base;
        let upper = self.incomplete.iter().copied().filter(|o| *o < self.end).chain([self.end]);
        upper
            .map_while(|offset| {
                let gap = offset.checked_sub(last)?.checked_sub(1)?;
                last = offset;
                u64::try_from(gap).ok()
            })
            .collect()
    }
}

fn code_bits(gap: u64, parameter: u32) -> u64 {
    (gap >> parameter).saturating_add(u64::from(parameter) + 1)
}

fn cost(gaps: &[u64], parameter: u32) -> u64 {
    gaps.iter().fold(0, |sum: u64, gap| sum.saturating_add(code_bits(*gap, parameter)))
}

/// FNV-1a, 32 bit.
fn checksum(base: i64, body: &[u8]) -> u32 {
    base.to_be_bytes()
        .iter()
        .chain(body)
        .fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

struct BitWriter {
    bytes: Vec<u8>,
    /// Bits of the last byte that are not used.
    free: u32,
}

impl BitWriter {
    fn push(&mut self, bit: bool) {
        if self.free == 0 {
            self.bytes.push(0);
            self.free = 8;
        }
        self.free -= 1;
        if let Some(last) = self.bytes.last_mut() {
            *last |= u8::from(bit) << self.free;
        }
    }

    fn push_rice(&mut self, value: u64, parameter: u32) {
        for _ in 0..value >> parameter {
            self.push(true);
        }
        self.push(false);
        for bit in (0..parameter).rev() {
            self.push(value >> bit & 1 == 1);
        }
    }
}

struct BitReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl BitReader<'_> {
    fn next(&mut self) -> Option<bool> {
        let byte = self.bytes.get(self.at / 8)?;
        let bit = byte >> (7 - self.at % 8) & 1 == 1;
        self.at += 1;
        Some(bit)
    }

    fn rice(&mut self, parameter: u32) -> Option<u64> {
        let mut value = 0_u64;
        while self.next()? {
            value += 1;
        }
        for _ in 0..parameter {
            value = value << 1 | u64::from(self.next()?);
        }
        Some(value)
    }
}
