//! Headers and the ICRC. Parsed headers are emitted with the same bytes, and the ICRC's solver
//! accepts exactly the covered bytes.
use crate::input::Input;
use adverb_wire::icrc::{IcrcFlow, IpMeta, Solver, UdpMeta, icrc};
use adverb_wire::{Headers, MAX_HEADER_LEN};

/// The first byte chooses the kind of the rest.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    match input.below(3) {
        0 => headers(input.take(usize::MAX)),
        _ => checksum(&mut input),
    }
}

fn headers(bytes: &[u8]) {
    let Ok((headers, payload)) = Headers::parse(bytes) else { return };
    assert!(headers.is_consistent(), "{headers:?}");
    let mut out = [0; MAX_HEADER_LEN];
    let n = headers.emit(&mut out);
    assert_eq!(n, headers.len());
    let pad = usize::from(headers.bth.pad);
    assert_eq!(n + payload.len() + pad, bytes.len(), "{headers:?}");
    let again = [&out[..n], payload, &[0; 3][..pad]].concat();
    assert_eq!(Headers::parse(&again), Ok((headers, payload)));
}

fn checksum(input: &mut Input<'_>) {
    let v6 = input.flag();
    let (id, hint) = (input.u16(), input.u16());
    let (at, bit) = (usize::from(input.u16()), input.below(8));
    let udp_ports = (input.u16(), input.u16());
    let ip = |id| {
        if v6 {
            IpMeta::V6 { src: [7; 16], dst: [9; 16] }
        } else {
            IpMeta::V4 { src: [10, 0, 0, 1], dst: [10, 0, 0, 2], id, dont_fragment: id & 1 != 0 }
        }
    };
    let packet = input.take(usize::MAX);
    let udp = UdpMeta {
        src_port: udp_ports.0,
        dst_port: udp_ports.1,
        len: (packet.len() as u16).wrapping_add(12),
    };
    let right = ip(id);
    let sum = icrc(&right, &udp, packet).to_le_bytes();
    // The solver knows everything except the identification.
    let flow = IcrcFlow::new(&right, &udp);
    let mut solver = Solver::new();
    assert_eq!(solver.verify(&flow, hint, packet, sum), Some(if v6 { 0 } else { id }));
    // A damaged packet passes only if some identification makes the ICRC right.
    if packet.is_empty() {
        return;
    }
    let mut damaged = packet.to_vec();
    let at = at % damaged.len();
    damaged[at] ^= 1 << bit;
    // The ICRC covers neither FECN and BECN nor the reserved bits beside them.
    let covered = at != 4;
    match solver.verify(&flow, hint, &damaged, sum) {
        None => assert!(covered),
        Some(found) => {
            let again = flow.icrc(found, &damaged).to_le_bytes();
            assert_eq!(again, sum, "an identification was found that is not right");
            assert!(!(v6 && covered), "damage went unnoticed");
        }
    }
}
