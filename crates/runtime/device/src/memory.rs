//! Memory shared with the other processes of this host, as chosen by the environment.
use crate::error::Error;
use adverb_memory::{Pages, SharedFile};

/// Has the program's environment the first of two values? Without a value, the first counts.
///
/// # Errors
/// EINVAL for another value.
fn is_first(variable: &str, [first, second]: [&str; 2]) -> Result<bool, Error> {
    match std::env::var(variable).as_deref() {
        Err(_) | Ok("") => Ok(true),
        Ok(value) if value == first || value == second => Ok(value == first),
        Ok(other) => Err(Error::invalid(
            format!("{variable} is {other:?}"),
            format!("must be {first:?} or {second:?}"),
        )),
    }
}

/// Do packets between processes of one host go through shared memory where possible
/// (`ADVERB_PATH`)? If not, they go over the network.
///
/// # Errors
/// EINVAL for an invalid value in the environment.
pub(crate) fn is_shared() -> Result<bool, Error> {
    is_first("ADVERB_PATH", ["local", "wire"])
}

/// Shares the program's page-aligned allocations from now on, if `ADVERB_ADOPT` allows it. Called
/// as soon as a program shows interest in a device, because most programs allocate their buffers
/// before they open a device.
///
/// # Errors
/// EINVAL for an invalid value in the environment. If the kernel refuses, no memory is shared.
pub fn share_allocations() -> Result<(), Error> {
    let on = is_first("ADVERB_ADOPT", ["on", "off"])?;
    match SharedFile::of_process() {
        Ok(file) => file.share_allocations(on),
        Err(e) => log::debug!("no memory of this process can be shared: {e}"),
    }
    Ok(())
}

/// Pages that peers may map; private pages if the kernel has none to share.
///
/// # Errors
/// ENOMEM.
pub(crate) fn pages(len: usize) -> Result<Pages, Error> {
    let pages = match SharedFile::of_process() {
        Ok(file) => Pages::shared(file, len, 1),
        Err(_) => Pages::new(len),
    };
    pages
        .map_err(|e| Error::no_memory(format!("{len} bytes of memory cannot be had: {}", e.desc())))
}
