//! Multicast groups with attached queue pairs of this process.
use super::queue_pair::AnyQp;
use crate::error::Error;
use crate::ranks;
use adverb_link::AddrIndex;
use adverb_sync::RankedRw;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Weak};

/// Largest number of groups of a process.
pub(crate) const MOST_GROUPS: usize = 1024;
/// Largest number of queue pairs attached to a group.
pub(crate) const MOST_ATTACHED: usize = 256;

/// The groups, by the link's index of their sockets.
#[derive(Default)]
pub(crate) struct Groups(pub(super) RankedRw<HashMap<AddrIndex, Group>, ranks::Groups>);

pub(super) struct Group {
    pub(super) address: IpAddr,
    pub(super) interface: u32,
    /// Memberships without a queue pair, and memberships of attached queue pairs.
    pub(super) uses: usize,
    pub(super) attached: Vec<Weak<AnyQp>>,
}

impl Groups {
    /// Attaches a queue pair to a group that it has joined. The queue pair gets the group's
    /// packets.
    ///
    /// # Errors
    /// ENOMEM beyond [`MOST_ATTACHED`].
    pub(crate) fn attach(&self, index: AddrIndex, qp: &AnyQp) -> Result<(), Error> {
        let mut groups = self.0.write();
        let Some(group) = groups.get_mut(&index) else { return Ok(()) };
        group.attached.retain(|qp| qp.strong_count() > 0);
        if group.attached.len() >= MOST_ATTACHED {
            return Err(Error::no_memory(format!(
                "{MOST_ATTACHED} queue pairs are attached to the group already, the most"
            )));
        }
        group.attached.extend(qp.own.me().map(|qp| Arc::downgrade(&qp)));
        Ok(())
    }

    /// Detaches a queue pair.
    pub(crate) fn detach(&self, index: AddrIndex, qp: &AnyQp) {
        if let Some(group) = self.0.write().get_mut(&index) {
            let me = std::ptr::from_ref(qp).cast::<()>();
            if let Some(at) = group.attached.iter().position(|of| of.as_ptr().cast::<()>() == me) {
                group.attached.swap_remove(at);
            }
        }
    }
}
