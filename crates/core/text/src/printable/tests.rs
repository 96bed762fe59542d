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
    for text in ["", "plain", "äöü, 漢字 🦀\u{7f}\u{80}\u{7ff}\u{800}\u{ffff}\u{10000}\u{10ffff}"]
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
        0, 0x7f, 0x80, 0xbf, 0xc0, 0xc1, 0xc2, 0xdf, 0xe0, 0xe1, 0xed, 0xef, 0xf0, 0xf4, 0xf5, 0xff,
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
        let obeyed = OBEYED.iter().any(|(first, last)| (*first..=*last).contains(&u32::from(c)));
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
