//! Multicast groups that queue pairs of this process are attached to, and who gets their packets.
use super::progress::Batch;
use super::queue_pair::AnyQp;
use super::{Node, from_link};
use crate::error::Error;
use crate::ranks;
use adverb_engine::AddressVector;
use adverb_link::{AddrIndex, Route, RxPacket};
use adverb_sync::RankedRw;
use adverb_wire::Headers;
use nix::errno::Errno;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// Groups a process is a member of at most.
pub(crate) const MOST_GROUPS: usize = 1024;
/// Queue pairs attached to a group at most.
pub(crate) const MOST_ATTACHED: usize = 256;

/// The groups, by the link's index of their sockets.
#[derive(Default)]
pub(super) struct Groups(RankedRw<HashMap<AddrIndex, Group>, ranks::Groups>);

struct Group {
    address: IpAddr,
    interface: u32,
    /// Memberships without a queue pair, and those of attached ones.
    uses: usize,
    attached: Vec<Weak<AnyQp>>,
}

impl Node {
    /// Becomes a member of a group on an interface, once more.
    ///
    /// # Errors
    /// ENOMEM beyond [`MOST_GROUPS`]; what the kernel says.
    pub(crate) fn join_group(&self, address: IpAddr, interface: u32) -> Result<AddrIndex, Error> {
        let mut groups = self.groups.0.write();
        let known = groups.iter_mut().find(|(_, g)| g.address == address && g.interface == interface);
        if let Some((index, group)) = known {
            group.uses += 1;
            return Ok(*index);
        }
        if groups.len() >= MOST_GROUPS {
            return Err(Error::new(
                Errno::ENOMEM,
                format!("this process is a member of {MOST_GROUPS} multicast groups already, the most"),
            ));
        }
        let index = self.link.join_group(address, interface).map_err(|e| match from_link(e) {
            e if e.errno() == Errno::EMFILE as i32 => Error::new(Errno::ENOMEM, e.to_string()),
            e => e,
        })?;
        groups.insert(index, Group { address, interface, uses: 1, attached: Vec::new() });
        drop(groups);
        self.watch().inspect_err(|_| self.leave_group(index))?;
        Ok(index)
    }

    /// Ends one membership.
    pub(crate) fn leave_group(&self, index: AddrIndex) {
        let mut groups = self.groups.0.write();
        let Some(group) = groups.get_mut(&index) else { return };
        group.uses -= 1;
        if group.uses == 0 {
            groups.remove(&index);
            self.link.leave_group(index);
        }
    }

    /// Gives a queue pair what comes to a group that it has become a member of.
    ///
    /// # Errors
    /// ENOMEM beyond [`MOST_ATTACHED`].
    pub(crate) fn attach(&self, index: AddrIndex, qp: &AnyQp) -> Result<(), Error> {
        let mut groups = self.groups.0.write();
        let Some(group) = groups.get_mut(&index) else { return Ok(()) };
        group.attached.retain(|qp| qp.strong_count() > 0);
        if group.attached.len() >= MOST_ATTACHED {
            return Err(Error::new(
                Errno::ENOMEM,
                format!("{MOST_ATTACHED} queue pairs are attached to the group already, the most"),
            ));
        }
        group.attached.extend(qp.own.me().map(|qp| Arc::downgrade(&qp)));
        Ok(())
    }

    /// Gives it no more of that.
    pub(crate) fn detach(&self, index: AddrIndex, qp: &AnyQp) {
        if let Some(group) = self.groups.0.write().get_mut(&index) {
            let me = std::ptr::from_ref(qp).cast::<()>();
            if let Some(at) = group.attached.iter().position(|of| of.as_ptr().cast::<()>() == me) {
                group.attached.swap_remove(at);
            }
        }
    }

    /// Is it a packet that no kernel brings anywhere? There is no route to IPv6 groups on the
    /// loopback interface.
    pub(super) fn is_looped(&self, route: &Route, path: &AddressVector) -> bool {
        matches!(route.dst.ip(), IpAddr::V6(group) if group.is_multicast())
            && Ipv6Addr::from(path.sgid.0).is_loopback()
    }

    /// Sends such a packet to every process of this user, this one included.
    pub(super) fn send_looped(
        &self,
        route: &Route,
        headers: &[u8],
        payload_len: usize,
        pad: u8,
        fill: impl FnOnce(&mut [u8]) -> bool,
    ) {
        let mut bytes = headers.to_vec();
        bytes.resize(headers.len() + payload_len + usize::from(pad), 0);
        if !fill(&mut bytes[headers.len()..][..payload_len]) {
            return;
        }
        let Some(packet) = self.link.packet_by(route, &bytes) else { return };
        self.link.tell_everybody(&packet);
        let here = self.groups.0.read();
        let index = here.iter().find(|(_, group)| group.address == packet.dst).map(|(index, _)| *index);
        drop(here);
        if index.is_some() {
            self.link.loop_back(&RxPacket { local: index, ..packet });
            if self.thread_sleeps() {
                self.wake_thread();
            }
        }
    }

    /// Gives a packet of a group to each queue pair that is attached; each checks it by itself.
    pub(super) fn dispatch_group(
        &self,
        batch: &mut Batch,
        p: &RxPacket<'_>,
        headers: Headers,
        payload: &[u8],
    ) {
        let attached: Vec<Arc<AnyQp>> = {
            let groups = self.groups.0.read();
            let group = p.local.and_then(|index| groups.get(&index));
            group.iter().flat_map(|group| &group.attached).filter_map(Weak::upgrade).collect()
        };
        if attached.is_empty() {
            self.counters.no_such_qp.fetch_add(1, Ordering::Relaxed);
        }
        let packet = super::progress::packet_of(p, headers, payload);
        let src_qpn = headers.deth.map_or(0, |deth| deth.src_qpn);
        for qp in attached {
            if qp.own.blocks_own(qp.number(), &packet.src, src_qpn) {
                continue;
            }
            let mut inner = qp.inner.lock();
            inner.direct = false;
            self.handle(&mut batch.tx, &qp, &mut inner, &packet, super::placing::Near::No);
            drop(inner);
            if !qp.touched.swap(true, Ordering::Relaxed) {
                batch.touched.push(qp);
            }
        }
    }
}
