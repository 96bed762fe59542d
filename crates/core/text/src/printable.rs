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
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_as_characters() {
        let read = |mut bytes: &[u8]| {
            let mut all = String::new();
            while let Some((c, len)) = first_char(bytes) {
                all.push(c.unwrap_or('\u{fffd}'));
                bytes = &bytes[len..];
            }
            all
        };
        for text in
            ["", "plain", "äöü, 漢字 🦀\u{7f}\u{80}\u{7ff}\u{800}\u{ffff}\u{10000}\u{10ffff}"]
        {
            assert_eq!(read(text.as_bytes()), text);
        }
        // Overlong, half of a surrogate pair, too large, incomplete, and a continuation byte at the
        // beginning.
        for bytes in [
            &b"\xc0\x80"[..],
            b"\xe0\x80\x80",
            b"\xed\xa0\x80",
            b"\xf4\x90\x80\x80",
            b"\xe2\x82",
            b"\x9b",
        ] {
            assert_eq!(read(bytes), "\u{fffd}".repeat(bytes.len()));
        }
    }

    /// Compares with the standard library: every pair of bytes, and three and four bytes around
    /// each limit.
    #[test]
    fn bytes_are_characters_where_they_are_utf_8() {
        let first = [
            0, 0x7f, 0x80, 0xbf, 0xc0, 0xc1, 0xc2, 0xdf, 0xe0, 0xe1, 0xed, 0xef, 0xf0, 0xf4, 0xf5,
            0xff,
        ];
        let next = [0, 0x3f, 0x40, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xff];
        let agrees = |bytes: &[u8]| {
            let whole = (1..=bytes.len()).find_map(|len| core::str::from_utf8(&bytes[..len]).ok());
            let expected = match whole {
                Some(text) => (text.chars().next(), text.len()),
                None => (None, 1),
            };
            assert_eq!(first_char(bytes), Some(expected), "{bytes:x?}");
        };
        for a in 0..=255 {
            (0..=255).for_each(|b| agrees(&[a, b]));
        }
        for a in first {
            for (b, c) in next.iter().flat_map(|b| next.map(|c| (*b, c))) {
                agrees(&[a, b, c]);
                next.iter().for_each(|d| agrees(&[a, b, c, *d]));
            }
        }
    }

    /// Characters that control a terminal, by number: C0, DEL and C1; marks and embeddings of
    /// direction; separators; isolates; the byte order mark.
    const OBEYED: [(u32, u32); 7] = [
        (0, 0x1f),
        (0x7f, 0x9f),
        (0x61c, 0x61c),
        (0x200e, 0x200f),
        (0x2028, 0x202e),
        (0x2066, 0x2069),
        (0xfeff, 0xfeff),
    ];

    /// TRU-6: each character of the set is escaped, and no other character.
    #[test]
    fn tru_6_the_set_has_each_of_its_members_and_no_other() {
        for c in (0..=u32::from(char::MAX)).filter_map(char::from_u32) {
            let obeyed =
                OBEYED.iter().any(|(first, last)| (*first..=*last).contains(&u32::from(c)));
            assert_eq!(is_obeyed(c), obeyed, "{:x}", u32::from(c));
            let text = String::from(c);
            let line = printable_line(&text);
            let stays = !obeyed || c == '\t';
            if stays {
                assert_eq!(line, text);
            } else {
                assert_eq!(line, alloc::format!("\\u{:04x}", u32::from(c)));
            }
            assert_eq!(printable(&text), if c == '\n' { "\n" } else { &line });
        }
    }

    #[test]
    fn tru_6_what_a_terminal_obeys_is_written_out() {
        for (raw, shown) in [
            ("plain, äöü, 漢字 🦀", "plain, äöü, 漢字 🦀"),
            ("evil\u{1b}[31m", "evil\\u001b[31m"),
            ("\u{1b}]0;title\u{7}", "\\u001b]0;title\\u0007"),
            ("\u{9b}31m\u{7f}\r\u{8}", "\\u009b31m\\u007f\\u000d\\u0008"),
            ("a\u{202e}b\u{2066}c\u{2028}", "a\\u202eb\\u2066c\\u2028"),
        ] {
            assert_eq!(printable(raw), shown);
            assert_eq!(printable_line(raw), shown);
        }
        assert_eq!(printable("a\n\tb"), "a\n\tb");
        assert_eq!(printable_line("a\n\tb"), "a\\u000a\tb");
        assert!(matches!(printable("plain"), Cow::Borrowed(_)));
    }
}
