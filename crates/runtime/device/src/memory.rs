//! Which of this process's memory peers may map, as the environment asks for it.
use crate::error::Error;
use adverb_memory::{Pages, SharedFile};
use nix::errno::Errno;

/// May page-aligned allocations of the program lie where peers map them (`ADVERB_ADOPT`)?
///
/// # Errors
/// EINVAL for anything but `on` and `off`.
fn sharing_choice() -> Result<bool, Error> {
    match std::env::var("ADVERB_ADOPT").as_deref() {
        Err(_) | Ok("" | "on") => Ok(true),
        Ok("off") => Ok(false),
        Ok(other) => Err(Error::invalid(format!("ADVERB_ADOPT is {other:?}"), "it is \"on\" or \"off\"")),
    }
}

/// Has the program's page-aligned allocations shared from now on. Called as soon as a program shows
/// that it wants a device: most allocate their buffers before they open one.
///
/// # Errors
/// EINVAL for an environment that says something else than it may. Where the kernel refuses,
/// nothing is shared.
pub fn share_allocations() -> Result<(), Error> {
    let on = sharing_choice()?;
    match SharedFile::of_process() {
        Ok(file) => file.share_allocations(on),
        Err(e) => log::debug!("no memory of this process can be shared: {e}"),
    }
    Ok(())
}

/// Pages that peers may map; private ones where the kernel has none to share.
///
/// # Errors
/// ENOMEM and the like.
pub(crate) fn pages(len: usize) -> Result<Pages, Errno> {
    match SharedFile::of_process() {
        Ok(file) => Pages::shared(file, len, 1),
        Err(_) => Pages::new(len),
    }
}
