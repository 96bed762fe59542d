use super::*;

#[test]
fn every_device_has_its_files_and_numbers_count_from_zero() {
    let devices = adverb_device::device::list().unwrap();
    let tree = tree(&devices);
    let text = |path: &str| {
        tree.iter().find_map(|(p, e)| match e {
            Entry::File(text) if p.as_os_str() == path => Some(text.as_str()),
            _ => None,
        })
    };
    assert_eq!(text("sys/class/infiniband_verbs/abi_version"), Some("6\n"));
    assert!(!devices.is_empty());
    for (n, device) in devices.iter().enumerate() {
        let name = device.name();
        assert_eq!(text(&format!("sys/class/infiniband_verbs/uverbs{n}/ibdev")), Some(&*format!("{name}\n")));
        assert_eq!(text(&format!("dev/infiniband/uverbs{n}")), Some(""));
        let at = |rest: &str| text(&format!("sys/devices/virtual/infiniband/{name}/{rest}"));
        assert_eq!(at("node_type"), Some("1: CA\n"));
        assert_eq!(at("ports/1/gid_attrs/types/0"), Some("RoCE v2\n"));
        let interface = &device.interface().name;
        assert_eq!(at("ports/1/gid_attrs/ndevs/0"), Some(&*format!("{interface}\n")));
        assert!(at(&format!("device/net/{interface}/address")).is_some());
        let gids = device.gids().len();
        assert_eq!(at(&format!("ports/1/gid_attrs/types/{gids}")), None, "that entry is empty");
        assert_eq!(at(&format!("ports/1/gids/{gids}")).map(|t| t.replace([':', '0'], "")), Some("\n".into()));
    }
}
