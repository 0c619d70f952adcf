//! From bytes to characters. Only what says or shows what it is is taken: a guess would be wrong in silence.

/// Reads UTF-8 with or without a byte order mark, and UTF-16 with one. The mark is no part of the text.
///
/// # Errors
/// Says what the bytes are not, and where.
pub(crate) fn decode(bytes: &[u8]) -> Result<String, String> {
    let text = match bytes {
        [0xef, 0xbb, 0xbf, rest @ ..] => utf8(rest)?,
        [0xff, 0xfe, rest @ ..] => utf16(rest, u16::from_le_bytes)?,
        [0xfe, 0xff, rest @ ..] => utf16(rest, u16::from_be_bytes)?,
        [b'P', b'K', 3, 4, ..] => {
            return Err(
                "is an archive, such as .docx, .xlsx or .zip: save it as text, CSV, HTML or PDF".to_owned()
            );
        }
        _ => utf8(bytes)?,
    };
    match text.find('\0') {
        Some(at) => Err(format!("is no text: there is a NUL character at byte {at}")),
        None => Ok(text),
    }
}

fn utf8(bytes: &[u8]) -> Result<String, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let at = error.valid_up_to();
        format!("is neither UTF-8 nor UTF-16 with a byte order mark: byte {at} is no part of a character")
    })?;
    Ok(text.to_owned())
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Result<String, String> {
    if !bytes.len().is_multiple_of(2) {
        return Err("begins as UTF-16, but ends in the middle of a character".to_owned());
    }
    let units = bytes.chunks_exact(2).map(|pair| unit([pair[0], pair[1]]));
    let read = char::decode_utf16(units).collect::<Result<String, _>>();
    read.map_err(|error| {
        format!("begins as UTF-16, but {:#06x} is no part of a character", error.unpaired_surrogate())
    })
}
