//! The log on standard error, of libraries and of the command. `ADVERB_LOG` sets the level.
use crate::printable::printable_line;
use adverb_os::Uncancelled;
use log::{LevelFilter, Log, Metadata, Record};
use std::io::Write;
use std::sync::OnceLock;

/// Writes lines to standard error, under a name.
struct Stderr(&'static str);

impl Log for Stderr {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }
    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            // A call of the data path may log while it holds locks. A write is a cancellation
            // point.
            let _uncancelled = Uncancelled::throughout();
            // Each line is one write, so that lines of several threads and processes do not mix.
            let level = record.level().as_str().to_ascii_lowercase();
            let text = record.args().to_string();
            let line = format!("{}: {level}: {}\n", self.0, printable_line(&text));
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
    }
    fn flush(&self) {}
}

/// The level for a value of `ADVERB_LOG`, and whether the value is a mistake. An empty value asks
/// for no particular level.
fn level(value: Option<&str>, default: LevelFilter) -> (LevelFilter, bool) {
    match value.map(str::trim) {
        None | Some("") => (default, false),
        Some(text) => text.parse().map_or((LevelFilter::Error, true), |level| (level, false)),
    }
}

/// Writes log records to standard error under `name`. The level is the level in `ADVERB_LOG`, or
/// else `default`. If the program already has a logger (a Rust program that links the library),
/// that logger stays.
pub fn start(name: &'static str, default: LevelFilter) {
    static LOGGER: OnceLock<Stderr> = OnceLock::new();
    if log::set_logger(LOGGER.get_or_init(|| Stderr(name))).is_ok() {
        let asked = std::env::var("ADVERB_LOG").ok();
        let (level, wrong) = level(asked.as_deref(), default);
        log::set_max_level(level);
        if wrong {
            let words = "off, error, warn, info, debug and trace are possible";
            log::error!("ADVERB_LOG is {:?}: {words}", asked.unwrap_or_default());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_is_the_default_unless_another_is_named() {
        for (value, expected) in [
            (None, (LevelFilter::Warn, false)),
            (Some(""), (LevelFilter::Warn, false)),
            (Some("off"), (LevelFilter::Off, false)),
            (Some("Debug"), (LevelFilter::Debug, false)),
            (Some(" trace "), (LevelFilter::Trace, false)),
            (Some("nonsense"), (LevelFilter::Error, true)),
        ] {
            assert_eq!(level(value, LevelFilter::Warn), expected, "{value:?}");
        }
    }
}
