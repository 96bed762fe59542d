//! Devices: one for all interfaces that lead out, one for each interface, or those that the
//! selection names.
use crate::error::Error;
use crate::interfaces::{self, Interface};
use crate::node::ports::{self, DeviceScope};
use crate::node::{GidEntry, Node, PortState};
use crate::selection::{Chosen, HOST_DEVICE, PREFIX, Selection, VARIABLE, selection};
use adverb_engine::{Gid, Limits, PathMtu};
use std::net::IpAddr;
use std::sync::Arc;

pub use crate::node::ports::GID_TABLE;

/// Completion vectors of a device; all of them use the same channel.
pub const COMP_VECTORS: u32 = 1;
/// The only port of a device.
pub const PORT: u8 = 1;
/// Entries of the P_Key table: the default key.
pub const PKEYS: u16 = 1;
/// The default P_Key, full member.
pub const DEFAULT_PKEY: u16 = 0xffff;
/// Most bytes of inline data of a send.
pub const MAX_INLINE: u32 = 1024;
/// Most bytes of device memory in an allocation, and in all allocations together.
pub const MAX_DM: u64 = 64 << 20;
/// Vendor id: not assigned by the IEEE, "ad".
pub const VENDOR_ID: u32 = 0x00ad_0ad0;
/// Vendor part id.
pub const VENDOR_PART_ID: u32 = 0xad;
/// Hardware revision.
pub const HW_VER: u32 = 1;

/// A device that a program can open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    name: String,
    scope: DeviceScope,
    /// The interfaces. The first one gives the state, MTU and speed of the port.
    members: Vec<Interface>,
    guid: u64,
    table: Vec<GidEntry>,
}

/// The devices of this machine, as selected (see [`crate::selection`]). A device whose interface is
/// down is listed. The list is empty if no interface of the selection has an address.
///
/// # Errors
/// The errno of the kernel's interface list.
pub fn list() -> Result<Vec<Arc<Device>>, Error> {
    of_selection(selection())
}

/// The devices of a selection.
///
/// # Errors
/// The errno of the kernel's interface list.
pub fn of_selection(selection: &Selection) -> Result<Vec<Arc<Device>>, Error> {
    let all = interfaces_now()?;
    let devices: Vec<Device> = match selection {
        Selection::Host => Device::of_host(&all).into_iter().collect(),
        Selection::Items(_) => {
            let (devices, complaints) = selection.chosen(&all);
            for complaint in complaints {
                log::error!("{VARIABLE}: {complaint}");
            }
            devices.into_iter().filter_map(|device| Device::chosen(device, &all)).collect()
        }
    };
    Ok(devices.into_iter().map(Arc::new).collect())
}

/// The device of this name: a device of [`list`], or `adverb_` and the name of any interface.
///
/// # Errors
/// The errno of the kernel's interface list.
pub fn named(name: &str) -> Result<Option<Arc<Device>>, Error> {
    if let Some(listed) = list()?.into_iter().find(|device| device.name() == name) {
        return Ok(Some(listed));
    }
    let all = interfaces_now()?;
    if name == HOST_DEVICE {
        return Ok(Device::of_host(&all).map(Arc::new));
    }
    let interface = name.strip_prefix(PREFIX).and_then(|of| all.iter().find(|i| i.name == of));
    Ok(interface.map(|i| Arc::new(Device::of_interface(i))))
}

/// The device of the loopback interface alone. `None` if loopback has no address.
///
/// # Errors
/// The errno of the kernel's interface list.
pub fn loopback() -> Result<Option<Arc<Device>>, Error> {
    let all = interfaces_now()?;
    let interface = all.iter().find(|i| i.loopback && i.is_usable());
    Ok(interface.map(|i| Arc::new(Device::of_interface(i))))
}

fn interfaces_now() -> Result<Arc<[Interface]>, Error> {
    Ok(match Node::existing() {
        Some(node) => node.look_at_interfaces()?,
        None => interfaces::all()?.into(),
    })
}

/// The EUI-64 of an interface: from the hardware address, or (loopback) from a local address made
/// of the index.
fn guid_of(interface: &Interface) -> u64 {
    let m = interface.mac;
    let m = if m == [0; 6] {
        let [.., c, d] = interface.index.to_be_bytes();
        [0x02, 0xad, 0x0a, 0xd0, c, d]
    } else {
        m
    };
    u64::from_be_bytes([m[0] ^ 2, m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]])
}

/// FNV-1a: the number of a name, the same in all processes.
fn mark_of(name: &str) -> u64 {
    let add = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    name.bytes().fold(0xcbf2_9ce4_8422_2325, add)
}

