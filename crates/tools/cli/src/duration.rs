//! Times on the command line: 30s, 10m, 1h.
use std::time::Duration;

/// Parses a whole number of seconds, minutes or hours.
pub fn parse(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = match &text[digits.len()..] {
        "s" | "" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err("s, m and h are possible".into()),
    };
    let number: u64 =
        digits.parse().map_err(|_| "a number with s, m or h is expected".to_owned())?;
    number.checked_mul(unit).map(Duration::from_secs).ok_or_else(|| "the time is too long".into())
}
