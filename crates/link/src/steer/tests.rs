use super::*;

/// Runs the few instructions the program is made of, as the kernel does.
fn run(code: &[Insn], packet: &[u8]) -> u32 {
    let (mut a, mut at) = (0u32, 0);
    loop {
        let Insn(op, jt, jf, k) = code[at];
        at += 1;
        match op {
            0x20 => match packet.get(k as usize..k as usize + 4) {
                Some(word) => a = u32::from_be_bytes(word.try_into().unwrap()),
                None => return 0,
            },
            0x54 => a &= k,
            0x74 => a >>= k,
            0x15 => at += usize::from(if a == k { jt } else { jf }),
            0x06 => return k,
            0x16 => return a,
            other => panic!("unexpected instruction {other:#x}"),
        }
    }
}

fn packet(qpn: u32, psn: u32) -> Vec<u8> {
    let mut packet = vec![0xff; 12];
    packet[5..8].copy_from_slice(&qpn.to_be_bytes()[1..]);
    packet[9..12].copy_from_slice(&psn.to_be_bytes()[1..]);
    packet
}

#[test]
fn program_maps_slots_probes_and_strangers() {
    let code = program(&[(1, 4), (1022, 2), (513, 0)]);
    assert_eq!(run(&code, &packet(1 << 14, 9)), 4);
    assert_eq!(run(&code, &packet((1 << 14) | 0x3fff, 9)), 4);
    assert_eq!(run(&code, &packet((1022 << 14) | 7, 9)), 2);
    assert_eq!(run(&code, &packet(513 << 14, 9)), 0);
    assert_eq!(run(&code, &packet(514 << 14, 9)), u32::MAX);
    assert_eq!(run(&code, &packet(1, 9)), u32::MAX);
    assert_eq!(run(&code, &packet(0xff_ffff, 9)), u32::MAX);
    assert_eq!(run(&code, &packet(PROBE_QPN, 17)), 17);
}

#[test]
fn largest_table_fits_a_program() {
    let table: Vec<_> = (slot::MIN_SLOT..=slot::MAX_SLOT).map(|s| (s, u32::from(s))).collect();
    // BPF_MAXINSNS.
    assert!(program(&table).len() <= 4096);
}

#[test]
fn probe_survives_the_wire() {
    let probe = Probe { nonce: 0x0123_4567_89ab_cdef, index: 77, uid: 1000 };
    let bytes = probe.encode();
    assert_eq!(crate::types::dest_qpn(&bytes), PROBE_QPN);
    assert_eq!(Probe::parse(&bytes), Some(probe));
    assert_eq!(Probe::parse(&bytes[..bytes.len() - 1]), None);
}
