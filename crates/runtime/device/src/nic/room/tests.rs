use super::*;
use crate::nic::ALL;
use adverb_engine::PathMtu;

const OWN: Limits = Limits {
    max_qp_wr: 1 << 17,
    max_sge: 32,
    max_inline: 1024,
    max_cqe: 1,
    max_rd_atomic: 1,
    max_srq_wr: 1,
    max_msg: 1,
    port_mtu: PathMtu::Mtu1024,
    ports: 1,
    pkeys: 1,
    gids: 1,
};

fn granted(name: Option<&str>, kind: QpType, sges: [u32; 2], inline: u32) -> (u32, u32, u32) {
    let nic = name.map(|name| Nic::by_name(name).unwrap());
    let limits = nic.map_or(OWN, |nic| nic.limits(OWN));
    let asked = QpCap {
        max_send_wr: 8,
        max_recv_wr: 8,
        max_send_sge: sges[0],
        max_recv_sge: sges[1],
        max_inline_data: inline,
    };
    let cap = grant(nic, &limits, kind, Operations::all(kind), asked);
    assert_eq!((cap.max_send_wr, cap.max_recv_wr), (8, 8));
    (cap.max_send_sge, cap.max_recv_sge, cap.max_inline_data)
}

/// NIC-6: the numbers follow the drivers' formulas.
#[test]
fn each_device_grants_what_its_driver_does() {
    use QpType::{RawPacket, Rc, Ud, XrcSend};
    for (nic, kind, sges, inline, expected) in [
        (None, Rc, [1, 1], 72, (4, 1, 72)),
        (None, Rc, [4, 3], 0, (4, 3, 64)),
        (None, Ud, [1, 1], 220, (13, 1, 220)),
        (None, Rc, [32, 1], 1024, (32, 1, 1024)),
        (None, Rc, [0, 0], 0, (0, 0, 0)),
        // An impossible request is answered with the request, and refused later.
        (None, Rc, [33, 1], 1025, (33, 1, 1025)),
        (Some("mlx5"), Rc, [1, 1], 0, (1, 1, 60)),
        (Some("mlx5"), Rc, [1, 1], 72, (1, 1, 124)),
        (Some("mlx5"), Rc, [4, 3], 220, (4, 4, 252)),
        (Some("mlx5"), Rc, [30, 30], 0, (30, 30, 508)),
        (Some("mlx5"), Rc, [1, 1], 828, (1, 1, 828)),
        (Some("mlx5"), Ud, [1, 1], 0, (1, 1, 60)),
        (Some("mlx5"), XrcSend, [1, 0], 0, (1, 1, 44)),
        (Some("mlx5"), RawPacket, [1, 1], 0, (1, 1, 12)),
        (Some("irdma"), Rc, [6, 3], 0, (6, 3, 0)),
        (Some("efa"), Ud, [2, 2], 32, (2, 2, 32)),
        (Some("siw"), Rc, [6, 3], 0, (6, 3, 80)),
    ] {
        assert_eq!(
            granted(nic, kind, sges, inline),
            expected,
            "{nic:?} {kind:?} {sges:?} {inline}"
        );
    }
}

/// NIC-6: the grant is never below the request, and otherwise within the limits.
#[test]
fn a_grant_is_never_less_nor_beyond_the_limits() {
    for nic in ALL.iter().map(Some).chain([None]) {
        let limits = nic.map_or(OWN, |nic| nic.limits(OWN));
        for kind in [QpType::Rc, QpType::Ud, QpType::XrcSend, QpType::RawPacket] {
            for sges in 0..=limits.max_sge {
                for inline in 0..=limits.max_inline {
                    let name = nic.map(|nic| nic.name);
                    let (send, recv, bytes) = granted(name, kind, [sges; 2], inline);
                    assert!(send >= sges && recv >= sges && bytes >= inline);
                    assert!(send <= limits.max_sge && recv <= limits.max_sge);
                    assert!(bytes <= limits.max_inline, "{name:?}: {bytes}");
                }
            }
        }
        for huge in [1 << 20, u32::MAX] {
            assert_eq!(
                granted(nic.map(|nic| nic.name), QpType::Rc, [huge; 2], huge),
                (huge, huge, huge)
            );
        }
    }
}

/// NIC-6: shared receive queues.
#[test]
fn a_shared_receive_queue_gets_what_its_requests_hold() {
    let mlx5 = Nic::by_name("mlx5").unwrap();
    let limits = mlx5.limits(OWN);
    for (asked, expected) in [(0, 1), (1, 1), (2, 3), (3, 3), (4, 7), (15, 15), (16, 30), (31, 31)]
    {
        assert_eq!(grant_srq(Some(mlx5), &limits, asked), expected, "{asked}");
        assert_eq!(grant_srq(None, &OWN, asked), asked);
    }
    assert_eq!(grant_srq(Some(mlx5), &limits, u32::MAX), u32::MAX);
}
