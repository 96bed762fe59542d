//! Lines about failed calls, at `warn` once a place.
//!
//! A place is a call and a reason: the text without its numbers. Programs may fail in the same way
//! a million times, so later lines of a place are at `info`.
//!
//! Some failures are no mistakes. These lines are at `info` too:
//!
//! - The device lacks a feature (EOPNOTSUPP, ENOSYS). Programs ask for features in this way.
//! - A queue is full, and the program posts again later.
//! - The failure was injected, which has a line of its own.
use crate::error::{Error, Why};
use adverb_engine::Cause;
use nix::errno::Errno;
use std::fmt::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};

/// Places that had their line. When all are taken, further places have their lines at `info`.
static TOLD: [AtomicU64; 128] = [const { AtomicU64::new(0) }; 128];

/// Logs why a call fails.
pub fn tell(call: &str, e: &Error) {
    let line = format_args!("{call} fails: {e}");
    if is_mistake(e) {
        tell_line(line);
    } else {
        log::info!("{line}");
    }
}

/// Logs a line about a mistake of the program.
pub fn tell_line(line: fmt::Arguments<'_>) {
    let first = log::log_enabled!(log::Level::Warn) && is_new(&TOLD, line);
    log::log!(if first { log::Level::Warn } else { log::Level::Info }, "{line}");
}

fn is_mistake(e: &Error) -> bool {
    let asks = [Errno::EOPNOTSUPP, Errno::ENOSYS].map(|errno| errno as i32);
    !asks.contains(&e.errno())
        && !matches!(e.why(), Why::Cause(Cause::QueueFull { .. } | Cause::Injected))
}

/// Is this the first line of its place? Allocates nothing, because calls also fail for lack of
/// memory.
fn is_new(told: &[AtomicU64], line: fmt::Arguments<'_>) -> bool {
    let mut place = PlaceHash::new();
    // The hash takes every text.
    let _ = place.write_fmt(line);
    told.iter()
        .find_map(|word| {
            match word.compare_exchange(0, place.hash, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => Some(true),
                Err(known) => (known == place.hash).then_some(false),
            }
        })
        .unwrap_or(false)
}

/// The hash (FNV-1a) of a text without its numbers. Never 0.
struct PlaceHash {
    hash: u64,
    in_number: bool,
}

impl PlaceHash {
    fn new() -> Self {
        PlaceHash { hash: 0xcbf2_9ce4_8422_2325, in_number: false }
    }
}

impl Write for PlaceHash {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            // The letters after a digit belong to a hexadecimal number.
            self.in_number =
                byte.is_ascii_digit() || self.in_number && byte.is_ascii_alphanumeric();
            if !self.in_number {
                self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3) | 1 << 63;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_call_and_a_reason_without_numbers() {
        let told = [const { AtomicU64::new(0) }; 3];
        let is_new = |line: &str| super::is_new(&told, format_args!("{line}"));
        assert!(is_new("ibv_reg_mr fails: 4096 bytes at 0x7f00ab cannot be read"));
        assert!(!is_new("ibv_reg_mr fails: 16 bytes at 0x10c cannot be read"));
        assert!(is_new("ibv_rereg_mr fails: 16 bytes at 0x10c cannot be read"));
        assert!(is_new("ibv_reg_mr fails: 16 bytes at 0x10c cannot be written"));
        assert!(!is_new("ibv_reg_mr fails: there is no place left in the table"));
        assert!(!is_new("ibv_reg_mr fails: 4096 bytes at 0x7f00ab cannot be read"));
    }

    #[test]
    fn what_programs_ask_for_is_no_mistake() {
        let full = Error::from(Cause::QueueFull { queue: "the send queue", depth: 4 });
        assert!(!is_mistake(&full));
        assert!(!is_mistake(&Error::unsupported("a feature")));
        assert!(!is_mistake(&Error::injected(Errno::EINVAL)));
        assert!(is_mistake(&Error::new(Errno::ENOMEM, "no memory")));
        assert!(is_mistake(&Error::invalid("an argument", "a rule")));
    }
}
