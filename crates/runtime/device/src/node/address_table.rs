//! Local addresses at which the UDP port is open.
use adverb_link::AddrIndex;
use adverb_sync::Mutex;
use std::net::IpAddr;

/// Addresses opened so far, each with its interface if it is a link-local one.
#[derive(Default)]
pub(crate) struct Addresses(pub(super) Mutex<Vec<(IpAddr, u32, AddrIndex)>>);

impl Addresses {
    /// The interface of an address that is open.
    pub(super) fn scope_of(&self, ip: IpAddr) -> Option<u32> {
        self.0.lock().iter().find(|(of, ..)| *of == ip).map(|(_, scope, _)| *scope)
    }
}
