//! The files below `/sys/class/infiniband`, `/sys/class/infiniband_verbs` and `/dev/infiniband` that a kernel driver would
//! provide for the devices, as a directory tree. The preloaded library leads programs there.
//!
//! The attributes are those that the drop-in library answers for itself (a test compares them).
use super::runtime::{self, Entry, Tree};
use adverb_device::Device;
use adverb_device::device::{DEFAULT_PKEY, GID_TABLE};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Makes the tree for these devices, or finds the one made before, and answers its root.
pub fn prepare(devices: &[Arc<Device>]) -> Result<PathBuf, String> {
    runtime::place_tree(&runtime::directory()?, "sysroot", &tree(devices))
}

/// The whole tree. Device number N of the list is `uverbsN`.
pub fn tree(devices: &[Arc<Device>]) -> Tree {
    let mut all = Tree::new();
    let mut file = |path: String, text: String| all.push((path.into(), Entry::File(text)));
    // What user space and kernel agree on since Linux 2.6.
    file("sys/class/infiniband_verbs/abi_version".into(), "6\n".into());
    for (number, device) in devices.iter().enumerate() {
        let verbs = format!("sys/class/infiniband_verbs/uverbs{number}");
        file(format!("{verbs}/ibdev"), format!("{}\n", device.name()));
        file(format!("{verbs}/abi_version"), "1\n".into());
        // Stands for the character device; the preloaded library gives programs one.
        file(format!("dev/infiniband/uverbs{number}"), String::new());
        device_files(device, &mut file);
    }
    for device in devices {
        let name = device.name();
        all.push((
            format!("sys/class/infiniband/{name}").into(),
            Entry::Link(Path::new("../../devices/virtual/infiniband").join(name)),
        ));
    }
    all
}

fn device_files(device: &Device, file: &mut impl FnMut(String, String)) {
    let root = format!("sys/devices/virtual/infiniband/{}", device.name());
    let interface = device.interface();
    let mut put = |path: &str, text: &str| file(format!("{root}/{path}"), format!("{text}\n"));
    let guid = colon_groups(&device.guid().to_be_bytes());
    put("node_type", "1: CA");
    put("node_guid", &guid);
    put("sys_image_guid", &guid);
    put("node_desc", "Adverb software RDMA device");
    put("fw_ver", env!("CARGO_PKG_VERSION"));
    put("hca_type", "adverb");
    put("board_id", "adverb");
    put("hw_rev", &adverb_device::device::HW_VER.to_string());

    let net = format!("device/net/{}", interface.name);
    put(&format!("{net}/address"), &interface.mac.map(|b| format!("{b:02x}")).join(":"));
    put(&format!("{net}/ifindex"), &interface.index.to_string());
    put(&format!("{net}/mtu"), &interface.mtu.to_string());
    put("device/vendor", &format!("0x{:06x}", adverb_device::device::VENDOR_ID));
    put("device/device", &format!("0x{:04x}", adverb_device::device::VENDOR_PART_ID));
    // No CPU is nearer to it than another.
    put("device/numa_node", "-1");

    put("ports/1/state", "4: ACTIVE");
    put("ports/1/phys_state", "5: LinkUp");
    put("ports/1/link_layer", "Ethernet");
    put("ports/1/rate", &rate(interface.speed));
    put("ports/1/lid", "0x0");
    put("ports/1/lid_mask_count", "0");
    put("ports/1/sm_lid", "0x0");
    put("ports/1/sm_sl", "0");
    put("ports/1/cap_mask", "0x04010000");
    put("ports/1/pkeys/0", &format!("0x{DEFAULT_PKEY:04x}"));
    let gids = device.gids();
    for index in 0..GID_TABLE {
        let gid = gids.get(index).copied().unwrap_or_default();
        put(&format!("ports/1/gids/{index}"), &colon_groups(&gid.0));
        if !gid.is_zero() {
            put(&format!("ports/1/gid_attrs/types/{index}"), "RoCE v2");
            put(&format!("ports/1/gid_attrs/ndevs/{index}"), &interface.name);
        }
    }
}

/// Bytes as sysfs prints GUIDs and GIDs: groups of four digits.
fn colon_groups(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (i, byte) in bytes.iter().enumerate() {
        if i > 0 && i % 2 == 0 {
            text.push(':');
        }
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The speed of the port in the kernel's words; loopback and the like have none and count as 10 Gb/s.
fn rate(mbit: Option<u32>) -> String {
    let mbit = mbit.filter(|m| *m > 0).unwrap_or(10_000);
    format!("{} Gb/sec ({}X)", f64::from(mbit) / 1000.0, if mbit > 50_000 { 4 } else { 1 })
}

#[cfg(test)]
mod tests;
