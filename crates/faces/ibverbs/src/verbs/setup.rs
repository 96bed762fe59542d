//! What the library sets up before its first device: names of code, the log and the instruments.
use super::observers::observer::When;
use std::sync::Once;

/// Sets up all of it, once.
pub fn init() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        super::order::look();
        adverb_device::cq::set_code_namer(super::notify::name_code);
        adverb_hunt::set_namers(super::notify::module_of, super::notify::name_code_with_path);
        adverb_device::logging::start("adverb", log::LevelFilter::Error);
        // Last, because instruments log errors in their settings.
        super::observers::init(When::Use);
    });
}