impl Device {
    /// A device of the selection.
    ///
    /// The GUID of a device with a name of its own depends on the name. So the devices of an
    /// interface have different GUIDs, and a GUID stays when other devices come and go.
    fn chosen(chosen: Chosen, all: &[Interface]) -> Option<Device> {
        let Chosen { name, interface, address, has_own_name } = chosen;
        let mut device = match interface {
            None => Device::of_host(all)?,
            Some(index) => Device::of_interface(all.iter().find(|i| i.index == index)?),
        };
        if has_own_name {
            let mark = mark_of(&name);
            let scope = DeviceScope::Named { mark, interface, address };
            // The upper 24 bits stay those of the interface's manufacturer.
            let guid = device.guid ^ (mark >> 24);
            device = Device::with(name, scope, scope.members(all), guid);
        }
        Some(device)
    }
    /// The device of all interfaces that lead out, and of loopback.
    ///
    /// The GUID is that of the interface with the lowest index. So the GUID stays when an address,
    /// a carrier or the default route goes.
    fn of_host(all: &[Interface]) -> Option<Device> {
        let members = DeviceScope::Host.members(all);
        let oldest = all.iter().filter(|i| i.outward && i.mac != [0; 6]).min_by_key(|i| i.index);
        let guid = guid_of(oldest.or(members.first())?);
        (!members.is_empty())
            .then(|| Device::with(HOST_DEVICE.into(), DeviceScope::Host, members, guid))
    }
    /// The device of one interface.
    pub(crate) fn of_interface(interface: &Interface) -> Device {
        let (name, scope) = (format!("{PREFIX}{}", interface.name), interface.index);
        let scope = DeviceScope::Interface(scope);
        Device::with(name, scope, vec![interface.clone()], guid_of(interface))
    }
    /// If the device is open in this process, its current GID table is used.
    fn with(name: String, scope: DeviceScope, members: Vec<Interface>, guid: u64) -> Device {
        let open = Node::existing().and_then(|node| node.ports.table(scope));
        let table = open.unwrap_or_else(|| ports::merged(&[], &members));
        Device { name, scope, members, guid, table }
    }
    /// The device's name: [`HOST_DEVICE`], or `adverb_` and the interface's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
    /// The first interface of the device. The interface gives state, MTU and speed of the port, and
    /// carries raw packets.
    #[must_use]
    pub fn interface(&self) -> &Interface {
        &self.members[0]
    }
    /// All interfaces of the device.
    #[must_use]
    pub fn interfaces(&self) -> &[Interface] {
        &self.members
    }
    pub(crate) fn scope(&self) -> DeviceScope {
        self.scope
    }
    /// The state of the port when the device was listed.
    pub(crate) fn port_state(&self) -> PortState {
        let state = PortState::of(&self.members, &self.table);
        state.unwrap_or_else(|| unreachable!("a device has an interface"))
    }
    /// The EUI-64 of the device, the same in all processes.
    #[must_use]
    pub fn guid(&self) -> u64 {
        self.guid
    }
    /// The GID table of the port, up to its last entry in use.
    #[must_use]
    pub fn table(&self) -> &[GidEntry] {
        &self.table
    }
    /// The name of the interface of an entry of the GID table. Empty if the interface is gone.
    #[must_use]
    pub fn netdev(&self, entry: &GidEntry) -> &str {
        self.members.iter().find(|i| i.index == entry.interface).map_or("", |i| &i.name)
    }
    /// The GIDs of the port, interface by interface: IPv4 first, then link-local, then other IPv6
    /// addresses. While the device is open each address keeps its index when other addresses come
    /// and go; zero is an empty entry.
    #[must_use]
    pub fn gids(&self) -> Vec<Gid> {
        self.table.iter().map(|entry| entry.gid).collect()
    }
    /// Index of an address in the GID table.
    #[must_use]
    pub fn gid_index_of(&self, ip: &IpAddr) -> Option<u8> {
        let wanted = interfaces::gid_of(ip);
        self.table
            .iter()
            .position(|entry| entry.gid == wanted)
            .and_then(|index| u8::try_from(index).ok())
    }
    /// The largest path MTU for the first interface.
    #[must_use]
    pub fn path_mtu(&self) -> PathMtu {
        PathMtu::for_interface(self.interface().mtu)
    }
    /// The limits of the device.
    #[must_use]
    pub fn limits(&self) -> Limits {
        Limits {
            max_qp_wr: 1 << 17,
            max_sge: 32,
            max_inline: MAX_INLINE,
            max_cqe: 4_194_303,
            max_rd_atomic: 128,
            max_srq_wr: 1 << 17,
            max_msg: 1 << 31,
            port_mtu: self.path_mtu(),
            ports: 1,
            pkeys: PKEYS,
            gids: GID_TABLE as u16,
        }
    }
}
