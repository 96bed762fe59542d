use super::*;

#[test]
fn every_device_has_its_files_and_numbers_count_from_zero() {
    let devices = adverb_device::device::list().unwrap();
    let tree = tree(&devices);
    let text = |path: &str| {
        tree.iter().find_map(|(p, e)| match e {
            TreeEntry::File(text) if p.as_os_str() == path => Some(text.as_str()),
            _ => None,
        })
    };
    assert_eq!(text("sys/class/infiniband_verbs/abi_version"), Some("6\n"));
    assert!(!devices.is_empty());
    for (n, device) in devices.iter().enumerate() {
        let name = device.name();
        let interface = &device.interface().name;
        let part = format!("sys/devices/virtual/adverb/{name}");
        assert_eq!(
            text(&format!("{part}/infiniband_verbs/uverbs{n}/ibdev")),
            Some(&*format!("{name}\n"))
        );
        assert_eq!(text(&format!("dev/infiniband/uverbs{n}")), Some(""));
        let at = |rest: &str| text(&format!("{part}/infiniband/{name}/{rest}"));
        assert_eq!(at("node_type"), Some("1: CA\n"));
        assert_eq!(at("ports/1/gid_attrs/types/0"), Some("RoCE v2\n"));
        assert_eq!(at("ports/1/gid_attrs/ndevs/0"), Some(&*format!("{interface}\n")));
        assert!(text(&format!("{part}/net/{interface}/address")).is_some());
        let gids = device.gids().len();
        assert_eq!(at(&format!("ports/1/gid_attrs/types/{gids}")), None, "that entry is empty");
        assert_eq!(
            at(&format!("ports/1/gids/{gids}")).map(|t| t.replace([':', '0'], "")),
            Some("\n".into())
        );
    }
}

/// SYS-2: on a machine with one node, the kernel reports 0 for a device whose firmware names the
/// node.
#[test]
fn with_one_node_the_device_is_near_it() {
    for (online, node) in [("0\n", 0), ("0-1\n", -1), ("0,2\n", -1), ("", -1)] {
        assert_eq!(numa_node(online), node, "{online:?}");
    }
}

/// SYS-2: every link leads to a directory of the tree.
#[test]
fn links_lead_to_names_of_the_tree() {
    let devices = adverb_device::device::list().unwrap();
    let tree = tree(&devices);
    let mut links = 0;
    for (path, entry) in &tree {
        let TreeEntry::Link(to) = entry else { continue };
        links += 1;
        let mut at = path.parent().unwrap().to_path_buf();
        for part in to.components() {
            match part {
                std::path::Component::ParentDir => assert!(at.pop(), "{path:?}"),
                part => at.push(part),
            }
        }
        assert!(
            tree.iter().any(|(other, _)| other.starts_with(&at) && *other != at),
            "{path:?} leads to {at:?}"
        );
    }
    assert_eq!(links, 1 + 7 * devices.len());
}
