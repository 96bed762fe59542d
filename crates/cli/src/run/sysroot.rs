//! The files below `/sys/class/infiniband`, `/sys/class/infiniband_verbs` and `/dev/infiniband`
//! that a kernel driver would provide for the devices, as a directory tree. The preloaded library
//! leads programs there.
//!
//! The attributes are those that the drop-in library answers for itself (a test compares them).
use super::runtime;
use super::tree::{Entry, Tree};
use adverb_device::Device;
use adverb_device::sysfs::attributes;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Makes the tree for these devices, or finds the one made before, and answers its root.
pub fn prepare(devices: &[Arc<Device>]) -> Result<PathBuf, String> {
    runtime::place("sysroot", &tree(devices))
}

/// The whole tree. Device number N of the list is `uverbsN`.
pub fn tree(devices: &[Arc<Device>]) -> Tree {
    let mut all = Tree::new();
    let mut file = |path: String, text: String| all.push((path.into(), Entry::File(text)));
    // What user space and kernel agree on since Linux 2.6.
    file("sys/class/infiniband_verbs/abi_version".into(), "6\n".into());
    // What libibumad and librdmacm ask for before they look at any device.
    file("sys/class/infiniband_mad/abi_version".into(), "5\n".into());
    file("sys/class/misc/rdma_cm/abi_version".into(), "4\n".into());
    file("dev/infiniband/rdma_cm".into(), String::new());
    file("proc/sys/net/rdma_ucm/max_backlog".into(), "1024\n".into());
    file(NETLINK.into(), netlink(devices));
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
    all.push((SUPPRESSIONS.into(), Entry::File(include_str!("../../../preload/src/tsan.supp").into())));
    all
}

/// A file of the tree: what ThreadSanitizer is not to report.
pub const SUPPRESSIONS: &str = "tsan.supp";

/// A file of the tree: the devices as the preloaded library tells them to who asks by netlink.
const NETLINK: &str = "nldev";

/// `IBV_DEVICE_*`, as `ibv_query_device` says them (a test compares).
const CAPABILITIES: u64 = 0x2132_38c0;

fn netlink(devices: &[Arc<Device>]) -> String {
    let mut text = String::new();
    for (index, device) in (0..).zip(devices) {
        let line = adverb_nldev::Device {
            index,
            name: device.name().as_bytes(),
            guid: device.guid(),
            caps: CAPABILITIES,
            firmware: env!("CARGO_PKG_VERSION").as_bytes(),
            net_index: device.interface().index,
            net_name: device.interface().name.as_bytes(),
        };
        let _ = writeln!(text, "{line}");
    }
    text
}

fn device_files(device: &Device, file: &mut impl FnMut(String, String)) {
    let root = format!("sys/devices/virtual/infiniband/{}", device.name());
    let interface = device.interface();
    let mut put = |path: &str, text: &str| file(format!("{root}/{path}"), format!("{text}\n"));
    for (path, text) in attributes(device) {
        put(&path, &text);
    }

    let net = format!("device/net/{}", interface.name);
    put(&format!("{net}/address"), &interface.mac.map(|b| format!("{b:02x}")).join(":"));
    put(&format!("{net}/ifindex"), &interface.index.to_string());
    put(&format!("{net}/mtu"), &interface.mtu.to_string());
    put("device/vendor", &format!("0x{:06x}", adverb_device::device::VENDOR_ID));
    put("device/device", &format!("0x{:04x}", adverb_device::device::VENDOR_PART_ID));
    // No CPU is nearer to it than another.
    put("device/numa_node", "-1");
}

#[cfg(test)]
mod tests;
