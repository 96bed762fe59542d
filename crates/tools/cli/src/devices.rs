//! `adverb devices`: the devices that a program would see.
use crate::out::{out, outln};
use adverb_device::Device;
use adverb_device::interfaces::ip_of;
use serde::Serialize;
use std::fmt::Write;
use std::sync::Arc;

/// Lists the devices that programs will see
///
/// Each network interface that is up and has an address gives a device, loopback included.
#[derive(clap::Args)]
pub struct Args {
    /// Print JSON: an array with an object for each device
    #[arg(long)]
    json: bool,
}

/// The error message of every command that needs a device and finds none.
pub const NO_DEVICE: &str = "there is no device, because no network interface of this machine is \
                             up and has an address; `ip link set lo up` (as root, or in your own \
                             network namespace) brings up the loopback interface, which is enough";

pub fn main(args: &Args) -> Result<(), String> {
    let devices = adverb_device::device::list()
        .map_err(|e| format!("the network interfaces cannot be listed: {e}"))?;
    if args.json {
        outln!("{}", json(&devices)?);
        return Ok(());
    }
    if devices.is_empty() {
        return Err(NO_DEVICE.into());
    }
    out!("{}", table(&devices));
    Ok(())
}

/// One row for each GID. The columns of the device itself stand in its first row.
fn table(devices: &[Arc<Device>]) -> String {
    let mut rows = vec![
        ["device", "interface", "state", "MTU", "path MTU", "index", "GID", "address"]
            .map(String::from),
    ];
    for device in devices {
        let interface = device.interface();
        let gids = device.gids();
        for (index, gid) in gids.iter().enumerate() {
            let mut row = [const { String::new() }; 8];
            if index == 0 {
                row[0] = device.name().into();
                row[1] = interface.name.clone();
                row[2] = "active".into();
                row[3] = interface.mtu.to_string();
                row[4] = device.path_mtu().bytes().to_string();
            }
            row[5] = index.to_string();
            row[6] = gid.to_string();
            row[7] = ip_of(gid).to_string();
            rows.push(row);
        }
    }
    let width = |column: usize| rows.iter().map(|r| r[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..8).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(line, "{cell:width$}  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// A device in the output of `--json`.
#[derive(Serialize)]
struct Described<'d> {
    name: &'d str,
    interface: &'d str,
    state: &'static str,
    mtu: usize,
    path_mtu: usize,
    gids: Vec<String>,
}

impl<'d> Described<'d> {
    fn of(device: &'d Device) -> Self {
        Described {
            name: device.name(),
            interface: &device.interface().name,
            state: "active",
            mtu: device.interface().mtu,
            path_mtu: device.path_mtu().bytes(),
            gids: device.gids().iter().map(ToString::to_string).collect(),
        }
    }
}

fn json(devices: &[Arc<Device>]) -> Result<String, String> {
    let all: Vec<_> = devices.iter().map(|device| Described::of(device)).collect();
    serde_json::to_string(&all).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_lists_every_gid() {
        let devices = adverb_device::device::list().unwrap();
        let text = table(&devices);
        assert!(text.lines().next().unwrap().starts_with("device"));
        assert_eq!(text.lines().count(), 1 + devices.iter().map(|d| d.gids().len()).sum::<usize>());
        for device in &devices {
            assert!(text.contains(device.name()), "{text}");
        }
    }

    #[test]
    fn json_says_what_the_table_says() {
        let devices = adverb_device::device::list().unwrap();
        let read: serde_json::Value = serde_json::from_str(&json(&devices).unwrap()).unwrap();
        assert_eq!(read.as_array().unwrap().len(), devices.len());
        for (told, device) in read.as_array().unwrap().iter().zip(&devices) {
            assert_eq!(told["name"], device.name());
            assert_eq!(told["mtu"], device.interface().mtu);
            let gids: Vec<_> = device.gids().iter().map(ToString::to_string).collect();
            assert_eq!(told["gids"], serde_json::json!(gids));
        }
        assert_eq!(json(&[]).unwrap(), "[]");
    }
}
