//! A directory tree of the files that a kernel driver would provide for the devices: below
//! `/sys/class/infiniband`, `/sys/class/infiniband_verbs` and `/dev/infiniband`. The preloaded
//! library redirects programs to this tree.
//!
//! The attributes are the same as in the drop-in library (a test compares them).
use super::runtime;
use super::tree::{Tree, TreeEntry};
use adverb_device::Device;
use adverb_device::selection::{SELECTION_FILE, Selection};
use adverb_device::sysfs::attributes;
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;

/// Trees of this kind.
pub const KIND: &str = "sysroot";

/// Makes the tree for these devices, or finds an existing tree. Returns the root of the tree.
pub fn prepare(devices: &[Arc<Device>], selection: &Selection) -> Result<PathBuf, String> {
    runtime::place(KIND, &changeable(devices, selection)?)
}

/// The tree, with all that `rdma link add` needs: the command, and the selection.
pub fn changeable(devices: &[Arc<Device>], selection: &Selection) -> Result<Tree, String> {
    let mut tree = tree(devices);
    tree.push(("command".into(), TreeEntry::Link(super::own_path()?)));
    tree.push((SELECTION_FILE.into(), TreeEntry::File(selection.to_string())));
    Ok(tree)
}

/// The whole tree. Device number N of the list is `uverbsN`.
///
/// The files are of the same types as in the kernel's sysfs. An entry of a class is a symbolic link
/// to a directory of the device. In that directory, `device` is a symbolic link to the parent
/// device. All links are relative, as in the kernel, so the preloaded library answers their
/// targets, too.
pub fn tree(devices: &[Arc<Device>]) -> Tree {
    let mut all = Tree::new();
    let mut file = |path: String, text: String| all.push((path.into(), TreeEntry::File(text)));
    // The ABI version between user space and kernel since Linux 2.6.
    file("sys/class/infiniband_verbs/abi_version".into(), "6\n".into());
    // libibumad and librdmacm read these versions before looking at any device.
    file("sys/class/infiniband_mad/abi_version".into(), "5\n".into());
    file("sys/devices/virtual/misc/rdma_cm/abi_version".into(), "4\n".into());
    file("dev/infiniband/rdma_cm".into(), String::new());
    file("proc/sys/net/rdma_ucm/max_backlog".into(), "1024\n".into());
    file(NETLINK.into(), netlink(devices));
    for (number, device) in devices.iter().enumerate() {
        // Stands for the character device. The preloaded library gives programs a descriptor for
        // it.
        file(format!("dev/infiniband/uverbs{number}"), String::new());
        device_files(device, number, &mut file);
    }
    let mut link = |path: String, to: String| all.push((path.into(), TreeEntry::Link(to.into())));
    link("sys/class/misc/rdma_cm".into(), "../../devices/virtual/misc/rdma_cm".into());
    for (number, device) in devices.iter().enumerate() {
        let (name, interface) = (device.name(), &device.interface().name);
        let root = format!("devices/virtual/adverb/{name}");
        for (class, of) in [("infiniband", name), ("infiniband_verbs", &*format!("uverbs{number}"))]
        {
            let at = format!("{root}/{class}/{of}");
            link(format!("sys/class/{class}/{of}"), format!("../../{at}"));
            link(format!("sys/{at}/device"), format!("../../../{name}"));
            link(format!("sys/{at}/subsystem"), format!("../../../../../../class/{class}"));
        }
        link(format!("sys/{root}/net/{interface}/device"), format!("../../../{name}"));
    }
    all.push((SUPPRESSIONS.into(), TreeEntry::File(include_str!("tsan.supp").into())));
    all
}

/// A file of the tree: suppressions for ThreadSanitizer.
pub const SUPPRESSIONS: &str = "tsan.supp";

/// A file of the tree: the devices, from which the preloaded library answers netlink requests.
const NETLINK: &str = "nldev";

/// `IBV_DEVICE_*`, as `ibv_query_device` reports them (a test compares).
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
            up: device.interface().up,
        };
        let _ = writeln!(text, "{line}");
    }
    text
}

fn device_files(device: &Device, number: usize, file: &mut impl FnMut(String, String)) {
    let (name, interface) = (device.name(), device.interface());
    let root = format!("sys/devices/virtual/adverb/{name}");
    let mut put = |path: &str, text: &str| file(format!("{root}/{path}"), format!("{text}\n"));
    for (path, text) in attributes(device) {
        put(&format!("infiniband/{name}/{path}"), &text);
    }
    // The preloaded object answers with the values of the moment.
    for counter in adverb_nldev::COUNTERS {
        file(format!("{root}/infiniband/{name}/ports/1/hw_counters/{counter}"), String::new());
    }
    let mut put = |path: &str, text: &str| file(format!("{root}/{path}"), format!("{text}\n"));
    put(&format!("infiniband/{name}/uevent"), &format!("NAME={name}"));

    let verbs = format!("infiniband_verbs/uverbs{number}");
    put(&format!("{verbs}/ibdev"), name);
    put(&format!("{verbs}/abi_version"), "1");
    // The device numbers of the opened file: see `preload::path`.
    put(&format!("{verbs}/dev"), "1:3");
    put(
        &format!("{verbs}/uevent"),
        &format!("MAJOR=1\nMINOR=3\nDEVNAME=infiniband/uverbs{number}"),
    );

    let net = format!("net/{}", interface.name);
    put(&format!("{net}/address"), &interface.mac.map(|b| format!("{b:02x}")).join(":"));
    put(&format!("{net}/ifindex"), &interface.index.to_string());
    put(&format!("{net}/mtu"), &interface.mtu.to_string());
    put(&format!("{net}/dev_id"), "0x0");
    put(&format!("{net}/dev_port"), "0");
    put("vendor", &format!("0x{:06x}", adverb_device::device::VENDOR_ID));
    put("device", &format!("0x{:04x}", adverb_device::device::VENDOR_PART_ID));
    let nodes = std::fs::read_to_string("/sys/devices/system/node/online").unwrap_or_default();
    put("numa_node", &numa_node(&nodes).to_string());
}

/// The NUMA node of a device, from the kernel's list of online nodes. With several nodes, no node
/// is nearer to the device than another. Then the answer is -1, as for a device whose firmware
/// names no node.
fn numa_node(online: &str) -> i32 {
    online.trim().parse().unwrap_or(-1)
}

#[cfg(test)]
mod tests;
