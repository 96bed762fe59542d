use super::memlock::has_capability;
use super::*;
use adverb_engine::PathMtu;
use adverb_engine::wr::Remote;
use adverb_engine::wr::{SendFlags, Sge};

fn nic(name: &str) -> &'static Nic {
    Nic::by_name(name).unwrap()
}

fn takes(nic: &Nic, op: SendOp, elements: usize) -> bool {
    let sges = vec![Sge::default(); elements];
    let wr = SendWr {
        wr_id: 0,
        flags: SendFlags::empty(),
        op,
        data: Payload::Sges(&sges),
        ud: None,
        xrc_srqn: 0,
    };
    nic.check_send(&wr).is_ok()
}

/// NIC-1: names of the table are accepted. For another name the answer lists the names.
#[test]
fn names_are_those_of_the_table() {
    assert!(ALL.iter().all(|nic| Nic::by_name(nic.name).unwrap().name == nic.name));
    let why = Nic::by_name("mlx6").unwrap_err();
    assert!(ALL.iter().all(|nic| why.contains(nic.name)), "{why}");
}

/// NIC-2: the requests that each NIC takes.
#[test]
fn requests_are_those_of_the_device() {
    let far = Remote { va: 0, rkey: 0 };
    let swap = SendOp::CompareSwap { remote: far, compare: 0, swap: 0 };
    let flush = SendOp::Flush { remote: far, len: 1, placement: 1, selectivity: 0 };
    for (op, on) in [
        (SendOp::Send, &["mlx5", "irdma", "efa", "siw"][..]),
        (SendOp::SendImm(1), &["mlx5", "irdma", "efa"]),
        (SendOp::SendInv(1), &["mlx5", "irdma", "siw"]),
        (SendOp::Write(far), &["mlx5", "irdma", "siw"]),
        (SendOp::WriteImm(far, 1), &["mlx5", "irdma"]),
        (SendOp::Read(far), &["mlx5", "irdma", "siw"]),
        (SendOp::LocalInv(1), &["mlx5", "irdma"]),
        (swap, &["mlx5"]),
        (flush, &[]),
    ] {
        let taken: Vec<_> =
            ALL.iter().filter(|nic| takes(nic, op, 1)).map(|nic| nic.name).collect();
        assert_eq!(taken, on, "{op:?}");
    }
    // iWARP reads into a single element.
    assert!(takes(nic("irdma"), SendOp::Read(far), 6) && !takes(nic("siw"), SendOp::Read(far), 2));
    assert!(takes(nic("siw"), SendOp::Write(far), 6));
}

/// NIC-2: sizes come from the NIC; limits of the machine stay.
#[test]
fn sizes_are_those_of_the_device() {
    let own = Limits {
        max_qp_wr: 1,
        max_sge: 1,
        max_inline: 1,
        max_cqe: 1,
        max_rd_atomic: 1,
        max_srq_wr: 1,
        max_msg: 9,
        port_mtu: PathMtu::Mtu1024,
        ports: 1,
        pkeys: 1,
        gids: 7,
    };
    let limits = nic("irdma").limits(own);
    let sizes =
        (limits.max_qp_wr, limits.max_sge, limits.max_inline, limits.max_cqe, limits.max_rd_atomic);
    assert_eq!(sizes, (4063, 6, 101, 1_048_574, 8));
    assert_eq!((limits.max_msg, limits.port_mtu, limits.gids), (9, PathMtu::Mtu1024, 7));
}

/// NIC-3: a reset in RESET is refused where the NIC refuses it. No other change is refused.
#[test]
fn a_second_reset_is_refused() {
    use QpState::{Err, Init, Reset};
    for nic in ALL {
        let refused = nic.check_change(Reset, Reset).is_err();
        assert_eq!(refused, nic.name == "irdma", "{}", nic.name);
        for (from, to) in [(Reset, Init), (Err, Reset), (Init, Reset), (Err, Err)] {
            nic.check_change(from, to).unwrap();
        }
    }
}

/// NIC-4: registered pages count against the limit while they are registered.
#[test]
fn pages_count_against_the_limit() {
    assert_eq!((pages_of(0, 0), pages_of(4095, 2), pages_of(4096, 4096)), (0, 2, 1));
    assert_eq!(pages_of(u64::MAX - 1, 1), 1);
    let all = Locked::within(3, u64::MAX).unwrap();
    let why = Locked::within(2, 4).unwrap_err();
    assert_eq!(why.errno(), nix::errno::Errno::ENOMEM as i32);
    assert!(why.to_string().contains("RLIMIT_MEMLOCK (ulimit -l) is 16 KiB"), "{why}");
    let more = Locked::within(1, 4).unwrap();
    drop((all, more));
    Locked::within(4, 4).unwrap();
    assert!(has_capability("Name:\tx\nCapEff:\t0000000000004000\n", 14));
    assert!(!has_capability("CapEff:\t000001ffffffbfff\n", 14) && !has_capability("", 14));
}
