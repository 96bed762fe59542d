//! Devices and open devices.
use crate::error::{Error, Result};
use adverb_device::device::PORT;
pub use adverb_device::node::Stats;

use adverb_device::engine::{Gid, Limits, PathMtu};
use std::net::IpAddr;
use std::sync::Arc;

/// An RDMA device (`ibv_get_device_list(3)`). By default the list has one device, `adverb0`, for
/// all interfaces that lead out and for loopback. Each interface is also available as a device of
/// its own, named `adverb_` and the interface's name. A device is cheap to clone.
#[derive(Clone, Debug)]
pub struct Device(Arc<adverb_device::Device>);

impl Device {
    /// The devices of this machine: `adverb0`, or the devices of `ADVERB_DEVICES`.
    ///
    /// # Errors
    /// The errno of the kernel's interface list.
    pub fn list() -> Result<Vec<Device>> {
        Ok(adverb_device::device::list()?.into_iter().map(Device).collect())
    }

    /// The device with this name: `adverb0`, or the device of one interface, for example
    /// `adverb_eth0`. The interface's own name is accepted too.
    ///
    /// # Errors
    /// [`Error::NoSuchDevice`] with the names that exist; the errno of the kernel's interface list.
    pub fn by_name(name: &str) -> Result<Device> {
        let named = |name: &str| adverb_device::device::named(name);
        match named(name)?.map_or_else(|| named(&format!("adverb_{name}")), |d| Ok(Some(d)))? {
            Some(found) => Ok(Device(found)),
            None => Err(Device::missing(name)),
        }
    }

    fn missing(name: &str) -> Error {
        let all = Device::list().unwrap_or_default();
        let available = all.iter().map(|d| d.name().to_owned()).collect();
        Error::NoSuchDevice { name: name.to_owned(), available }
    }

    /// The device of the loopback interface alone. Only queue pairs of this machine reach each
    /// other over this device.
    ///
    /// # Errors
    /// [`Error::NoSuchDevice`] if the loopback interface is down.
    pub fn loopback() -> Result<Device> {
        let found = adverb_device::device::loopback()?;
        found.map(Device).ok_or_else(|| Device::missing("loopback"))
    }

    /// The name of the device.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Whether the device uses the loopback interface alone.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        self.0.interfaces().iter().all(|i| i.loopback)
    }

    /// The GIDs, in the order of the GID table. Those of an interface are IPv4 (mapped into IPv6),
    /// IPv6 link-local, other IPv6 addresses.
    #[must_use]
    pub fn gids(&self) -> Vec<Gid> {
        self.0.gids()
    }

    /// The largest path MTU for packets that fit the interface (256 to 4096 bytes).
    #[must_use]
    pub fn path_mtu(&self) -> PathMtu {
        self.0.path_mtu()
    }

    /// The limits of the device (`ibv_query_device(3)`).
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.0.limits()
    }

    /// Opens the device (`ibv_open_device(3)`).
    ///
    /// # Errors
    /// The errno of the kernel, which refused a descriptor, a thread or UDP port 4791.
    pub fn open(&self) -> Result<Context> {
        let context = Context(self.0.open()?);
        #[cfg(feature = "waits")]
        adverb_interpose::register();
        #[cfg(not(feature = "waits"))]
        adverb_waits::register();
        Ok(context)
    }
}

/// An open device. A context is cheap to clone. All objects that are made from it keep it open.
#[derive(Clone, Debug)]
pub struct Context(pub(crate) Arc<adverb_device::Context>);

impl Context {
    /// The device.
    #[must_use]
    pub fn device(&self) -> Device {
        Device(self.0.device().clone())
    }

    /// The limits of the device.
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

    /// The index of the GID of an IP address of this device.
    #[must_use]
    pub fn gid_index_of(&self, ip: IpAddr) -> Option<u8> {
        let wanted = adverb_device::interfaces::gid_of(&ip);
        self.0.gids().iter().position(|g| *g == wanted).and_then(|i| u8::try_from(i).ok())
    }

    /// The index of the GID that queue pairs use by default: the first IPv4 GID, or else the first
    /// GID.
    #[must_use]
    pub fn default_gid_index(&self) -> u8 {
        let gids = self.0.gids();
        gids.iter().position(|g| g.ipv4().is_some()).and_then(|i| u8::try_from(i).ok()).unwrap_or(0)
    }

    /// The counters of this process since it opened its first device: committed chains, system
    /// calls, packets.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.0.node().stats()
    }

    /// All counters of this process, by name. The dropped packets have one counter for each reason.
    /// The last line of the log at level `info` has the same counters.
    #[must_use]
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        self.0.node().named_counters()
    }
}
