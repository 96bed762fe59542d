//! The log of the command itself, on standard error. The drop-in library has a separate log.
use crate::out::errln;
use adverb_device::printable::printable_line;
use log::{LevelFilter, Log, Metadata, Record};

struct Stderr(&'static str);

impl Log for Stderr {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }
    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let text = record.args().to_string();
            errln!(
                "{}: {}: {}",
                self.0,
                record.level().as_str().to_lowercase(),
                printable_line(&text)
            );
        }
    }
    fn flush(&self) {}
}

/// Writes log records to standard error under `name`. The level is the level in `ADVERB_LOG`, or
/// else `default`.
pub fn start(name: &'static str, default: LevelFilter) {
    let asked = std::env::var("ADVERB_LOG").ok();
    let level = asked.as_deref().and_then(|text| text.parse().ok()).unwrap_or(default);
    if log::set_logger(Box::leak(Box::new(Stderr(name)))).is_ok() {
        log::set_max_level(level);
    }
    if let Some(text) = asked.filter(|text| text.parse::<LevelFilter>().is_err()) {
        log::warn!("ADVERB_LOG is {text:?}: error, warn, info, debug, trace and off are known");
    }
}
