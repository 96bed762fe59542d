//! Devices: one for each usable network interface.
use crate::error::Error;
use crate::interfaces::{self, Interface};
use crate::node::Node;
use crate::node::ports;
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
    interface: Interface,
    gids: Vec<Gid>,
}

/// The devices of this machine: first devices of interfaces that leave the machine, loopback last.
/// The list is empty only if no interface of the machine is up.
///
/// # Errors
/// The errno of the kernel's interface list.
pub fn list() -> Result<Vec<Arc<Device>>, Error> {
    let all = all()?;
    Ok(all.into_iter().filter(|device| device.interface.is_usable()).map(Arc::new).collect())
}

/// The device of this name. Its interface may be down or without an address.
///
/// # Errors
/// The errno of the kernel's interface list.
pub fn named(name: &str) -> Result<Option<Arc<Device>>, Error> {
    Ok(all()?.into_iter().find(|device| device.name == name).map(Arc::new))
}

/// The devices of all interfaces. If a device is open in this process, its current GID table is
/// used.
fn all() -> Result<Vec<Device>, Error> {
    let fresh = |interface: Interface| {
        let table = ports::merged(&[], &interface.addresses);
        (interface, table)
    };
    let found = match Node::existing() {
        Some(node) => node.look_at_interfaces()?,
        None => interfaces::all()?.into_iter().map(fresh).collect(),
    };
    let device = |(interface, gids): (Interface, Vec<Gid>)| Device {
        name: format!("adverb_{}", interface.name),
        interface,
        gids,
    };
    Ok(found.into_iter().map(device).collect())
}

impl Device {
    /// The device of an interface that no other context has open.
    #[cfg(feature = "sim")]
    pub(crate) fn of(interface: Interface) -> Self {
        let gids = ports::merged(&[], &interface.addresses);
        Device { name: format!("adverb_{}", interface.name), interface, gids }
    }
    /// The device's name: `adverb_` and the interface's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
    /// The interface of the device.
    #[must_use]
    pub fn interface(&self) -> &Interface {
        &self.interface
    }
    /// The EUI-64 of the device, the same in all processes. The EUI-64 comes from the interface's
    /// hardware address, or (loopback) from a local address made of the interface index.
    #[must_use]
    pub fn guid(&self) -> u64 {
        let m = self.interface.mac;
        let m = if m == [0; 6] {
            let [.., c, d] = self.interface.index.to_be_bytes();
            [0x02, 0xad, 0x0a, 0xd0, c, d]
        } else {
            m
        };
        u64::from_be_bytes([m[0] ^ 2, m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]])
    }
    /// The GIDs of the port: link-local first, then IPv4, then other IPv6 addresses. While the
    /// device is open each address keeps its index when other addresses come and go; zero is an
    /// empty entry.
    #[must_use]
    pub fn gids(&self) -> Vec<Gid> {
        self.gids.clone()
    }
    /// Index of an address in the GID table.
    #[must_use]
    pub fn gid_index_of(&self, ip: &IpAddr) -> Option<u8> {
        let wanted = interfaces::gid_of(ip);
        self.gids.iter().position(|gid| *gid == wanted).and_then(|index| u8::try_from(index).ok())
    }
    /// The largest path MTU for the interface.
    #[must_use]
    pub fn path_mtu(&self) -> PathMtu {
        PathMtu::for_interface(self.interface.mtu)
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
