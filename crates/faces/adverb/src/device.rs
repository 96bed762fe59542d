//! Devices and open devices.
use crate::error::{Error, Result};
use adverb_device::device::PORT;
pub use adverb_device::node::Stats;

use adverb_device::engine::{Gid, Limits, PathMtu};
use std::net::IpAddr;
use std::sync::Arc;

/// An RDMA device: one for each network interface that is up and has an address, called `adverb_`
/// and the interface's name (`ibv_get_device_list(3)`). Cheap to clone.
#[derive(Clone, Debug)]
pub struct Device(Arc<adverb_device::Device>);

impl Device {
    /// The devices of this machine, loopback last.
    ///
    /// # Errors
    /// The errno of the kernel's list of interfaces.
    pub fn list() -> Result<Vec<Device>> {
        Ok(adverb_device::device::list()?.into_iter().map(Device).collect())
    }

    /// The device with this name, such as `adverb_eth0`; the interface's own name will do, too.
    ///
    /// # Errors
    /// [`Error::NoSuchDevice`] with the names there are; the errno of the kernel's list.
    pub fn by_name(name: &str) -> Result<Device> {
        let all = Device::list()?;
        let matches = |d: &&Device| d.name() == name || d.0.interface().name == name;
        let found = all.iter().find(matches).cloned();
        found.ok_or_else(|| Error::NoSuchDevice {
            name: name.to_owned(),
            available: all.iter().map(|d| d.name().to_owned()).collect(),
        })
    }

    /// The device of the loopback interface: queue pairs of this machine reach each other over it,
    /// and nobody else does.
    ///
    /// # Errors
    /// [`Error::NoSuchDevice`] if the loopback interface is down.
    pub fn loopback() -> Result<Device> {
        let all = Device::list()?;
        let found = all.iter().find(|d| d.is_loopback()).cloned();
        found.ok_or_else(|| Error::NoSuchDevice {
            name: "loopback".to_owned(),
            available: all.iter().map(|d| d.name().to_owned()).collect(),
        })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Does it stand on the loopback interface?
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        self.0.interface().loopback
    }

    /// Its GIDs, in the order of the GID table: IPv6 link-local, IPv4 (mapped into IPv6), other
    /// IPv6 addresses.
    #[must_use]
    pub fn gids(&self) -> Vec<Gid> {
        self.0.gids()
    }

    /// The largest path MTU whose packets fit the interface (256 to 4096 bytes).
    #[must_use]
    pub fn path_mtu(&self) -> PathMtu {
        self.0.path_mtu()
    }

    /// What it offers at most (`ibv_query_device(3)`).
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.0.limits()
    }

    /// Opens it (`ibv_open_device(3)`).
    ///
    /// # Errors
    /// What the kernel refused: descriptors, a thread, or the process's share of UDP port 4791.
    pub fn open(&self) -> Result<Context> {
        Ok(Context(self.0.open()?))
    }
}

/// An open device; cheap to clone. Everything made from it keeps it open.
#[derive(Clone, Debug)]
pub struct Context(Arc<adverb_device::Context>);

impl Context {
    /// The device.
    #[must_use]
    pub fn device(&self) -> Device {
        Device(self.0.device().clone())
    }

    /// What it offers at most.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        self.0.limits()
    }

    /// The GID at an index of the table (`ibv_query_gid(3)`).
    ///
    /// # Errors
    /// EINVAL beyond the table; [`Error::NoAddress`] for an empty entry.
    pub fn gid(&self, index: u8) -> Result<Gid> {
        let gid = self.0.gid(PORT, index.into())?;
        if gid.is_zero() { Err(Error::NoAddress) } else { Ok(gid) }
    }

    /// Index of the GID that an IP address of this device has.
    #[must_use]
    pub fn gid_index_of(&self, ip: IpAddr) -> Option<u8> {
        let wanted = adverb_device::interfaces::gid_of(&ip);
        self.0.gids().iter().position(|g| *g == wanted).and_then(|i| u8::try_from(i).ok())
    }

    /// Index of the GID that queue pairs use unless told otherwise: the first of an IPv4 address,
    /// else the first.
    #[must_use]
    pub fn default_gid_index(&self) -> u8 {
        let gids = self.0.gids();
        gids.iter().position(|g| g.ipv4().is_some()).and_then(|i| u8::try_from(i).ok()).unwrap_or(0)
    }

    /// What this process's engine has counted since its first device was opened: hand-overs,
    /// system calls, packets.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.0.node().stats()
    }

    /// Everything that this process's engine has counted, by name: packets dropped, one counter for
    /// each reason, and what became of the others. The last line of the log at level `info` has the
    /// same.
    #[must_use]
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        self.0.node().named_counters()
    }

    pub(crate) fn raw(&self) -> &Arc<adverb_device::Context> {
        &self.0
    }
}
