use super::*;
use adverb_cm::Message;
use adverb_cm::mad::{Apr, Drep, Dreq, Lap, Mra, Rej, Rep, Req, Rtu, SidrRep, SidrReq};
use adverb_local::{self as slot, SLOT_BITS};
use adverb_os::sys::Insn;

/// Runs the instructions used by the program, as the kernel does.
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
            0x05 => at += k as usize,
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
fn program_maps_slots_steering_tests_and_strangers() {
    let code = program(&[(1, 4), (1022, 2), (513, 0)]);
    assert_eq!(run(&code, &packet(1 << 14, 9)), 4);
    assert_eq!(run(&code, &packet((1 << 14) | 0x3fff, 9)), 4);
    assert_eq!(run(&code, &packet((1022 << 14) | 7, 9)), 2);
    assert_eq!(run(&code, &packet(513 << 14, 9)), 0);
    assert_eq!(run(&code, &packet(514 << 14, 9)), u32::MAX);
    // The kernel's answer for a packet that ends before the loaded word: too short for a MAD.
    assert_eq!(run(&code, &packet(1, 9)), 0);
    assert_eq!(run(&code, &packet(0xff_ffff, 9)), u32::MAX);
    assert_eq!(run(&code, &packet(STEERING_QPN, 17)), 17);
}

#[test]
fn largest_table_fits_a_program() {
    let table: Vec<_> = (slot::MIN_SLOT..=slot::MAX_SLOT).map(|s| (s, u32::from(s))).collect();
    // BPF_MAXINSNS.
    assert!(program(&table).len() <= 4096);
}

#[test]
fn steering_test_survives_the_wire() {
    let test = SteeringTest { nonce: 0x0123_4567_89ab_cdef, index: 77, uid: 1000 };
    let bytes = test.encode();
    assert_eq!(crate::packet::dest_qpn(&bytes), STEERING_QPN);
    assert_eq!(SteeringTest::parse(&bytes), Some(test));
    assert_eq!(SteeringTest::parse(&bytes[..bytes.len() - 1]), None);
}

/// A MAD as received by queue pair 1.
fn mad(message: Message) -> Vec<u8> {
    let mut packet = packet(1, 9);
    packet.extend([0; 8]);
    packet.extend(message.emit(77));
    packet
}

/// RCM-12: the communication id in a MAD decides, as in the communication manager.
#[test]
fn rcm_12_mads_are_steered_to_the_process_that_they_answer() {
    let code = program(&[(1, 4), (1022, 2), (513, 0)]);
    let local_id = 1 << (32 - SLOT_BITS) | 9;
    for (slot, index) in [(1, 4), (1022, 2), (513, 0), (514, u32::MAX), (0, u32::MAX)] {
        let remote_id = slot << (32 - SLOT_BITS) | 0x2f_ffff;
        let answers: [Message; 9] = [
            Rep { local_id, remote_id, ..Rep::default() }.into(),
            Rtu { local_id, remote_id, ..Rtu::default() }.into(),
            Rej { local_id, remote_id, ..Rej::default() }.into(),
            Mra { local_id, remote_id, ..Mra::default() }.into(),
            Dreq { local_id, remote_id, ..Dreq::default() }.into(),
            Drep { local_id, remote_id, ..Drep::default() }.into(),
            Lap { local_id, remote_id, ..Lap::default() }.into(),
            Apr { local_id, remote_id, ..Apr::default() }.into(),
            SidrRep { request_id: remote_id, ..SidrRep::default() }.into(),
        ];
        for message in answers {
            let packet = mad(message);
            assert_eq!(
                adverb_cm::route(&packet[20..]),
                Ok(adverb_cm::Route::Id(adverb_cm::Id(remote_id)))
            );
            assert_eq!(run(&code, &packet), index, "slot {slot}");
        }
    }
    // Requests name a service, and a REJ without an id has no known receiver.
    let service_id = 1 << 54 | 513 << 22;
    for message in [
        Message::from(Req { local_id, service_id, ..Req::default() }),
        SidrReq { request_id: local_id, service_id, ..SidrReq::default() }.into(),
        Rej { local_id, ..Rej::default() }.into(),
    ] {
        assert_eq!(run(&code, &mad(message)), u32::MAX);
    }
    // Another management class.
    let mut other = mad(Rtu { local_id, remote_id: local_id, ..Rtu::default() }.into());
    other[21] = 3;
    assert_ne!(run(&code, &other), 4);
}
