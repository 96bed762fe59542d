//! The library's log lines: `adverb: …` on standard error, as `ADVERB_LOG` says.

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
            eprintln!("adverb: {}: {}", record.level().as_str().to_ascii_lowercase(), printable_line(&text));
        }
    }
    fn flush(&self) {}
}

/// Installs the sink, once, unless the program (a Rust program that links this crate) has a logger
/// already. Errors alone are shown unless `ADVERB_LOG` names another level.
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
