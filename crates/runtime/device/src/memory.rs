//! The memory of this process that peers may map, as chosen by the environment.
use crate::error::Error;
use adverb_memory::{Pages, SharedFile};
use nix::errno::Errno;

/// May page-aligned allocations of the program lie in memory that peers map (`ADVERB_ADOPT`)?
///
/// # Errors
/// EINVAL for values other than `on` and `off`.
fn sharing_choice() -> Result<bool, Error> {
    match std::env::var("ADVERB_ADOPT").as_deref() {
        Err(_) | Ok("" | "on") => Ok(true),
        Ok("off") => Ok(false),
        Ok(other) => {
            Err(Error::invalid(format!("ADVERB_ADOPT is {other:?}"), "must be \"on\" or \"off\""))
        }
    }
}

/// Shares the program's page-aligned allocations from now on. Called as soon as a program shows
/// interest in a device, because most programs allocate their buffers before they open a device.
///
/// # Errors
/// EINVAL for an invalid value in the environment. If the kernel refuses, no memory is shared.
pub fn share_allocations() -> Result<(), Error> {
    let on = sharing_choice()?;
    match SharedFile::of_process() {
        Ok(file) => file.share_allocations(on),
        Err(e) => log::debug!("no memory of this process can be shared: {e}"),
    }
    Ok(())
}

/// Pages that peers may map; private pages if the kernel has none to share.
///
/// # Errors
/// ENOMEM and the like.
pub(crate) fn pages(len: usize) -> Result<Pages, Errno> {
    match SharedFile::of_process() {
        Ok(file) => Pages::shared(file, len, 1),
        Err(_) => Pages::new(len),
    }
}
