//! Packets of another implementation: each packet parses, is emitted again byte for byte, and has
//! the right ICRC.
#![allow(clippy::disallowed_types, reason = "sets compared whole: their order does not matter")]

mod common;

use adverb_wire::icrc::{IcrcFlow, IpMeta, Solver, icrc};
use adverb_wire::{
    Headers, MAX_HEADER_LEN, NakCode, Opcode, Operation, ROCE_PORT, Syndrome, Transport,
    ud_source_port, udp_source_port,
};
use common::captured;
use std::collections::HashSet;

/// Number of packets in the captures.
const PACKETS: usize = 185;

#[test]
fn every_packet_parses_and_comes_out_the_same() {
    let all = captured();
    assert_eq!(all.len(), PACKETS);
    for p in &all {
        let (headers, payload) =
            Headers::parse(&p.datagram).unwrap_or_else(|e| panic!("{}: {e}", p.name));
        assert!(headers.is_consistent(), "{}", p.name);
        assert_eq!(p.udp.dst_port, ROCE_PORT, "{}", p.name);
        let mut out = [0xee; MAX_HEADER_LEN];
        let n = headers.emit(&mut out);
        assert_eq!(n, headers.len(), "{}", p.name);
        let pad = usize::from(headers.bth.pad);
        let again = [&out[..n], payload, &[0; 3][..pad]].concat();
        assert_eq!(again, p.datagram, "{}: {:?}", p.name, headers);
        assert!(headers.bth.opcode.carries_payload() || payload.is_empty(), "{}", p.name);
    }
}

#[test]
fn the_captures_hold_many_kinds() {
    let mut kinds = HashSet::new();
    let mut syndromes = HashSet::new();
    for p in captured() {
        let (headers, _) = Headers::parse(&p.datagram).unwrap();
        kinds.insert(headers.bth.opcode.to_string());
        syndromes.extend(headers.aeth.map(|a| a.syndrome));
    }
    // RC with immediate at the end of a longer message, and with invalidate, are in no capture. See
    // formats.rs and properties.rs.
    use Operation::{
        AtomicWrite, CongestionNotification, Flush, SendLastImm, SendLastInv, SendOnlyInv,
        WriteLastImm,
    };
    let absent = [
        AtomicWrite,
        CongestionNotification,
        Flush,
        SendLastImm,
        SendLastInv,
        SendOnlyInv,
        WriteLastImm,
    ];
    let wanted = Operation::ALL
        .iter()
        .filter(|o| !absent.contains(o))
        .map(|o| Opcode::new(Transport::Rc, *o).unwrap().to_string())
        .chain(["UD SEND Only".to_owned(), "UD SEND Only with Immediate".to_owned()]);
    assert_eq!(kinds, wanted.collect());
    let wanted = [
        Syndrome::ACK_NO_CREDITS,
        Syndrome::RnrNak { timer: 14 },
        Syndrome::RnrNak { timer: 20 },
        Syndrome::Nak(NakCode::PsnSequence),
        Syndrome::Nak(NakCode::RemoteAccess),
        Syndrome::Nak(NakCode::RemoteOperational),
    ];
    assert_eq!(syndromes, wanted.into());
}

/// The UDP source ports of QPs connected by hand and of UD QPs equal the ports that this crate
/// computes.
#[test]
fn source_ports_agree() {
    let all = captured();
    let of = |file: &'static str| all.iter().filter(move |p| p.name.starts_with(file));
    // Two machines, with equal QPNs by chance.
    for p in of("rc_ops.") {
        let qpn = Headers::parse(&p.datagram).unwrap().0.bth.dest_qpn;
        assert_eq!((qpn, p.udp.src_port), (17, udp_source_port(17, 17)), "{}", p.name);
    }
    let mut datagrams = 0;
    for p in of("ud.") {
        let deth = Headers::parse(&p.datagram).unwrap().0.deth.unwrap();
        assert_eq!(p.udp.src_port, ud_source_port(deth.src_qpn), "{}", p.name);
        datagrams += 1;
    }
    assert_eq!(datagrams, 8);
}

#[test]
fn every_icrc_verifies() {
    for p in captured() {
        assert_eq!(icrc(&p.ip, &p.udp, &p.datagram).to_le_bytes(), p.icrc, "{}", p.name);
    }
}

#[test]
fn the_identification_is_solved() {
    let mut solver = Solver::new();
    let mut nonzero = 0;
    for p in captured() {
        let IpMeta::V4 { id, .. } = p.ip else { unreachable!() };
        nonzero += usize::from(id != 0);
        let flow = IcrcFlow::new(&p.ip, &p.udp);
        for hint in [0, id, id.wrapping_sub(1), !id] {
            for solver in [&mut solver, &mut Solver::new()] {
                let solved = solver.verify(&flow, hint, &p.datagram, p.icrc);
                assert_eq!(solved, Some(id), "{} hint {hint}", p.name);
            }
        }
    }
    assert!(nonzero > PACKETS / 2, "the ids are to be worth solving: {nonzero}");
}

#[test]
fn damage_is_found() {
    let mut solver = Solver::new();
    for mut p in captured() {
        let last = p.datagram.len() - 1;
        p.datagram[last] ^= 1;
        assert_ne!(icrc(&p.ip, &p.udp, &p.datagram).to_le_bytes(), p.icrc, "{}", p.name);
        let flow = IcrcFlow::new(&p.ip, &p.udp);
        assert_eq!(solver.verify(&flow, 0, &p.datagram, p.icrc), None, "{}", p.name);
    }
}
