//! Fault specifications: an accepted text is written in the same way again.
use adverb_device::faults::Spec;

/// The text of `ADVERB_FAULT`.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match text.parse::<Spec>() {
        Ok(spec) => {
            let written = spec.to_string();
            assert_eq!(written.parse(), Ok(spec), "{written:?}");
        }
        Err(why) => assert!(!why.to_string().is_empty()),
    }
}
