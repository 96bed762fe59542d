//! Interprets the question: a number, a name, or a line that contains a number or describes a
//! cause.
use super::mlx5::{self, Code};
use adverb_device::catalogue::{self, CatalogueEntry};

/// The known explanations.
#[derive(Default)]
pub struct Found {
    pub entries: Vec<&'static CatalogueEntry>,
    pub mlx5: Vec<&'static Code>,
}

/// The words that programs print before the number, in lower case. UCX writes `vend 0x81`, perftest
/// `syndrom 0x81`, NCCL `vendor err 129`.
const ANNOUNCED: &[&str] = &[
    "vendor_error",
    "vendor error",
    "vendor_err",
    "vendor err",
    "vendor syndrome",
    "vend ",
    "vend:",
    "syndrom",
];

pub fn find(what: &str) -> Found {
    let what = what.trim();
    if let Some(number) = number(what) {
        return by_number(number);
    }
    if let Some(entry) = catalogue::all().find(|e| e.name.eq_ignore_ascii_case(what)) {
        return Found { entries: vec![entry], ..Found::default() };
    }
    let words: Vec<_> = catalogue::in_line(what).collect();
    if !words.is_empty() {
        // A line of Adverb's own log: the number in the line adds nothing.
        return Found { entries: words, ..Found::default() };
    }
    announced(what).map(by_number).unwrap_or_default()
}

fn by_number(number: u32) -> Found {
    Found {
        entries: catalogue::by_code(number).into_iter().collect(),
        mlx5: mlx5::by_number(number).collect(),
    }
}

/// Parses a number as users write numbers: `0x81` or `129`.
fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// The number after the first announcing word.
fn announced(line: &str) -> Option<u32> {
    let line = line.to_lowercase();
    ANNOUNCED.iter().find_map(|word| {
        line.match_indices(word).find_map(|(at, _)| {
            // Skips the rest of the word (`syndrome`, `vendor_error`), then the characters before
            // the number.
            let rest =
                line[at + word.len()..].trim_start_matches(|c: char| c.is_ascii_alphabetic());
            let rest = rest.trim_start_matches([' ', ':', '=', '(', '[', '"', '\'']);
            number(rest.split(|c: char| !c.is_ascii_alphanumeric()).next()?)
        })
    })
}
