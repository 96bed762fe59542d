//! The library's own log lines: `adverb: …` on standard error, as `ADVERB_LOG` says.
use super::observers::observer::When;
use adverb_device::printable::printable_line;
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
            // One write a line, so that those of several threads and processes do not mix.
            let level = record.level().as_str().to_ascii_lowercase();
            let text = record.args().to_string();
            let line = format!("adverb: {level}: {}\n", printable_line(&text));
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
    }
    fn flush(&self) {}
}

static SINK: Stderr = Stderr;

/// The level of a value of `ADVERB_LOG`; errors alone unless it names another.
fn level(value: Option<&str>) -> LevelFilter {
    value.and_then(|v| v.trim().parse().ok()).unwrap_or(LevelFilter::Error)
}

/// Whether a value says what it means; none says that nothing is wanted in particular.
fn is_level(value: &str) -> bool {
    value.trim().is_empty() || value.trim().parse::<LevelFilter>().is_ok()
}

/// Installs the sink, once, unless the program (a Rust program that links this crate) has a logger
/// already.
pub fn init() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        super::order::look();
        adverb_device::cq::set_code_namer(super::notify::name_code);
        adverb_device::cq::hunt::set_namers(super::notify::module_of, super::notify::name_code_with_path);
        if log::set_logger(&SINK).is_ok() {
            let asked = std::env::var("ADVERB_LOG").ok();
            log::set_max_level(level(asked.as_deref()));
            if let Some(text) = asked.filter(|text| !is_level(text)) {
                log::error!("ADVERB_LOG is {text:?}: off, error, warn, info, debug and trace are possible");
            }
        }
        // Last, as instruments log what is wrong with their settings.
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
