//! Whether packets to other hosts leave from several UDP source ports (`ADVERB_SOURCE_PORTS`).
use crate::error::Error;

/// Do packets to other hosts leave from several source ports, as with a NIC? Otherwise they leave
/// from port 4791. Then a firewall takes them for the answers to the packets of the other host.
///
/// # Errors
/// EINVAL for anything but `many` and `one`.
pub(crate) fn spreads() -> Result<bool, Error> {
    match std::env::var("ADVERB_SOURCE_PORTS").as_deref() {
        Err(_) | Ok("" | "many") => Ok(true),
        Ok("one") => Ok(false),
        Ok(other) => {
            Err(Error::invalid(format!("ADVERB_SOURCE_PORTS is {other:?}"), "it is \"many\" or \"one\""))
        }
    }
}
