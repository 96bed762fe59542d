//! Loopback addresses lead to this host, on every host. A program that gives a peer on another host
//! such an address would otherwise see retries without an answer.
use super::core::Node;
use crate::interfaces::ip_of;
use adverb_engine::Gid;
use adverb_local::{Delivery, slot_of_qpn};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};

impl Node {
    /// Warns if a connection by a loopback GID leads to a number of no process of this host.
    pub(crate) fn look_for_loopback_peer(&self, sgid: &Gid, dgid: &Gid, qpn: u32) {
        let mut ends = [dgid, sgid].map(ip_of).into_iter();
        if let Some(ip) = ends.find(IpAddr::is_loopback)
            && !self.is_here(qpn)
        {
            warn(ip, &format!("the queue pair {qpn:#08x}"));
        }
    }

    fn is_here(&self, qpn: u32) -> bool {
        slot_of_qpn(qpn).is_some_and(|slot| {
            self.link.owns(slot) || self.link.watch_owner(slot) != Delivery::NoOwner
        })
    }
}

/// Warns once of datagrams to a number without an owner.
pub(super) fn tell_of_datagram(to: IpAddr) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if to.is_loopback() && !SAID.swap(true, Ordering::Relaxed) {
        warn(to, "the queue pair to which datagrams go");
    }
}

fn warn(ip: IpAddr, what: &str) {
    log::warn!(
        "{ip} is this host, and no process of this user here has {what}: for a peer on another \
         host, choose the GID of a network address (`adverb devices` lists them)"
    );
}
