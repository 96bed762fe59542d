//! The capture file of a process: the packets on the link, for Wireshark.
//!
//! A capture is requested with [`set`], or with the environment variable `ADVERB_CAPTURE`, before
//! the process first opens a device. Existing files are never written. If the file exists, the
//! process puts its process number before the extension. This happens to the second process started
//! with the same variable.
use crate::error::Error;
use crate::started::choose;
use adverb_link::Capture;
use nix::sys::resource::{Resource, getrlimit};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

pub use adverb_link::capture::make_room;

/// The environment variable.
pub const VARIABLE: &str = "ADVERB_CAPTURE";

/// The argument of [`set`].
static CHOSEN: OnceLock<PathBuf> = OnceLock::new();

/// Captures to a file from the first opened device on, whatever `ADVERB_CAPTURE` says.
///
/// # Errors
/// EBUSY if a device was opened already, or a capture was already chosen.
pub fn set(path: impl Into<PathBuf>) -> Result<(), Error> {
    choose(&CHOSEN, path.into(), "a capture is")
}

/// Begins the requested capture. A failure is logged and does no other harm.
pub(crate) fn begin() -> Option<Arc<Capture>> {
    let chosen = CHOSEN.get().cloned().or_else(|| adverb_os::chosen(VARIABLE).map(PathBuf::from));
    let Some(path) = chosen.filter(|path| !path.as_os_str().is_empty()) else {
        return traced();
    };
    let limit = getrlimit(Resource::RLIMIT_FSIZE).map_or(u64::MAX, |(soft, _)| soft);
    match Capture::create(&path, limit) {
        Ok(capture) => {
            announce(&path, capture.path());
            Some(Arc::new(capture))
        }
        Err(error) => {
            log::error!("packets are not captured: {} cannot be created: {error}", path.display());
            traced()
        }
    }
}

/// A traced process records its packets in the trace.
fn traced() -> Option<Arc<Capture>> {
    if let Some(directory) = adverb_os::chosen(adverb_trace::VARIABLE).filter(|v| !v.is_empty()) {
        adverb_trace::begin(Path::new(&directory));
    }
    adverb_trace::on().then(|| Arc::new(Capture::of_trace()))
}

fn announce(asked: &Path, made: &Path) {
    if asked == made {
        log::info!("packets are captured in {}", made.display());
    } else {
        let (asked, made) = (asked.display(), made.display());
        log::warn!(
            "{asked} exists: the packets of process {} are captured in {made}",
            std::process::id()
        );
    }
}
