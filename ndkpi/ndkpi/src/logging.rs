//! The library's log lines: `adverb: …` on standard error. `ADVERB_LOG` sets the level.

use std::sync::Once;

use adverb_device::printable::printable_line;
use log::{LevelFilter, Log, Metadata, Record};

struct Stderr;

impl Log for Stderr {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }
    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let text = record.args().to_string();
            eprintln!(
                "adverb: {}: {}",
                record.level().as_str().to_ascii_lowercase(),
                printable_line(&text)
            );
        }
    }
    fn flush(&self) {}
}

/// Installs the logger once. A Rust program that links this crate may already have a logger, which
/// then stays. Without `ADVERB_LOG`, only errors are logged.
pub fn init() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if log::set_logger(&Stderr).is_ok() {
            let asked = std::env::var("ADVERB_LOG").ok();
            let level = asked.and_then(|v| v.trim().parse().ok()).unwrap_or(LevelFilter::Error);
            log::set_max_level(level);
        }
    });
}
