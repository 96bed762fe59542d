//! What was asked: a number, a name, or a line that holds one or tells of a cause in words.
use super::mlx5::{self, Code};
use adverb_device::catalogue::{self, Entry};

/// What is known of it.
pub struct Found {
    pub entries: Vec<&'static Entry>,
    pub mlx5: Vec<&'static Code>,
}

/// How programs announce the number, in small letters. UCX writes `vend 0x81`, perftest `syndrom
/// 0x81`, NCCL `vendor err 129`.
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
        return Found { entries: vec![entry], mlx5: Vec::new() };
    }
    let words: Vec<_> = catalogue::in_line(what).collect();
    if !words.is_empty() {
        // Adverb's own line: its number says no more.
        return Found { entries: words, mlx5: Vec::new() };
    }
    announced(what).map_or(Found { entries: Vec::new(), mlx5: Vec::new() }, by_number)
}

fn by_number(number: u32) -> Found {
    Found {
        entries: catalogue::by_code(number).into_iter().collect(),
        mlx5: mlx5::by_number(number).collect(),
    }
}

/// A number as people write them: `0x81` or `129`.
fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// The number behind the first word that announces one.
fn announced(line: &str) -> Option<u32> {
    let line = line.to_lowercase();
    ANNOUNCED.iter().find_map(|word| {
        line.match_indices(word).find_map(|(at, _)| {
            // The rest of the word (`syndrome`, `vendor_error`), then signs between it and the
            // number.
            let rest = line[at + word.len()..].trim_start_matches(|c: char| c.is_ascii_alphabetic());
            let rest = rest.trim_start_matches([' ', ':', '=', '(', '[', '"', '\'']);
            number(rest.split(|c: char| !c.is_ascii_alphanumeric()).next()?)
        })
    })
}
