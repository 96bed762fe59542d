//! Multicast groups.
use crate::address::Address;
use crate::event::{Ah, Event, EventKind, Param, Queued};
use crate::host::{Host, Tokens};
use crate::id::Standing;
use crate::request::{Caller, Reply};
use crate::world::{Joined, World};
use nix::errno::Errno;

/// Queue pair number of a group.
const MULTICAST_QPN: u32 = 0xff_ffff;

impl<D: Host, T: Tokens> World<D, T> {
    /// JOIN_MCAST, JOIN_IP_MCAST. An event reports the result.
    pub(crate) fn join(
        &mut self,
        file: u64,
        number: u32,
        uid: u64,
        address: Address,
        caller: &mut dyn Caller,
    ) -> Result<(), Errno> {
        let id = self.id(file, number)?;
        // A group is joined on the interface of a device, so the id must have a device.
        let standing = matches!(id.standing, Standing::AddrBound | Standing::AddrResolved);
        let (true, true, Some(binding)) = (standing, id.is_datagram(), id.binding.clone()) else {
            return Err(Errno::EINVAL);
        };
        let (qkey, tos) = (id.qkey(), id.tos);
        let group_ip = address.ip().ok_or(Errno::EINVAL)?;
        let group = self.groups.add(Joined { owner: number, group: None, events_reported: 0 });
        if let Err(e) = caller.reply(&Reply::Id(group)) {
            self.groups.remove(group);
            return Err(e);
        }
        let (event, joined) = match self.host.join(&binding, group_ip) {
            Ok(joined) => {
                let ah = Ah {
                    dgid: joined.mgid,
                    flow_label: 0,
                    sgid_index: binding.sgid_index,
                    hop_limit: joined.hop_limit,
                    traffic_class: tos,
                    dlid: joined.mlid,
                    sl: 0,
                };
                let param = Param::Datagram {
                    qpn: MULTICAST_QPN,
                    qkey,
                    ah: Some(ah),
                    private_data: Vec::new(),
                };
                (Event { param, ..Event::new(EventKind::MulticastJoin, 0) }, Some(joined))
            }
            Err(e) => {
                log::warn!(
                    "rdma_join_multicast: {group_ip} cannot be joined at {}: {}",
                    binding.name,
                    e.desc()
                );
                (Event::new(EventKind::MulticastError, -(e as i32)), None)
            }
        };
        if let Some(made) = self.groups.get_mut(&group) {
            made.group = joined;
        }
        self.files
            .push(file, Queued { owner: number, uid, group: Some(group), request: None, event });
        Ok(())
    }

    /// LEAVE_MCAST.
    pub(crate) fn leave(
        &mut self,
        file: u64,
        group: u32,
        caller: &mut dyn Caller,
    ) -> Result<(), Errno> {
        let owner = self.groups.get(&group).ok_or(Errno::ENOENT)?.owner;
        self.id(file, owner)?;
        let joined = self.groups.remove(group).ok_or(Errno::ENOENT)?;
        self.files.take(file, |event| event.group == Some(group));
        drop(joined.group);
        caller.reply(&Reply::EventsReported(joined.events_reported))
    }
}
