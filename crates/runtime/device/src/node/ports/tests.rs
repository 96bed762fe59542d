use super::*;

const SCOPE: DeviceScope = DeviceScope::Interface(7);

fn interface(index: u32, addresses: &[&str]) -> Interface {
    Interface::described(index, &index.to_string(), addresses)
}

fn state(members: &[Interface]) -> PortState {
    PortState::of(members, &[]).unwrap()
}

#[test]
fn sys_5_an_entry_keeps_its_place() {
    let table = |old: &[GidEntry], list: &[&str]| merged(old, &[interface(7, list)]);
    let shown = |table: &[GidEntry]| {
        let ip = |entry: &GidEntry| interfaces::ip_of(&entry.gid).to_string();
        let all =
            table.iter().map(|entry| if entry.gid.is_zero() { "-".into() } else { ip(entry) });
        all.collect::<Vec<String>>().join(" ")
    };
    let first = table(&[], &["192.0.2.1", "fe80::1", "2001:db8::1"]);
    assert_eq!(shown(&first), "192.0.2.1 fe80::1 2001:db8::1");
    // A new address goes behind the others, whatever its kind.
    let more = table(&first, &["192.0.2.1", "192.0.2.2", "fe80::1", "2001:db8::1"]);
    assert_eq!(shown(&more), "192.0.2.1 fe80::1 2001:db8::1 192.0.2.2");
    // A removed address leaves its entry to the next new address.
    let less = table(&more, &["192.0.2.1", "192.0.2.2", "2001:db8::1"]);
    assert_eq!(shown(&less), "192.0.2.1 - 2001:db8::1 192.0.2.2");
    let filled = table(&less, &["192.0.2.1", "192.0.2.2", "192.0.2.9", "2001:db8::1"]);
    assert_eq!(shown(&filled), "192.0.2.1 192.0.2.9 2001:db8::1 192.0.2.2");
    assert_eq!(table(&less, &[]), []);
    let many: Vec<String> = (0..100).map(|n| format!("192.0.2.{n}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(table(&less, &many).len(), GID_TABLE);
}

/// SYS-12: one table for several interfaces.
#[test]
fn sys_12_a_network_that_comes_is_a_gid_event() {
    let lo = interface(1, &["127.0.0.1", "::1"]);
    let (mut a, b) = (interface(2, &["192.0.2.1", "fe80::1"]), interface(3, &["fe80::1"]));
    let ports = Ports::default();
    let port = ports.open(DeviceScope::Host, || state(std::slice::from_ref(&lo)));
    assert_eq!(port.follow(&[a.clone(), b.clone(), lo.clone()], false), [AsyncEvent::GidChange]);
    let at = |port: &Port| {
        let of = |e: &GidEntry| (interfaces::ip_of(&e.gid).to_string(), e.interface);
        port.state().table.iter().map(of).collect::<Vec<_>>()
    };
    let with = |list: &[(&str, u32)]| {
        list.iter().map(|(ip, on)| ((*ip).to_owned(), *on)).collect::<Vec<_>>()
    };
    // Two interfaces may have the same link-local address.
    let all = [("127.0.0.1", 1), ("::1", 1), ("192.0.2.1", 2), ("fe80::1", 2), ("fe80::1", 3)];
    assert_eq!(at(&port), with(&all));
    // The first interface decides the state, and loopback is never the first beside another.
    a.up = false;
    assert_eq!(port.follow(&[a.clone(), lo.clone()], false)[0], AsyncEvent::PortErr);
    assert_eq!(port.follow(&[lo], false), [AsyncEvent::GidChange, AsyncEvent::PortActive]);
    let none = [AsyncEvent::PortErr, AsyncEvent::GidChange];
    assert_eq!(port.follow(&[], false), none, "and the device does not end");
}

/// SYS-12: the members of the device for all interfaces, in the order of the list.
#[test]
fn sys_12_bridges_of_this_host_are_no_members() {
    let all = [
        interface(2, &["192.0.2.1"]),
        interface(4, &[]),
        Interface { outward: false, ..interface(3, &["172.17.0.1"]) },
        interface(1, &["127.0.0.1"]),
    ];
    let indices =
        |scope: DeviceScope| scope.members(&all).iter().map(|i| i.index).collect::<Vec<_>>();
    assert_eq!(indices(DeviceScope::Host), [2, 1]);
    assert_eq!(indices(DeviceScope::Interface(3)), [3]);
    assert_eq!(indices(DeviceScope::Interface(4)), [4]);
}

#[test]
fn sys_5_each_change_has_its_event() {
    let mut interface = interface(7, &["192.0.2.1"]);
    let ports = Ports::default();
    let port = ports.open(SCOPE, || state(std::slice::from_ref(&interface)));
    let follow = |i: &Interface| port.follow(std::slice::from_ref(i), true);
    assert_eq!(follow(&interface), []);
    interface.mtu = 9000;
    assert_eq!((follow(&interface), port.path_mtu()), (vec![], PathMtu::Mtu4096));
    interface.up = false;
    assert_eq!(follow(&interface), [AsyncEvent::PortErr]);
    interface.addresses = vec!["192.0.2.2".parse().unwrap()];
    assert_eq!(follow(&interface), [AsyncEvent::GidChange]);
    interface.up = true;
    assert_eq!(follow(&interface), [AsyncEvent::PortActive]);
    let all = [AsyncEvent::PortErr, AsyncEvent::GidChange, AsyncEvent::DeviceFatal];
    assert_eq!(port.follow(&[], true), all);
    let removed =
        PortState { up: false, mtu: 9000, speed: 10_000, interfaces: vec![], table: vec![] };
    assert_eq!(port.state(), removed);
}

#[test]
fn sys_5_the_kernel_is_asked_again_for_a_port_that_is_new() {
    let news = InterfaceNews::new().unwrap();
    let ports = Ports::default();
    let of = |found: &[Interface]| found.iter().map(|i| i.index).collect::<Vec<_>>();
    let found = ports.look(Some(&news)).unwrap();
    let again = ports.look(Some(&news)).unwrap();
    assert_eq!(of(&found), of(&again));
    // The program's list shows the loopback interface as down. The port follows the kernel.
    let real = found.iter().find(|i| i.loopback && i.up).unwrap().clone();
    let scope = DeviceScope::Interface(real.index);
    let port = ports.open(scope, || state(&[Interface { up: false, ..real }]));
    assert!(!port.state().up);
    ports.look(Some(&news)).unwrap();
    assert!(port.state().up);
}
