//! `adverb devices`: the devices that a program would see.
use crate::out::{out, outln};
use adverb_device::interfaces::{self, ip_of};
use adverb_device::selection::{self, Selection};
use adverb_device::{Device, GidEntry};
use serde::Serialize;
use std::fmt::Write;
use std::sync::Arc;

/// Lists the devices that programs will see
///
/// By default there is one device, adverb0. Its GIDs are the addresses of the interfaces that lead
/// to other hosts, and of loopback.
#[derive(clap::Args)]
pub struct Args {
    /// The devices: `all`, interfaces (lo,eth0), or names (rxe0, rxe0@eth0, rxe0@192.0.2.1)
    #[arg(long, value_name = "LIST")]
    device: Vec<Selection>,
    /// Print JSON: an array with an object for each device
    #[arg(long)]
    json: bool,
}

/// The error message of every command that needs a device and finds none.
pub const NO_DEVICE: &str = "there is no device, because no network interface of this machine has \
                             an address; `ip link set lo up` (as root, or in your own network \
                             namespace) brings up the loopback interface, which is enough";

/// The devices of the requested selection, or else of the variable `ADVERB_DEVICES`. The selection
/// is also that of this process.
///
/// # Errors
/// The selection has an item that gives no device.
pub fn selected(asked: &[Selection]) -> Result<Vec<Arc<Device>>, String> {
    let unlisted =
        |e: &dyn std::fmt::Display| format!("the network interfaces cannot be listed: {e}");
    if let Some(asked) = Selection::joined(asked) {
        selection::select(asked);
    }
    let all = interfaces::all().map_err(|e| unlisted(&e))?;
    if let Some(complaint) = selection::selection().complaint(&all) {
        let source = if asked.is_empty() { selection::VARIABLE } else { "--device" };
        return Err(format!("{source}: {complaint}"));
    }
    adverb_device::device::list().map_err(|e| unlisted(&e))
}

pub fn main(args: &Args) -> Result<(), String> {
    let devices = selected(&args.device)?;
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

fn state(device: &Device) -> &'static str {
    if device.interface().up { "active" } else { "down" }
}

/// One row for each GID. The columns of the device itself stand in its first row.
fn table(devices: &[Arc<Device>]) -> String {
    let mut rows = vec![
        ["device", "interface", "state", "MTU", "path MTU", "index", "GID", "address"]
            .map(String::from),
    ];
    for device in devices {
        let none = [GidEntry::default()];
        // A device without an address has a row, too.
        let table = if device.table().is_empty() { &none } else { device.table() };
        for (index, entry) in table.iter().enumerate() {
            let mut row = [const { String::new() }; 8];
            if index == 0 {
                row[0] = device.name().into();
                row[1] = device.interface().name.clone();
                row[2] = state(device).into();
            }
            if !entry.gid.is_zero() {
                row[1] = device.netdev(entry).into();
                row[3] = entry.mtu.to_string();
                row[4] = entry.path_mtu().bytes().to_string();
                row[5] = index.to_string();
                row[6] = entry.gid.to_string();
                row[7] = ip_of(&entry.gid).to_string();
            }
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
    /// The interface of each GID.
    netdevs: Vec<&'d str>,
}

fn json(devices: &[Arc<Device>]) -> Result<String, String> {
    let all = devices.iter().map(|device| Described {
        name: device.name(),
        interface: &device.interface().name,
        state: state(device),
        mtu: device.interface().mtu,
        path_mtu: device.path_mtu().bytes(),
        gids: device.gids().iter().map(ToString::to_string).collect(),
        netdevs: device.table().iter().map(|entry| device.netdev(entry)).collect(),
    });
    let all: Vec<_> = all.collect();
    serde_json::to_string(&all).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_lists_every_gid() {
        let mut devices = adverb_device::device::list().unwrap();
        devices.extend(adverb_device::device::loopback().unwrap());
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
