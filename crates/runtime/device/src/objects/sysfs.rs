//! The files that the kernel would show for a device below `/sys/class/infiniband/NAME`. The
//! drop-in library and the tree of `adverb run` answer from this table, and through the tree also
//! the preloaded library.
use crate::objects::device::{DEFAULT_PKEY, Device, GID_TABLE, HW_VER};

/// Up to this speed in Mbit/s a port has one host connection, above four.
const ONE_X: u32 = 50_000;

/// The attributes of a device: paths and contents, without the newline.
#[must_use]
pub fn attributes(device: &Device) -> Vec<(String, String)> {
    let guid = groups(&device.guid().to_be_bytes());
    let interface = device.interface();
    let (state, physical) =
        if interface.up { ("4: ACTIVE", "5: LinkUp") } else { ("1: DOWN", "3: Disabled") };
    let fixed = [
        ("board_id", "adverb".into()),
        ("fw_ver", env!("CARGO_PKG_VERSION").into()),
        ("hca_type", "adverb".into()),
        ("hw_rev", HW_VER.to_string()),
        ("node_desc", "Adverb software RDMA device".into()),
        ("node_guid", guid.clone()),
        ("node_type", "1: CA".into()),
        ("sys_image_guid", guid),
        ("ports/1/cap_mask", "0x04010000".into()),
        ("ports/1/lid", "0x0".into()),
        ("ports/1/lid_mask_count", "0".into()),
        ("ports/1/link_layer", "Ethernet".into()),
        ("ports/1/phys_state", physical.into()),
        ("ports/1/pkeys/0", format!("{DEFAULT_PKEY:#06x}")),
        ("ports/1/rate", rate(interface.speed)),
        ("ports/1/sm_lid", "0x0".into()),
        ("ports/1/sm_sl", "0".into()),
        ("ports/1/state", state.into()),
    ];
    let mut files: Vec<(String, String)> = fixed.map(|(path, text)| (path.to_owned(), text)).into();
    for index in 0..GID_TABLE {
        let entry = device.table().get(index).copied().unwrap_or_default();
        files.push((format!("ports/1/gids/{index}"), groups(&entry.gid.0)));
        if !entry.gid.is_zero() {
            files.push((format!("ports/1/gid_attrs/types/{index}"), "RoCE v2".into()));
            files.push((format!("ports/1/gid_attrs/ndevs/{index}"), device.netdev(&entry).into()));
        }
    }
    files
}

/// Bytes in the format of GUIDs and GIDs in sysfs: groups of two bytes.
fn groups(bytes: &[u8]) -> String {
    let group = |pair: &[u8]| pair.iter().map(|b| format!("{b:02x}")).collect::<String>();
    bytes.chunks(2).map(group).collect::<Vec<_>>().join(":")
}

/// The speed of the port in the kernel's format.
fn rate(mbit: u32) -> String {
    format!("{} Gb/sec ({}X)", f64::from(mbit) / 1000.0, if mbit > ONE_X { 4 } else { 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_and_rates() {
        assert_eq!(groups(&[0, 1, 0xfe, 0xff]), "0001:feff");
        assert_eq!(rate(2500), "2.5 Gb/sec (1X)");
        assert_eq!(rate(10_000), "10 Gb/sec (1X)");
        assert_eq!(rate(100_000), "100 Gb/sec (4X)");
    }
}
