//! Multicast of unreliable datagrams (IBTA 10.5), by IP multicast.
//!
//! The multicast GID names a group. An IPv6 group is its own GID. An IPv4 group is
//! `::ffff:a.b.c.d`, as Linux maps it on RoCEv2. `ff0e::ffff:a.b.c.d`, Linux's mapping on RoCEv1,
//! means the same group. An attached queue pair gets a copy of each packet of the group with its
//! Q_Key. This includes packets of the queue pair itself and of other queue pairs of this machine.
mod group;

use crate::error::Error;
use crate::nic::Has;
use crate::node::Node;
use crate::objects::context::{AhAttr, Context};
use crate::objects::qp::Qp;
use adverb_engine::{Gid, QpType};
use adverb_link::AddrIndex;
use std::net::IpAddr;
use std::sync::Arc;

use group::groups_of;
pub(crate) use group::{Attachment, toward};
pub use group::{is_multicast, mgid_of};

/// Most groups of a device, reported as `max_mcast_grp`.
pub const MAX_GROUPS: usize = crate::node::MOST_GROUPS;
/// Most queue pairs of a group, reported as `max_mcast_qp_attach`.
pub const MAX_ATTACHED: usize = crate::node::MOST_ATTACHED;
/// Q_Key of groups joined by address (`RDMA_UDP_QKEY` of Linux).
pub const MULTICAST_QKEY: u32 = 0x0123_4567;
/// The LID that Linux gives groups on Ethernet, which has no LIDs.
pub const MULTICAST_LID: u16 = 0xc000;
/// Hop limit of packets to a group joined by address, as in Linux.
const HOP_LIMIT: u8 = 64;

/// Joins those groups of a GID which can be joined on the interfaces.
fn join_all(node: &Node, gid: &Gid, interfaces: &[u32]) -> Result<Vec<AddrIndex>, Error> {
    let (mut joined, mut refused) = (Vec::new(), None);
    for group in groups_of(gid) {
        for interface in interfaces {
            match node.groups.join(node, group, *interface) {
                Ok(index) => joined.push(index),
                Err(e) => refused = refused.or(Some(e)),
            }
        }
    }
    match refused {
        // For a GID with an IPv4 and an IPv6 group, either of them is enough, on any interface.
        Some(e) if joined.is_empty() => Err(e),
        _ => Ok(joined),
    }
}

impl Qp {
    /// Attaches the queue pair to a multicast group (`ibv_attach_mcast`). A second call changes
    /// nothing. `lid` only names the attachment.
    ///
    /// # Errors
    /// EINVAL: not a UD queue pair, or no multicast GID. ENOMEM: the limit is reached.
    pub fn attach_mcast(&self, gid: Gid, lid: u16) -> Result<(), Error> {
        let node = self.context().node();
        self.context().check_usable()?;
        self.context().needs(Has::MULTICAST)?;
        self.check_multicast(&gid)?;
        let mut attachments = self.own.attachments.lock();
        if attachments.iter().any(|a| a.gid == gid && a.lid == lid) {
            return Ok(());
        }
        // The sockets at this device's addresses prove the origin of packets that this host sends
        // to the group.
        self.context().open_all()?;
        let groups = join_all(node, &gid, &self.context().port_state().interfaces)?;
        for (n, index) in groups.iter().enumerate() {
            // Another GID may mean the same group. The queue pair still gets a single copy.
            let already = attachments.iter().any(|a| a.groups.contains(index));
            if !already && let Err(e) = node.groups.attach(*index, self) {
                groups[..n].iter().for_each(|index| node.groups.detach(*index, self));
                groups.iter().for_each(|index| node.groups.leave(node, *index));
                return Err(e);
            }
        }
        attachments.push(Attachment { gid, lid, groups });
        Ok(())
    }

    /// Ends an attachment (`ibv_detach_mcast`).
    ///
    /// # Errors
    /// EINVAL: not a UD queue pair, no multicast GID, or not attached with this GID and LID.
    pub fn detach_mcast(&self, gid: Gid, lid: u16) -> Result<(), Error> {
        self.context().node().check_alive()?;
        self.check_multicast(&gid)?;
        let mut attachments = self.own.attachments.lock();
        let at = attachments.iter().position(|a| a.gid == gid && a.lid == lid);
        let at = at.ok_or_else(|| {
            let rule = "the queue pair is not attached to this group";
            Error::invalid(format!("gid {gid}, lid {lid}"), rule)
        })?;
        let ended = attachments.swap_remove(at);
        self.leave(&ended, &attachments);
        Ok(())
    }

    /// Number of groups. The C ABI refuses to destroy an attached queue pair.
    #[must_use]
    pub fn multicast_groups(&self) -> usize {
        self.own.attachments.lock().len()
    }

