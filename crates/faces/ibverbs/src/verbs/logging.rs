//! The library's own log lines: `adverb: …` on standard error, at the level of `ADVERB_LOG`.
use super::observers::observer::When;
use adverb_device::printable::printable_line;
use adverb_os::Uncancelled;
use log::{LevelFilter, Log, Metadata, Record};
use std::io::Write;
use std::sync::Once;

/// Writes lines to standard error.
struct Stderr;

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
            let line = format!("adverb: {level}: {}\n", printable_line(&text));
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
    }
    fn flush(&self) {}
}

static SINK: Stderr = Stderr;

/// The level for a value of `ADVERB_LOG`: only errors, unless the value names another level.
fn level(value: Option<&str>) -> LevelFilter {
    value.and_then(|v| v.trim().parse().ok()).unwrap_or(LevelFilter::Error)
}

/// Tells whether the value is a level. An empty value counts too: it asks for no particular level.
fn is_level(value: &str) -> bool {
    value.trim().is_empty() || value.trim().parse::<LevelFilter>().is_ok()
}

/// Installs the sink, once. If the program already has a logger (a Rust program that links this
/// crate), that logger stays.
pub fn init() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        super::order::look();
        adverb_device::cq::set_code_namer(super::notify::name_code);
        adverb_hunt::set_namers(super::notify::module_of, super::notify::name_code_with_path);
        if log::set_logger(&SINK).is_ok() {
            let asked = std::env::var("ADVERB_LOG").ok();
            log::set_max_level(level(asked.as_deref()));
            if let Some(text) = asked.filter(|text| !is_level(text)) {
                log::error!(
                    "ADVERB_LOG is {text:?}: off, error, warn, info, debug and trace are possible"
                );
            }
        }
        // Last, because instruments log errors in their settings.
        super::observers::init(When::Use);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn level_is_error_unless_another_is_named() {
        for (value, expected) in [
            (None, LevelFilter::Error),
            (Some("off"), LevelFilter::Off),
            (Some("Debug"), LevelFilter::Debug),
            (Some(" trace "), LevelFilter::Trace),
            (Some("nonsense"), LevelFilter::Error),
        ] {
            assert_eq!(level(value), expected, "{value:?}");
            assert_eq!(is_level(value.unwrap_or_default()), value != Some("nonsense"), "{value:?}");
        }
    }
}
