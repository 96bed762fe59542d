//! Devices: one for each usable network interface.
use crate::context::Context;
use crate::error::Error;
use crate::interfaces::{self, Interface, gid_of};
use adverb_engine::{Gid, Limits, PathMtu};
use std::sync::Arc;

/// Completion vectors of a device; events of all of them come out of the same channel.
pub const COMP_VECTORS: u32 = 1;
/// The one port of a device.
pub const PORT: u8 = 1;
/// Entries of the P_Key table: the default key.
pub const PKEYS: u16 = 1;
/// The default P_Key, full member.
pub const DEFAULT_PKEY: u16 = 0xffff;
/// Entries of the GID table, the empty ones included.
pub const GID_TABLE: usize = 16;
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
#[derive(Clone, Debug)]
pub struct Device {
    name: String,
    interface: Interface,
}

/// The devices of this machine: those of interfaces that leave it first, loopback last. Empty only if the machine has
/// no interface that is up.
///
/// # Errors
/// The errno of the kernel's interface list.
pub fn list() -> Result<Vec<Arc<Device>>, Error> {
    let interfaces = interfaces::usable()?;
    Ok(interfaces
        .into_iter()
        .map(|interface| Arc::new(Device { name: format!("adverb_{}", interface.name), interface }))
        .collect())
}

impl Device {
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
    /// Its EUI-64, the same in all processes: of the interface's hardware address, or (loopback) a local one of its index.
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
    /// The GIDs of its port: link-local first, then IPv4, then the other IPv6 addresses.
    #[must_use]
    pub fn gids(&self) -> Vec<Gid> {
        self.interface.addresses.iter().take(GID_TABLE).map(gid_of).collect()
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
    /// Opens it.
    ///
    /// # Errors
    /// What the kernel refused: descriptors, threads, the slot of the process.
    pub fn open(self: &Arc<Self>) -> Result<Arc<Context>, Error> {
        Context::new(self)
    }
}
