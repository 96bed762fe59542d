//! Checks interfaces, and whether packets cross them.
use super::finding::Finding;
use adverb_device::Device;
use adverb_device::engine::PathMtu;
use adverb_device::interfaces::Interface;
use adverb_os::detection::is_tentative;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

/// The usual minimum of the path MTU.
const USUAL: usize = 1024;
/// How long a packet may take within this machine.
const HANG_LIMIT: Duration = Duration::from_millis(500);

pub fn findings() -> Vec<Finding> {
    let devices = match adverb_device::device::list() {
        Ok(devices) => devices,
        Err(e) => {
            let remedy = "allow netlink: look at seccomp and at the container's profile";
            let found = format!("the interfaces cannot be listed: {e}");
            return vec![Finding::fail("interface", found, remedy)];
        }
    };
    if devices.is_empty() {
        let found = "there is no device, because no network interface has an address";
        let remedy = "`ip link set lo up`, as root or in your own network namespace";
        return vec![Finding::fail("interface", found, remedy)];
    }
    let each = || devices.iter().flat_map(|d| d.interfaces().iter().map(move |i| (d, i)));
    let mut all: Vec<_> = each().map(|(device, of)| interface(device, of)).collect();
    all.extend(each().flat_map(|(_, of)| loops(of)));
    all
}

fn interface(device: &Device, interface: &Interface) -> Finding {
    let path = PathMtu::for_interface(interface.mtu).bytes();
    let gids: Vec<_> = interface.addresses.iter().map(IpAddr::to_string).collect();
    let found = format!(
        "{}: device {}, MTU {}, path MTU {path}, {} GID{}: {}",
        interface.name,
        device.name(),
        interface.mtu,
        gids.len(),
        if gids.len() == 1 { "" } else { "s" },
        gids.join(", ")
    );
    if !interface.up {
        let remedy =
            format!("the port is down: `ip link set {} up`, or plug in the cable", interface.name);
        return Finding::warn("interface", format!("{found}; no carrier, or down"), remedy);
    }
    judged(found, path, &interface.name)
}

fn judged(found: String, path: usize, name: &str) -> Finding {
    let remedy =
        format!("programs that ask for a path MTU of {USUAL} fail: `ip link set {name} mtu 1500`");
    Finding::ok("interface", found).unless(path >= USUAL, remedy)
}

/// Sends a packet from an address to itself. A firewall or a missing route would stop the packet.
fn loops(interface: &Interface) -> Option<Finding> {
    let mut addresses = interface.addresses.iter().copied().filter(|_| interface.up);
    let ip = addresses.find(|ip| match ip {
        IpAddr::V4(_) => true,
        // A link-local address needs the number of its interface. An address under duplicate
        // address detection cannot be used yet.
        IpAddr::V6(v6) => !v6.is_unicast_link_local() && !is_tentative(v6),
    })?;
    Some(match crosses(ip) {
        Ok(()) => Finding::ok("packets", format!("UDP from {ip} to itself arrives")),
        Err(why) => Finding::fail(
            "packets",
            format!("UDP from {ip} to itself does not arrive: {why}"),
            "look for a firewall: `nft list ruleset` or `iptables -S`, as root; the firewall must \
             pass UDP port 4791 in and out",
        ),
    })
}

fn crosses(ip: IpAddr) -> Result<(), String> {
    let said = |e: std::io::Error| match e.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => "it is lost".to_owned(),
        _ => e.to_string(),
    };
    let (from, to) = (bound(ip).map_err(said)?, bound(ip).map_err(said)?);
    to.set_read_timeout(Some(HANG_LIMIT)).map_err(said)?;
    from.send_to(b"adverb doctor", to.local_addr().map_err(said)?).map_err(said)?;
    to.recv(&mut [0; 64]).map(drop).map_err(said)
}

fn bound(ip: IpAddr) -> std::io::Result<UdpSocket> {
    UdpSocket::bind(SocketAddr::new(ip, 0))
}

#[cfg(test)]
mod tests {
    use super::super::finding::State;
    use super::*;

    /// DOC-2: a small MTU is reported with a remedy.
    #[test]
    fn small_mtus_are_warned_of() {
        assert_eq!(judged("x".into(), 1024, "eth0").state, State::Ok);
        let small = judged("x".into(), 512, "eth0");
        assert_eq!(small.state, State::Warn);
        assert!(small.remedy.unwrap().contains("ip link set eth0 mtu 1500"));
    }
}