    /// Ends all attachments.
    pub(crate) fn detach_all(&self) {
        let mut attachments = self.own.attachments.lock();
        while let Some(ended) = attachments.pop() {
            self.leave(&ended, &attachments);
        }
    }

    fn leave(&self, ended: &Attachment, left: &[Attachment]) {
        let node = self.context().node();
        for index in &ended.groups {
            if !left.iter().any(|a| a.groups.contains(index)) {
                node.groups.detach(*index, self);
            }
            node.groups.leave(node, *index);
        }
    }

    fn check_multicast(&self, gid: &Gid) -> Result<(), Error> {
        if self.qp_type() != QpType::Ud {
            let rule = "only UD queue pairs are attached to multicast groups";
            return Err(Error::invalid("qp_type", rule));
        }
        if !is_multicast(gid) {
            return Err(Error::invalid(format!("gid is {gid}"), "not a multicast GID"));
        }
        Ok(())
    }
}

/// Membership of a group without a queue pair (`rdma_join_multicast`); the drop leaves the group.
#[derive(Debug)]
pub struct Membership {
    /// The group's GID, for attaching queue pairs.
    pub mgid: Gid,
    /// The LID for attaching queue pairs.
    pub mlid: u16,
    /// The destination queue pair number: the multicast number.
    pub qpn: u32,
    /// Q_Key of the group.
    pub qkey: u32,
    /// The address for making an address handle.
    pub ah: AhAttr,
    context: Arc<Context>,
    groups: Vec<AddrIndex>,
}

/// Joins the group of an IP multicast address on a device. `source` is the address to send from.
///
/// # Errors
/// EINVAL: not a multicast address, or of another family than `source`. EADDRNOTAVAIL: the device
/// does not have the source address. ENOMEM.
pub fn join(context: &Arc<Context>, source: IpAddr, group: IpAddr) -> Result<Membership, Error> {
    let node = context.node();
    node.check_alive()?;
    if !group.is_multicast() || group.is_ipv4() != source.is_ipv4() {
        let rule = "a multicast address of the source's family is needed";
        return Err(Error::invalid(format!("group {group}, source {source}"), rule));
    }
    let wanted = crate::interfaces::gid_of(&source);
    let sgid_index = context.gids().iter().position(|gid| *gid == wanted).ok_or_else(|| {
        let text = format!("{} does not have the address {source}", context.device().name());
        Error::new(nix::errno::Errno::EADDRNOTAVAIL, text)
    })?;
    context.open_all()?;
    let mgid = mgid_of(group);
    let groups = join_all(node, &mgid, &[context.gid_entry(sgid_index).interface])?;
    let ah = AhAttr {
        dgid: mgid,
        sgid_index: sgid_index as u8,
        hop_limit: HOP_LIMIT,
        dlid: MULTICAST_LID,
        is_global: true,
        port_num: crate::objects::device::PORT,
        ..AhAttr::default()
    };
    Ok(Membership {
        mgid,
        mlid: MULTICAST_LID,
        qpn: adverb_local::MULTICAST_QPN,
        qkey: MULTICAST_QKEY,
        ah,
        context: context.clone(),
        groups,
    })
}

impl Drop for Membership {
    fn drop(&mut self) {
        let node = self.context.node();
        if !node.is_stale() {
            self.groups.iter().for_each(|index| node.groups.leave(node, *index));
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::net::Ipv6Addr;

    fn gid(text: &str) -> Gid {
        Gid(text.parse::<Ipv6Addr>().unwrap().octets())
    }

    /// MC-1: which GIDs name groups, and which groups.
    #[test]
    fn gids_of_groups() {
        for (text, v4, v6) in [
            ("::ffff:239.1.2.3", true, false),
            ("ff0e::ffff:239.1.2.3", true, true),
            ("ff02::1:2", false, true),
            ("ff0e::ffff:10.1.2.3", false, true),
        ] {
            let groups = groups_of(&gid(text));
            assert!(is_multicast(&gid(text)), "{text}");
            assert_eq!(
                (groups.iter().any(IpAddr::is_ipv4), groups.iter().any(IpAddr::is_ipv6)),
                (v4, v6),
                "{text}"
            );
        }
        assert_eq!(toward(&gid("ff0e::ffff:239.1.2.3"), true), gid("::ffff:239.1.2.3"));
        assert_eq!(toward(&gid("ff0e::ffff:239.1.2.3"), false), gid("ff0e::ffff:239.1.2.3"));
        for text in ["::ffff:10.1.2.3", "fe80::1", "::"] {
            assert!(!is_multicast(&gid(text)), "{text}");
        }
    }
}
