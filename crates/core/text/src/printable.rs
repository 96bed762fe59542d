//! Makes text from outside safe for a terminal.
//!
//! Names of files, interfaces and processes, and messages from another host, may contain any bytes.
//! An escape sequence in them could control the terminal: change colours or titles, or hide other
//! text. So all log lines and all output of the command pass through this crate, each at the single
//! place that writes it.

extern crate alloc;

use alloc::borrow::Cow;
use alloc::string::String;
use core::fmt::Write;

/// Writes every character that controls a terminal as `\uXXXX`, except for newline and tab. JSON
/// text stays JSON with the same meaning.
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, |c| matches!(c, '\n' | '\t'))
}

/// The same for a single line: a newline in a name does not start another line.
#[must_use]
pub fn printable_line(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c == '\t')
}

fn escaped(text: &str, stays: impl Fn(char) -> bool) -> Cow<'_, str> {
    let obeyed = |c: char| is_obeyed(c) && !stays(c);
    if !text.contains(obeyed) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if obeyed(c) {
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// Is this a control character (C0, DEL, C1), a line separator, or a character that changes the
/// text direction (Unicode 15, UAX #9)? All such characters are in the basic plane.
#[inline]
#[must_use]
pub fn is_obeyed(c: char) -> bool {
    let directs = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || directs || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}')
}

/// Decodes the first character of bytes that should be UTF-8. Returns the character and its length;
/// for invalid bytes, no character and a length of 1. Returns `None` at the end. Neither allocates
/// nor panics, for callers that must not.
#[inline]
#[must_use]
pub fn first_char(bytes: &[u8]) -> Option<(Option<char>, usize)> {
    let first = *bytes.first()?;
    let (len, bits, least) = match first {
        0..=0x7f => (1, first, 0),
        0xc2..=0xdf => (2, first & 0x1f, 0x80),
        0xe0..=0xef => (3, first & 0xf, 0x800),
        0xf0..=0xf4 => (4, first & 7, 0x1_0000),
        _ => return Some((None, 1)),
    };
    let more =
        |code: u32, byte: &u8| (byte & 0xc0 == 0x80).then_some(code << 6 | u32::from(byte & 0x3f));
    let code = bytes.get(1..len).and_then(|rest| rest.iter().try_fold(u32::from(bits), more));
    let found = code.filter(|code| *code >= least).and_then(char::from_u32);
    Some((found, if found.is_some() { len } else { 1 }))
}

#[cfg(test)]
mod tests;
