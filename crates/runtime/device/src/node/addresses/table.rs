//! Local addresses with an open UDP port.
use crate::ranks;
use adverb_link::AddrIndex;
use adverb_sync::Ranked;
use std::net::IpAddr;

/// Addresses opened so far, each with its interface if the address is link-local.
#[derive(Default)]
pub(crate) struct Addresses(
    pub(in crate::node) Ranked<Vec<(IpAddr, u32, AddrIndex)>, ranks::Addresses>,
);

impl Addresses {
    /// The interface of an open address.
    pub(in crate::node) fn scope_of(&self, ip: IpAddr) -> Option<u32> {
        self.0.lock().iter().find(|(of, ..)| *of == ip).map(|(_, scope, _)| *scope)
    }
}
