//! The machine's interfaces and their addresses, from the kernel and not from the library under
//! test.

use std::net::{IpAddr, Ipv6Addr};
use std::process::Command;

use crate::process::output_of;

/// A network interface that is up.
#[derive(Clone, Debug)]
pub struct Interface {
    /// Name, for example `lo` or `eth0`.
    pub name: String,
    /// MTU: bytes of an IP packet.
    pub mtu: u32,
    /// Addresses, without prefix lengths.
    pub addrs: Vec<IpAddr>,
}

impl Interface {
    /// The GIDs that a RoCE v2 device on this interface must have: each IPv6 address, and each IPv4
    /// address mapped into IPv6.
    pub fn gids(&self) -> Vec<Ipv6Addr> {
        self.addrs
            .iter()
            .map(|a| match a {
                IpAddr::V4(v4) => v4.to_ipv6_mapped(),
                IpAddr::V6(v6) => *v6,
            })
            .collect()
    }

    /// The largest path MTU (256…4096) that fits with `overhead` bytes of headers.
    pub fn path_mtu(&self, overhead: u32) -> u32 {
        [4096, 2048, 1024, 512, 256].into_iter().find(|m| m + overhead <= self.mtu).unwrap_or(256)
    }
}

/// The interfaces that are up and have an address, from `ip -o addr` and `/sys/class/net`.
///
/// # Errors
/// `ip` is missing or prints unexpected output.
pub fn interfaces() -> Result<Vec<Interface>, String> {
    let out = output_of(Command::new("ip").args(["-o", "addr", "show", "up"]), "ip")?;
    let mut found: Vec<Interface> = Vec::new();
    for line in out.lines() {
        // 2: eth0    inet 192.0.2.2/24 brd ... ; a point-to-point interface is "eth0@if5".
        let f: Vec<&str> = line.split_whitespace().collect();
        let (Some(name), Some(family), Some(addr)) = (f.get(1), f.get(2), f.get(3)) else {
            continue;
        };
        if !matches!(*family, "inet" | "inet6") || line.contains("tentative") {
            continue;
        }
        let name = name.split('@').next().unwrap_or(name);
        let addr = addr.split('/').next().unwrap_or(addr);
        let addr: IpAddr = addr.parse().map_err(|e| format!("ip printed {line:?}: {e}"))?;
        match found.iter_mut().find(|i| i.name == name) {
            Some(i) => i.addrs.push(addr),
            None => {
                let mtu = std::fs::read_to_string(format!("/sys/class/net/{name}/mtu"))
                    .map_err(|e| format!("MTU of {name}: {e}"))?;
                let mtu = mtu.trim().parse().map_err(|e| format!("MTU of {name}: {e}"))?;
                found.push(Interface { name: name.to_string(), mtu, addrs: vec![addr] });
            }
        }
    }
    if found.is_empty() {
        Err("ip lists no interface that is up with an address".to_string())
    } else {
        Ok(found)
    }
}
