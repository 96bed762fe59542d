use super::*;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn tru_1_a_user_that_stands_for_others_proves_nothing() {
    let all = "         0          0 4294967295\n";
    assert!(told_apart(1000, 65534, None));
    assert!(told_apart(65534, 65534, Some(all)), "the first namespace knows everybody");
    assert!(!told_apart(65534, 65534, Some("         0     100000      65536\n")));
    assert!(!told_apart(65534, 65534, Some("     65534       1000          1\n")));
    assert!(!told_apart(65534, 65534, None));
}

#[test]
fn the_machine_knows_its_own_addresses() {
    let (ranges, _) = local_ranges().unwrap();
    for own in ["127.0.0.1", "127.9.9.9", "::1"] {
        assert!(within(&ranges, own.parse().unwrap()), "{own}: {ranges:?}");
    }
    for other in ["192.0.2.1", "2001:db8::1", "0.0.0.0"] {
        assert!(!within(&ranges, other.parse().unwrap()), "{other}: {ranges:?}");
    }
}

#[test]
fn ranges_end_where_they_end() {
    let ranges = vec![("10.1.2.0".parse().unwrap(), 24), ("fd00::".parse().unwrap(), 64)];
    for (ip, is) in [
        ("10.1.2.0", true),
        ("10.1.2.255", true),
        ("10.1.3.0", false),
        ("10.1.1.255", false),
        ("fd00::ffff", true),
        ("fd00:0:0:1::", false),
    ] {
        assert_eq!(within(&ranges, ip.parse().unwrap()), is, "{ip}");
    }
}

/// TRU-4: root, too, is told that the holder is the kernel.
#[test]
fn the_kernels_own_socket_is_known() {
    let line = |uid, inode| {
        format!(
            " 1234: 00000000:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000 {uid:5} 0 {inode} 2 0 0"
        )
    };
    assert_eq!(holder(&line(0, 0), 4791, |_| true), Some(Holder { uid: 0, kernel: true }));
    assert_eq!(holder(&line(77, 4711), 4791, |_| true), Some(Holder { uid: 77, kernel: false }));
    assert_eq!(holder(&line(77, 4711), 4792, |_| true), None);
    assert_eq!(holder("sl local_address", 4791, |_| true), None);
}

#[test]
fn the_kernel_says_who_holds_a_name_and_a_port() {
    let name = format!("adverb-test-holder-{}", std::process::id());
    let held = sys::message_socket(&sys::FdTable::new()).unwrap();
    sys::bind(&held, &sys::RawAddr::abstract_name(&name)).unwrap();
    let uid = sys::effective_uid();
    assert_eq!(holders(|n| n == name), BTreeMap::from([(uid, 1)]));
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    let own = Holder { uid, kernel: false };
    assert_eq!(port_holders("127.0.0.1".parse().unwrap(), port), [own]);
    assert_eq!(port_holders("127.0.0.2".parse().unwrap(), port), [own]);
    assert_eq!(port_holders("::1".parse().unwrap(), port), []);
}

/// The table is read in parts while other sockets are opened and closed.
#[test]
fn a_holder_is_found_among_sockets_that_come_and_go() {
    let open = || std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let still = AtomicBool::new(true);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while still.load(Ordering::Relaxed) {
                let many: Vec<_> = (0..100).map(|_| open()).collect();
                drop(many);
            }
        });
        let own = Holder { uid: sys::effective_uid(), kernel: false };
        let missed = (0..300).filter(|_| {
            let socket = open();
            let port = socket.local_addr().unwrap().port();
            port_holders("127.0.0.1".parse().unwrap(), port) != [own]
        });
        let missed = missed.count();
        still.store(false, Ordering::Relaxed);
        assert_eq!(missed, 0, "of 300");
    });
}
