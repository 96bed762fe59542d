//! The device and local address from which a destination is reached.
use crate::error::Error;
use crate::interfaces::{self, gid_of, ip_of};
use crate::node::{GidEntry, scope_of};
use crate::objects::device::{self, Device, PORT};
use crate::selection::VARIABLE;
use adverb_engine::PathMtu;
use nix::errno::Errno;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::sync::Arc;

/// A local address and its device.
#[derive(Clone, Debug)]
pub struct Binding {
    /// The device.
    pub device: Arc<Device>,
    /// Index of the device in the list of devices.
    pub index: u32,
    /// Port of the device.
    pub port: u8,
    /// The address.
    pub address: IpAddr,
    /// Index of the address in the GID table.
    pub sgid_index: u8,
    /// Interface index of a link-local address, else 0.
    pub scope_id: u32,
    /// The largest path MTU for the interface of the address.
    pub path_mtu: PathMtu,
}

/// The device with a local address. `scope_id` applies to link-local addresses; 0 means any
/// interface.
///
/// # Errors
/// EADDRNOTAVAIL if no device has the address.
pub fn binding_of(address: IpAddr, scope_id: u32) -> Result<Binding, Error> {
    let link_local = matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
    let wanted = gid_of(&address);
    let fits = |entry: &GidEntry| {
        entry.gid == wanted && (!link_local || scope_id == 0 || entry.interface == scope_id)
    };
    for (index, device) in (0..).zip(device::list()?) {
        if let Some(at) = device.table().iter().position(fits) {
            return Ok(binding_at(device, index, at));
        }
    }
    let interfaces = interfaces::all()?;
    let on = interfaces.iter().find(|i| i.addresses.contains(&address));
    let why = on.map_or_else(
        || "is the interface up?".to_owned(),
        |i| format!("it belongs to the interface {}: {VARIABLE}={} selects it", i.name, i.name),
    );
    Err(Error::new(Errno::EADDRNOTAVAIL, format!("no device has the address {address} ({why})")))
}

/// The binding to an entry of the GID table of a device.
fn binding_at(device: Arc<Device>, index: u32, at: usize) -> Binding {
    let entry = device.table()[at];
    Binding {
        port: PORT,
        index,
        address: ip_of(&entry.gid),
        sgid_index: at as u8,
        scope_id: scope_of(&entry.gid, entry.interface),
        path_mtu: entry.path_mtu(),
        device,
    }
}

/// The first GID of the first device with an active port, for a loopback address that no device
/// has. Connections of this host meet there (Linux: `cma_bind_loopback`).
fn first_active() -> Result<Binding, Error> {
    let devices = (0..).zip(device::list()?);
    let first = devices.into_iter().find_map(|(index, device)| {
        let at = device.table().iter().position(|entry| !entry.gid.is_zero())?;
        device.interface().up.then(|| binding_at(device.clone(), index, at))
    });
    first.ok_or_else(|| Error::new(Errno::ENODEV, "no device has an active port with a GID"))
}

/// The local address from which a destination is reached: `source` if given, else the address
/// chosen by the kernel's routes. An unspecified destination means the loopback address, as for
/// TCP.
///
/// # Errors
/// ENETUNREACH, EHOSTUNREACH: no route. EADDRNOTAVAIL: no device has the source address. EINVAL:
/// source and destination are of different families.
pub fn binding_toward(
    source: Option<SocketAddr>,
    destination: SocketAddr,
) -> Result<Binding, Error> {
    let source = source.filter(|source| !source.ip().is_unspecified());
    if let Some(source) = source
        && source.is_ipv4() != destination.is_ipv4()
    {
        let what = format!("source {source}, destination {destination}");
        return Err(Error::invalid(what, "both must be IPv4 or both IPv6"));
    }
    let is_loopback = source.is_none() && destination.ip().is_loopback();
    if is_loopback && binding_of(destination.ip(), 0).is_err() {
        return first_active();
    }
    // The port must not be 0: with port 0 the kernel looks up no route.
    let mut target = destination;
    target.set_port(adverb_wire::ROCE_PORT);
    match target.ip() {
        IpAddr::V4(v4) if v4.is_unspecified() => target.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(v6) if v6.is_unspecified() => target.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    let binding =
        source.map(|source| binding_of(source.ip(), adverb_os::scope_in(source))).transpose()?;
    let from = match (&binding, target) {
        (Some(binding), _) => match binding.address {
            IpAddr::V4(v4) => (v4, 0).into(),
            IpAddr::V6(v6) => SocketAddrV6::new(v6, 0, 0, binding.scope_id).into(),
        },
        (None, SocketAddr::V4(_)) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        (None, SocketAddr::V6(_)) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let chosen = UdpSocket::bind(from)
        .and_then(|socket| socket.connect(target).and_then(|()| socket.local_addr()))
        .map_err(|e| {
            let errno = e.raw_os_error().map_or(Errno::EHOSTUNREACH, Errno::from_raw);
            Error::new(errno, format!("there is no way to {}: {e}", target.ip()))
        })?;
    match binding {
        Some(binding) => Ok(binding),
        // Without a device at 127.0.0.1, the source toward a device at 127.0.0.2.
        None if is_loopback => binding_of(chosen.ip(), 0).or_else(|_| first_active()),
        None => {
            binding_of(chosen.ip(), adverb_os::scope_in(chosen).max(adverb_os::scope_in(target)))
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// SYS-14: toward loopback.
    #[test]
    fn loopback_is_reached_from_itself() {
        for to in ["127.0.0.1:7", "0.0.0.0:7"] {
            let binding = binding_toward(None, to.parse().unwrap()).unwrap();
            assert_eq!(binding.address, IpAddr::V4(Ipv4Addr::LOCALHOST));
            let entry = binding.device.table()[usize::from(binding.sgid_index)];
            assert_eq!(binding.device.netdev(&entry), "lo");
            assert_eq!(
                binding.device.gids()[usize::from(binding.sgid_index)].ipv4(),
                Some([127, 0, 0, 1])
            );
        }
    }

    /// SYS-14: the first GID of the first active device stands in for loopback.
    #[test]
    fn without_loopback_the_first_active_device_is_used() {
        let first = first_active().unwrap();
        let devices = device::list().unwrap();
        assert_eq!((first.device.name(), first.index), (devices[0].name(), 0));
        assert_eq!(first.address, ip_of(&devices[0].table()[usize::from(first.sgid_index)].gid));
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        let e = binding_of("203.0.113.9".parse().unwrap(), 0).unwrap_err();
        assert_eq!(e.errno(), Errno::EADDRNOTAVAIL as i32, "{e}");
        assert!(e.to_string().contains("203.0.113.9"), "{e}");
        let e = binding_toward(Some("[::1]:1".parse().unwrap()), "127.0.0.1:1".parse().unwrap())
            .unwrap_err();
        assert_eq!(e.errno(), Errno::EINVAL as i32, "{e}");
    }
}
