//! Membership in multicast groups, and delivery of their packets.
use super::batch::{Batch, packet_of};
use super::core::Node;
use super::groups::{Group, Groups, MOST_GROUPS};
use super::queue_pair::AnyQp;
use crate::error::Error;
use adverb_link::{AddrIndex, Route, RxPacket};
use adverb_wire::Headers;
use nix::errno::Errno;
use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

impl Groups {
    /// Adds a membership in a group on an interface.
    ///
    /// # Errors ENOMEM beyond [`MOST_GROUPS`]; errors of the kernel.
    pub(crate) fn join(
        &self,
        node: &Node,
        address: IpAddr,
        interface: u32,
    ) -> Result<AddrIndex, Error> {
        let mut groups = self.0.write();
        let known =
            groups.iter_mut().find(|(_, g)| g.address == address && g.interface == interface);
        if let Some((index, group)) = known {
            group.uses += 1;
            return Ok(*index);
        }
        if groups.len() >= MOST_GROUPS {
            return Err(Error::no_memory(format!(
                "this process is a member of {MOST_GROUPS} multicast groups already, the most"
            )));
        }
        let joined = node.link.join_group(address, interface).map_err(Error::from);
        let index = joined.inspect_err(|error| log::error!("{error}")).map_err(|e| {
            if e.errno() == Errno::EMFILE as i32 { Error::no_memory(e.to_string()) } else { e }
        })?;
        groups.insert(index, Group { address, interface, uses: 1, attached: Vec::new() });
        drop(groups);
        node.watch().inspect_err(|_| self.leave(node, index))?;
        Ok(index)
    }

    /// Ends a membership.
    pub(crate) fn leave(&self, node: &Node, index: AddrIndex) {
        let mut groups = self.0.write();
        let Some(group) = groups.get_mut(&index) else { return };
        group.uses -= 1;
        if group.uses == 0 {
            groups.remove(&index);
            node.link.leave_group(index);
        }
    }

    /// Sends a packet of a group without kernel support to every process of this user, including
    /// this process.
    pub(super) fn send_looped(
        &self,
        node: &Node,
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
        let Some(packet) = node.link.packet_by(route, &bytes) else { return };
        node.link.tell_everybody(&packet.as_local());
        let here = self.0.read();
        let index =
            here.iter().find(|(_, group)| group.address == packet.dst).map(|(index, _)| *index);
        drop(here);
        if index.is_some() {
            node.link.loop_back(&RxPacket { local: index, ..packet });
            node.wake_sleeping_thread();
        }
    }

    /// Gives a packet of a group to each attached queue pair. Each queue pair checks the packet by
    /// itself.
    pub(super) fn dispatch(
        &self,
        node: &Node,
        batch: &mut Batch,
        p: &RxPacket<'_>,
        headers: Headers,
        payload: &[u8],
    ) {
        let attached: Vec<Arc<AnyQp>> = {
            let groups = self.0.read();
            let group = p.local.and_then(|index| groups.get(&index));
            group.iter().flat_map(|group| &group.attached).filter_map(Weak::upgrade).collect()
        };
        if attached.is_empty() {
            node.counters.no_such_qp.fetch_add(1, Ordering::Relaxed);
        }
        let packet = packet_of(p, headers, payload);
        let src_qpn = headers.deth.map_or(0, |deth| deth.src_qpn);
        for qp in attached {
            if qp.own.blocks_own(qp.number(), &packet.src, src_qpn) {
                continue;
            }
            let mut inner = qp.inner.lock();
            inner.carried.relay.answers_directly = false;
            node.handle(&mut batch.tx, &qp, &mut inner, &packet, None);
            drop(inner);
            batch.touch(qp);
        }
    }
}
