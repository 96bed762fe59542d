use super::*;

fn of(text: &str) -> Selection {
    text.parse().unwrap()
}

fn machine() -> [Interface; 2] {
    [
        Interface::described(2, "eth0", &["192.0.2.1", "192.0.2.2", "fe80::1"]),
        Interface::described(1, "lo", &["127.0.0.1", "::1"]),
    ]
}

#[test]
fn sys_12_names_and_words() {
    let item = |name: &str, place: Option<&str>| Item {
        name: name.into(),
        place: place.map(str::to_owned),
    };
    assert_eq!(of(" "), Selection::Host);
    assert_eq!(of("all"), Selection::Items(vec![item("all", None)]));
    assert_eq!(of("lo, eth0,"), Selection::Items(vec![item("lo", None), item("eth0", None)]));
    let named = vec![item("rxe0", Some("lo")), item("mlx5_0", Some("::1"))];
    assert_eq!(of("rxe0@lo,mlx5_0@::1"), Selection::Items(named));
    for text in ["", "all", "lo,eth0", "rxe0@lo,mlx5_0@::1,rxe1", ","] {
        assert_eq!(of(text).to_string(), text);
    }
    assert_eq!(Selection::joined(&[of("rxe0@lo"), of("rxe1@lo")]), Some(of("rxe0@lo,rxe1@lo")));
    assert_eq!(Selection::joined(&[of("")]), Some(Selection::Host));
    assert_eq!(Selection::joined(&[]), None);
    let real = crate::interfaces::all().unwrap();
    assert_eq!(of("lo").complaint(&real), None);
    assert_eq!(of("all").complaint(&real), None);
}

/// SYS-17: an item gives a device with a name, on all interfaces, on one, or at one address.
#[test]
fn sys_17_an_item_is_a_device() {
    let all = machine();
    let only = |text: &str| {
        let (mut devices, complaints) = of(text).chosen(&all);
        assert_eq!((devices.len(), &complaints[..]), (1, &[][..]), "{text}");
        devices.remove(0)
    };
    let chosen = |name: &str, interface, address: Option<&str>, has_own_name| Chosen {
        name: name.into(),
        interface,
        address: address.map(|ip| ip.parse().unwrap()),
        has_own_name,
    };
    assert_eq!(only("eth0"), chosen("adverb_eth0", Some(2), None, false));
    assert_eq!(only("adverb0"), chosen("adverb0", None, None, false));
    assert_eq!(only("mlx5_0"), chosen("mlx5_0", None, None, true));
    assert_eq!(only("rxe0@eth0"), chosen("rxe0", Some(2), None, true));
    assert_eq!(only("rxe0@192.0.2.2"), chosen("rxe0", Some(2), Some("192.0.2.2"), true));
    assert_eq!(only("rxe0@127.7.8.9"), chosen("rxe0", Some(1), Some("127.7.8.9"), true));
    assert_eq!(of("a@lo,b@lo,c@lo").chosen(&all).0.len(), 3);
    let names: Vec<_> = of("all,rxe0@lo").chosen(&all).0.into_iter().map(|c| c.name).collect();
    assert_eq!(names, ["adverb_eth0", "adverb_lo", "rxe0"]);
    let unlisted: Vec<_> = of("lo,a@127.0.0.2,b@eth0,c@192.0.2.1").unlisted_addresses().collect();
    assert_eq!(unlisted, ["127.0.0.2".parse::<IpAddr>().unwrap()]);
}

/// SYS-17: an item that gives no device is named, with a remedy.
#[test]
fn sys_17_a_wrong_item_is_named() {
    let all = machine();
    let said = |text: &str| of(text).complaint(&all).unwrap();
    assert_eq!(said("rxe0@eth9"), "rxe0@eth9: there is no interface eth9; there are: eth0, lo");
    assert!(said("rxe0@192.0.2.9").contains("no interface has the address 192.0.2.9"));
    assert!(said("rxe0@lo,rxe0@eth0").starts_with("two devices are named rxe0: "));
    assert!(said("lo,adverb_lo@eth0").starts_with("two devices are named adverb_lo: "));
    assert!(said("lo,all").starts_with("two devices are named adverb_lo: "));
    for bad in ["@lo", "a/b@lo", ".@lo", "..", "a b@lo", "100%@lo", "a@b@lo", &"x".repeat(64)] {
        let said = said(bad);
        assert!(
            said.contains("cannot name a device") || said.contains("no interface b@lo"),
            "{said}"
        );
    }
    assert_eq!(of(&"x".repeat(63)).complaint(&all), None);
}

/// SYS-18: `rdma link add` puts a device at the end, and `rdma link delete` takes it away.
#[test]
fn sys_18_devices_come_and_go() {
    let rxe0: Item = "rxe0@lo".parse().unwrap();
    assert_eq!(of("").with(rxe0.clone()), of("adverb0,rxe0@lo"));
    assert_eq!(of("all").with(rxe0.clone()), of("all,rxe0@lo"));
    assert_eq!(of("adverb0,rxe0@lo").without("rxe0"), Some(of("adverb0")));
    assert_eq!(of("adverb0,rxe0@lo").without("adverb0"), None);
    assert_eq!(of("").without("adverb0"), None);
    let none = of("rxe0@lo").without("rxe0").unwrap();
    assert_eq!(none.to_string().parse::<Selection>().unwrap().chosen(&machine()).0, []);
    assert_ne!(none, Selection::Host);
}
