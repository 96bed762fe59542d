//! The devices in the output of `ibv_devinfo -v`.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::OnceLock;
use std::time::Duration;

use crate::process::{Program, words};

/// One device of `ibv_devinfo -v`.
#[derive(Clone, Debug, Default)]
pub struct Device {
    /// `hca_id`.
    pub name: String,
    /// All `key: value` lines in order, including those of the port.
    pub fields: Vec<(String, String)>,
    /// GID index, GID and type (`RoCE v2`).
    pub gids: Vec<(u32, Ipv6Addr, String)>,
}

impl Device {
    /// The value of the first line with this key.
    pub fn field(&self, key: &str) -> Option<&str> {
        self.fields.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// The value of a line, or an error that names device and key.
    ///
    /// # Errors
    /// The line is missing.
    pub fn need(&self, key: &str) -> Result<&str, String> {
        self.field(key).ok_or_else(|| format!("{}: ibv_devinfo -v prints no {key:?}", self.name))
    }

    /// The index of a RoCE v2 GID.
    pub fn gid_index(&self, gid: Ipv6Addr) -> Option<u32> {
        self.gids.iter().find(|(_, g, t)| *g == gid && t.contains("v2")).map(|(i, _, _)| *i)
    }
}

/// Reads the output of `ibv_devinfo -v`.
///
/// # Errors
/// A GID line cannot be parsed.
pub fn parse_devinfo(text: &str) -> Result<Vec<Device>, String> {
    let mut devices: Vec<Device> = Vec::new();
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else { continue };
        let (key, value) = (key.trim(), value.trim());
        if key == "hca_id" {
            devices.push(Device { name: value.to_string(), ..Device::default() });
            continue;
        }
        let Some(device) = devices.last_mut() else { continue };
        if let Some(index) = key.strip_prefix("GID[").and_then(|k| k.strip_suffix(']')) {
            let index = index.trim().parse().map_err(|e| format!("{line:?}: {e}"))?;
            let (gid, kind) = value.split_once(',').unwrap_or((value, ""));
            let gid = gid.trim().parse().map_err(|e| format!("{line:?}: {e}"))?;
            device.gids.push((index, gid, kind.trim().to_string()));
        } else {
            device.fields.push((key.to_string(), value.to_string()));
        }
    }
    Ok(devices)
}

/// All devices. The program runs once for each test binary.
///
/// # Errors
/// `ibv_devinfo -v` fails or lists nothing.
pub fn devices() -> Result<&'static [Device], String> {
    static DEVICES: OnceLock<Result<Vec<Device>, String>> = OnceLock::new();
    let found = DEVICES.get_or_init(|| listed(&Program::new("ibv_devinfo", &["-v"])));
    found.as_deref().map_err(Clone::clone)
}

/// The devices of `ADVERB_DEVICES=all`: one for each interface.
///
/// # Errors
/// As [`devices`].
pub fn devices_by_interface() -> Result<&'static [Device], String> {
    static DEVICES: OnceLock<Result<Vec<Device>, String>> = OnceLock::new();
    let program = Program::new("ibv_devinfo", &["-v"]).option("--device", "all");
    let found = DEVICES.get_or_init(|| listed(&program));
    found.as_deref().map_err(Clone::clone)
}

fn listed(devinfo: &Program) -> Result<Vec<Device>, String> {
    let out = devinfo.run_ok(Duration::from_secs(60))?;
    let list = parse_devinfo(&out.text)?;
    if list.is_empty() { Err(format!("no device:\n{}", out.describe())) } else { Ok(list) }
}

/// A device and a GID index, as arguments of programs.
#[derive(Clone, Debug)]
pub struct DeviceArgs {
    /// Device name.
    pub dev: String,
    /// GID index.
    pub gid: String,
}

impl DeviceArgs {
    /// Arguments that choose the device, and the GID by the option `gid`, before `more`.
    pub fn args(&self, gid: &str, more: &str) -> Vec<String> {
        words(format!("-d {} {gid} {} {more}", self.dev, self.gid))
    }

    /// The first of these devices with a GID.
    pub fn with_gid(devices: &[Device], gid: Ipv6Addr) -> Option<Self> {
        devices.iter().find_map(|device| {
            let index = device.gid_index(gid)?;
            Some(Self { dev: device.name.clone(), gid: index.to_string() })
        })
    }
}

/// The device with the RoCE v2 GID of 127.0.0.1, on which all pairs run.
///
/// # Errors
/// No device has this GID.
pub fn loopback() -> Result<DeviceArgs, String> {
    let gid = Ipv4Addr::LOCALHOST.to_ipv6_mapped();
    DeviceArgs::with_gid(devices()?, gid)
        .ok_or_else(|| format!("no device has the RoCE v2 GID {gid}: {:?}", devices()))
}

/// Arguments that choose the loopback device, and its GID by the option `gid`, before `more`.
///
/// # Errors
/// As [`loopback`].
pub fn on_loopback(gid: &str, more: &str) -> Result<Vec<String>, String> {
    Ok(loopback()?.args(gid, more))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = "hca_id:\tdev0\n\ttransport:\t\t\tInfiniBand (0)\n\tvendor_id:\t\t\t0x1234\n\
                          \t\tport:\t1\n\t\t\tstate:\t\t\tPORT_ACTIVE (4)\n\
                          \t\t\tGID[  0]:\t\tfe80::1, RoCE v2\n\t\t\tGID[  1]:\t\t::ffff:127.0.0.1, RoCE v2\n\
                          \nhca_id:\tdev1\n";

    #[test]
    fn devinfo_is_read_by_device_and_gid() {
        let list = parse_devinfo(SAMPLE).unwrap();
        assert_eq!(list.iter().map(|d| d.name.as_str()).collect::<Vec<_>>(), ["dev0", "dev1"]);
        assert_eq!(list[0].field("state"), Some("PORT_ACTIVE (4)"));
        assert_eq!(list[0].gid_index(Ipv4Addr::LOCALHOST.to_ipv6_mapped()), Some(1));
        assert_eq!(list[0].gid_index(Ipv6Addr::LOCALHOST), None);
    }

    #[test]
    fn an_unreadable_gid_is_an_error() {
        assert!(parse_devinfo("hca_id: d\n GID[ 0]: nonsense, RoCE v2\n").is_err());
    }
}
