//! Devices: one for each usable network interface.
use crate::error::Error;
use crate::interfaces::{self, Interface};
use crate::node::Node;
use crate::node::ports;
use adverb_engine::{Gid, Limits, PathMtu};
use std::net::IpAddr;
use std::sync::Arc;

pub use crate::node::ports::GID_TABLE;

/// Completion vectors of a device; events of all of them come out of the same channel.
pub const COMP_VECTORS: u32 = 1;
/// The one port of a device.
pub const PORT: u8 = 1;
/// Entries of the P_Key table: the default key.
pub const PKEYS: u16 = 1;
/// The default P_Key, full member.
pub const DEFAULT_PKEY: u16 = 0xffff;
/// Bytes of inline data a send takes at most.
pub const MAX_INLINE: u32 = 1024;
/// Bytes of device memory an allocation has at most, and all of them together.
pub const MAX_DM: u64 = 64 << 20;
/// Vendor id: none of the IEEE's, "ad".
pub const VENDOR_ID: u32 = 0x00ad_0ad0;
/// Vendor part id.
pub const VENDOR_PART_ID: u32 = 0xad;
/// Hardware revision.
pub const HW_VER: u32 = 1;

/// A device a program can open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    name: String,
    interface: Interface,
    gids: Vec<Gid>,
}

/// The devices of this machine: those of interfaces that leave it first, loopback last. Empty only
/// if the machine has no interface that is up.
///
/// # Errors
/// The errno of the kernel's interface list.
pub fn list() -> Result<Vec<Arc<Device>>, Error> {
    let all = all()?;
    Ok(all.into_iter().filter(|device| device.interface.is_usable()).map(Arc::new).collect())
}

/// The device of this name, though its interface may be down or without an address.
///
/// # Errors
/// The errno of the kernel's interface list.
pub fn named(name: &str) -> Result<Option<Arc<Device>>, Error> {
    Ok(all()?.into_iter().find(|device| device.name == name).map(Arc::new))
}

/// Those of all interfaces. Where one is open in this process, its GID table stands as it is there.
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
    /// That of an interface, which no other context has open.
    #[cfg(feature = "sim")]
    pub(crate) fn of(interface: Interface) -> Self {
        let gids = ports::merged(&[], &interface.addresses);
        Device { name: format!("adverb_{}", interface.name), interface, gids }
    }
    /// Its name, `adverb_` and the interface's.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
    /// The interface behind it.
    #[must_use]
    pub fn interface(&self) -> &Interface {
        &self.interface
    }
    /// Its EUI-64, the same in all processes: of the interface's hardware address, or (loopback) a
    /// local one of its index.
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
    /// The GIDs of its port: link-local first, then IPv4, then the other IPv6 addresses. Where the
    /// device is open and addresses have come and gone since, each stands where it stood; zero is
    /// an empty entry.
    #[must_use]
    pub fn gids(&self) -> Vec<Gid> {
        self.gids.clone()
    }
    /// Where an address stands in the GID table.
    #[must_use]
    pub fn gid_index_of(&self, ip: &IpAddr) -> Option<u8> {
        let wanted = interfaces::gid_of(ip);
        self.gids.iter().position(|gid| *gid == wanted).and_then(|index| u8::try_from(index).ok())
    }
    /// The largest path MTU whose packets fit the interface.
    #[must_use]
    pub fn path_mtu(&self) -> PathMtu {
        PathMtu::for_interface(self.interface.mtu)
    }
    /// What it offers.
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
