//! Formats: captures of Linux peers, and round trips.
#![allow(clippy::unusual_byte_groupings, reason = "groups are fields")]
use crate::bits::{Field, MAD_LEN};
use crate::ip::{IpHeader, IpHeaderError, PS_TCP, PS_UDP, port_of, service_id};
use crate::mad::{Answered, Ece, MadError, MadKind, Message, Rej, Rep, Req, SidrRep, SidrReq};
use crate::{Data, Id, QpKind, RejectReason, Route, answer_for_nobody, route};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use proptest::prelude::*;
use std::string::ToString;
use std::vec::Vec;

/// MADs that `rping` and `udaddy` sent over Linux's soft-RoCE (6.1), without the zeros at the end.
const REQ: &str = "01070203000000000000000263198802001000000000000002881963000000000000000001061c06505400fffe770003\
    000000000000000000001a0100000001000000a09e392fa7ffff37f0ffffffff00000000000000000000ffff0a4d0003\
    00000000000000000000ffff0a4d00028b25b00000400098000000000000000000000000000000000000000000000000\
    00000000000000000000000000000000000000000040cb0b0000000000000000000000000a4d00030000000000000000\
    000000000a4d0002";
const REP: &str = "010702030000000000000002631988020013000000000000ec2d4e69028819630000000000001a0000000000b73b8b00\
    010178e0505400fffe770002";
const RTU: &str = "01070203000000000000000263198802001400000000000002881963ec2d4e69";
const DREQ: &str = "01070203000000000000000263198802001500000000000002881963ec2d4e6900001a";
const DREP: &str = "010702030000000000000002631988020016000000000000ec2d4e6902881963";

/// SIDR_REQ and SIDR_REP of `udaddy`.
const SIDR_REQ: &str = "01070203000000000000000263198803001700000000000003881963ffff00000000000001111c06\
    0040944f0000000000000000000000000a4d00030000000000000000000000000a4d0002";
const SIDR_REP: &str = "01070203000000000000000263198803001800000000000003881963000000000000\
    1b000000000001111c0601234567";

pub(crate) const LINUX: [&str; 7] = [REQ, REP, RTU, DREQ, DREP, SIDR_REQ, SIDR_REP];

pub(crate) fn mad(hex: &str) -> [u8; MAD_LEN] {
    let mut mad = [0; MAD_LEN];
    for (n, pair) in hex.as_bytes().chunks(2).enumerate() {
        mad[n] = u8::from_str_radix(core::str::from_utf8(pair).unwrap(), 16).unwrap();
    }
    mad
}

fn parsed(hex: &str) -> Message {
    let mad = mad(hex);
    let (transaction, message) = Message::parse(&mad).unwrap();
    assert_eq!(message.emit(transaction), mad);
    message
}

/// CM-2.
#[test]
fn a_req_of_linux_is_read() {
    let Message::Req(req) = parsed(REQ) else { panic!("no REQ") };
    let address = |n| Ipv4Addr::new(10, 77, 0, n);
    let expected = Req {
        local_id: 0x0288_1963,
        service_id: service_id(PS_TCP, 7174),
        ca_guid: 0x5054_00ff_fe77_0003,
        qpn: 0x1a,
        responder_resources: 1,
        initiator_depth: 1,
        remote_response_timeout: 20,
        psn: 0x9e392f,
        local_response_timeout: 20,
        retry_count: 7,
        pkey: 0xffff,
        mtu: 3,
        rnr_retry_count: 7,
        max_cm_retries: 15,
        primary_local_lid: 0xffff,
        primary_remote_lid: 0xffff,
        primary_local_gid: address(3).to_ipv6_mapped(),
        primary_remote_gid: address(2).to_ipv6_mapped(),
        primary_flow_label: 0x8b25b,
        primary_hop_limit: 64,
        primary_ack_timeout: 19,
        private_data: req.private_data,
        ..Req::default()
    };
    assert_eq!(*req, expected);
    assert_eq!(req.qp_kind(), Some(QpKind::Rc));
    let (header, rest) = IpHeader::parse(&req.private_data).unwrap();
    assert_eq!(header.source, SocketAddr::new(address(3).into(), 0xcb0b));
    assert_eq!(header.destination, IpAddr::from(address(2)));
    assert_eq!(rest, [0; 56]);
    assert_eq!(header.to_bytes(), req.private_data[..36]);
    assert_eq!(route(&mad(REQ)), Ok(Route::Service(0x0106_1c06)));
}

/// CM-2.
#[test]
fn the_answers_of_linux_are_read() {
    let Message::Rep(rep) = parsed(REP) else { panic!("no REP") };
    let expected = Rep {
        local_id: 0xec2d_4e69,
        remote_id: 0x0288_1963,
        qpn: 0x1a,
        psn: 0xb73b8b,
        responder_resources: 1,
        initiator_depth: 1,
        target_ack_delay: 15,
        rnr_retry_count: 7,
        ca_guid: 0x5054_00ff_fe77_0002,
        ..Rep::default()
    };
    assert_eq!(*rep, expected);
    assert_eq!(rep.queue_pair(QpKind::Rc), 0x1a);
    assert_eq!(route(&mad(REP)), Ok(Route::Id(Id(0x0288_1963))));
    let Message::Rtu(rtu) = parsed(RTU) else { panic!("no RTU") };
    assert_eq!((rtu.local_id, rtu.remote_id), (0x0288_1963, 0xec2d_4e69));
    let Message::Dreq(dreq) = parsed(DREQ) else { panic!("no DREQ") };
    assert_eq!((dreq.local_id, dreq.remote_id, dreq.remote_qpn), (0x0288_1963, 0xec2d_4e69, 0x1a));
    let Message::Drep(drep) = parsed(DREP) else { panic!("no DREP") };
    assert_eq!((drep.local_id, drep.remote_id), (0xec2d_4e69, 0x0288_1963));
}

#[test]
fn datagram_lookups_of_linux_are_read() {
    let Message::SidrReq(req) = parsed(SIDR_REQ) else { panic!("no SIDR_REQ") };
    assert_eq!(
        (req.request_id, req.pkey, req.service_id),
        (0x0388_1963, 0xffff, service_id(PS_UDP, 7174))
    );
    assert_eq!(IpHeader::parse(&req.private_data).unwrap().0.source.port(), 0x944f);
    let Message::SidrRep(rep) = parsed(SIDR_REP) else { panic!("no SIDR_REP") };
    let expected = SidrRep {
        request_id: 0x0388_1963,
        qpn: 0x1b,
        service_id: service_id(PS_UDP, 7174),
        qkey: 0x0123_4567,
        ..SidrRep::default()
    };
    assert_eq!(*rep, expected);
    assert_eq!(route(&mad(SIDR_REP)), Ok(Route::Id(Id(0x0388_1963))));
}

/// Neighbouring fields must not overlap.
#[test]
fn bits_lie_where_the_specification_has_them() {
    let req = Req {
        remote_response_timeout: 0b10101,
        transport: 3,
        flow_control: true,
        ..Req::default()
    };
    assert_eq!(Message::from(req).emit(0)[67], 0b10101_11_1);
    let req = Req { local_response_timeout: 0b10001, retry_count: 0b101, ..Req::default() };
    assert_eq!(Message::from(req).emit(0)[71], 0b10001_101);
    let req = Req {
        mtu: 5,
        rdc_exists: true,
        rnr_retry_count: 6,
        max_cm_retries: 9,
        srq: true,
        ..Req::default()
    };
    assert_eq!(
        Message::from(Req { extended_transport: 1, ..req }).emit(0)[74..76],
        [0b0101_1_110, 0b1001_1_001]
    );
    let req = Req { primary_flow_label: 0xabcde, primary_packet_rate: 0x2f, ..Req::default() };
    assert_eq!(Message::from(req).emit(0)[112..116], [0xab, 0xcd, 0xe0, 0x2f]);
    let req = Req {
        primary_sl: 0xa,
        primary_subnet_local: true,
        primary_ack_timeout: 31,
        ..Req::default()
    };
    assert_eq!(Message::from(req).emit(0)[118..120], [0xa8, 0xf8]);
    let ece = Req { ece_vendor_id: 0x0002c9, ece_attr_mod: 0x1122_3344, ..Req::default() };
    let mad = Message::from(ece.clone()).emit(0);
    assert_eq!((&mad[20..24], &mad[28..32]), (&[0x11, 0x22, 0x33, 0x44][..], &[0, 0, 2, 0xc9][..]));
    assert_eq!(ece.ece(), Ece { vendor_id: 0x2c9, attr_mod: 0x1122_3344 });
    let rep = Rep { ece_vendor_high: 1, ece_vendor_middle: 2, ece_vendor_low: 3, ..Rep::default() };
    assert_eq!(rep.ece().vendor_id, 0x010203);
    let mad = Message::from(rep).emit(0);
    assert_eq!((mad[39], mad[43], mad[47]), (1, 2, 3));
    let rep = Rep {
        target_ack_delay: 31,
        failover: 2,
        flow_control: true,
        rnr_retry_count: 5,
        srq: true,
        ..Rep::default()
    };
    assert_eq!(Message::from(rep).emit(0)[50..52], [0b11111_10_1, 0b101_1_0000]);
    let rej = Rej { message: Answered::Rep as u8, info_len: 72, reason: 0x1234, ..Rej::default() };
    assert_eq!(Message::from(rej).emit(0)[32..36], [0b01_000000, 72 << 1, 0x12, 0x34]);
    let rep =
        SidrRep { status: 9, info_len: 8, qpn: 0x0a0b0c, qkey: 0x01020304, ..SidrRep::default() };
    let mad = Message::from(rep).emit(0);
    assert_eq!(
        (&mad[28..30], &mad[32..35], &mad[44..48]),
        (&[9, 8][..], &[10, 11, 12][..], &[1, 2, 3, 4][..])
    );
    let xrc = Rep { qpn: 1, eecn: 2, ..Rep::default() };
    assert_eq!((xrc.queue_pair(QpKind::Xrc), xrc.queue_pair(QpKind::Uc)), (2, 1));
}

#[test]
fn what_is_no_cm_message_is_named() {
    let good = mad(RTU);
    let spoiled = |at: usize, byte: u8| {
        let mut mad = good;
        mad[at] = byte;
        Message::parse(&mad).unwrap_err()
    };
    assert_eq!(Message::parse(&good[..255]).unwrap_err(), MadError::Length(255));
    assert_eq!(spoiled(0, 2), MadError::BaseVersion(2));
    assert_eq!(spoiled(1, 3), MadError::Class(3));
    assert_eq!(spoiled(2, 1), MadError::ClassVersion(1));
    assert_eq!(spoiled(3, 0x83), MadError::Method(0x83));
    assert_eq!(spoiled(17, 0x1b), MadError::Attribute(0x1b));
    assert_eq!(spoiled(17, 0x1b).to_string(), "no CM message has the attribute id 0x001b");
    assert_eq!(route(&[]), Err(MadError::Length(0)));
}

#[test]
fn rej_info_never_reaches_beyond_its_bytes() {
    let rej = Rej { info_len: 127, ..Rej::default() };
    assert_eq!(rej.info().len(), 72);
}

/// CM-9.
#[test]
fn nobody_answers_what_is_owed() {
    let answered =
        |hex: &str| answer_for_nobody(&mad(hex)).map(|mad| Message::parse(&mad).unwrap());
    let Some((transaction, Message::Rej(rej))) = answered(REQ) else { panic!("no REJ") };
    assert_eq!(
        (rej.reason(), rej.remote_id, rej.local_id),
        (RejectReason::INVALID_SERVICE_ID, 0x0288_1963, 0)
    );
    assert_eq!((transaction, rej.message), (0x2_6319_8802, Answered::Req as u8));
    let Some((_, Message::Rej(rej))) = answered(REP) else { panic!("no REJ") };
    assert_eq!((rej.reason, rej.message, rej.remote_id), (6, Answered::Rep as u8, 0xec2d_4e69));
    assert!(answered(RTU).is_none(), "the sender of an RTU waits for nothing");
    let Some((_, Message::Drep(drep))) = answered(DREQ) else { panic!("no DREP") };
    assert_eq!((drep.local_id, drep.remote_id), (0xec2d_4e69, 0x0288_1963));
    assert!(answered(DREP).is_none(), "an answer is never answered");
    let asked = SidrReq { request_id: 5, service_id: 6, ..SidrReq::default() };
    let mad = answer_for_nobody(&Message::from(asked).emit(7)).unwrap();
    let Ok((7, Message::SidrRep(rep))) = Message::parse(&mad) else { panic!("no SIDR_REP") };
    assert_eq!((rep.request_id, rep.service_id, rep.status), (5, 6, 1));
    assert_eq!(route(&mad), Ok(Route::Id(Id(5))));
    let rej = Rej { local_id: 3, ..Rej::default() };
    assert_eq!(route(&Message::from(rej).emit(1)), Ok(Route::All));
}

#[test]
fn ip_headers_are_read_and_refused() {
    let v6 = IpHeader::new("[fd77::2]:18515".parse().unwrap(), "fd77::3".parse().unwrap()).unwrap();
    let bytes = v6.to_bytes();
    assert_eq!((bytes[0], bytes[1], &bytes[2..4]), (0, 0x60, &18515_u16.to_be_bytes()[..]));
    assert_eq!(bytes[4..20], "fd77::2".parse::<Ipv6Addr>().unwrap().octets());
    assert_eq!(IpHeader::parse(&bytes), Ok((v6, &[][..])));
    assert_eq!(IpHeader::parse(&bytes[..35]), Err(IpHeaderError::TooShort(35)));
    let mut other = bytes;
    other[0] = 0x10;
    assert_eq!(
        IpHeader::parse(&other).unwrap_err().to_string(),
        "RDMA IP CM header of version 1.0, expected 0.0"
    );
    other = bytes;
    other[1] = 0x50;
    assert_eq!(IpHeader::parse(&other), Err(IpHeaderError::IpVersion(5)));
    assert!(IpHeader::new("10.0.0.1:1".parse().unwrap(), "fd77::3".parse().unwrap()).is_none());
    assert_eq!(port_of(service_id(PS_TCP, 7174)), Some((PS_TCP, 7174)));
    assert_eq!(port_of(1 << 32), None);
}

/// CM-6.
#[test]
fn reasons_have_sentences_of_their_own() {
    let sentences: std::collections::BTreeSet<_> =
        RejectReason::ALL.iter().map(|r| r.sentence()).collect();
    assert_eq!(sentences.len(), RejectReason::ALL.len());
    assert!(RejectReason::ALL.iter().all(|r| r.name().is_some()));
    assert_eq!(
        RejectReason(8).to_string(),
        "no program listens on this port (service id) at the peer (reject reason 8)"
    );
    assert_eq!(
        RejectReason(99).to_string(),
        "the peer gave a reason that is not defined (reject reason 99)"
    );
    assert_eq!(
        (RejectReason(10).name(), RejectReason(34).name()),
        (Some("STALE_CONNECTION"), None)
    );
}

#[test]
fn data_is_refused_when_it_is_too_long() {
    assert_eq!(Data::<4>::new(&[1, 2]).unwrap().0, [1, 2, 0, 0]);
    let error = Data::<4>::new(&[0; 5]).unwrap_err();
    assert_eq!(error.to_string(), "5 bytes of private data, the message has room for 4");
}

proptest! {
    /// A field returns the value that was written, and writing changes nothing else.
    #[test]
    fn fields_hold_what_they_are_given(
        byte in 0_usize..240, bit in 0_usize..8, width in 1_usize..=64,
        value: u64, noise in proptest::collection::vec(any::<u8>(), MAD_LEN),
    ) {
        let field = Field::new(byte, bit, width);
        let before: [u8; MAD_LEN] = noise.try_into().unwrap();
        let mut mad = before;
        field.set(&mut mad, u128::from(value));
        prop_assert_eq!(field.get(&mad), u128::from(value) & (u128::MAX >> (128 - width)));
        let changed: Vec<usize> =
            (0..MAD_LEN * 8).filter(|&n| (mad[n / 8] ^ before[n / 8]) & 0x80 >> (n % 8) != 0).collect();
        prop_assert!(changed.iter().all(|n| (byte * 8 + bit..byte * 8 + bit + width).contains(n)));
    }

    /// For any bytes, a message that is parsed, emitted and parsed again stays the same.
    #[test]
    fn messages_survive_a_round_trip(
        kind in 0_usize..MadKind::ALL.len(),
        bytes in proptest::collection::vec(any::<u8>(), MAD_LEN - 24),
        transaction: u64, modifier: u32,
    ) {
        let mut mad = [0; MAD_LEN];
        mad[..4].copy_from_slice(&[1, 7, 2, 3]);
        mad[8..16].copy_from_slice(&transaction.to_be_bytes());
        mad[16..18].copy_from_slice(&(MadKind::ALL[kind] as u16).to_be_bytes());
        mad[20..24].copy_from_slice(&modifier.to_be_bytes());
        mad[24..].copy_from_slice(&bytes);
        let (got, message) = Message::parse(&mad).unwrap();
        prop_assert_eq!(got, transaction);
        prop_assert_eq!(message.kind(), MadKind::ALL[kind]);
        let again = message.emit(transaction);
        prop_assert_eq!(Message::parse(&again).unwrap(), (transaction, message));
        // Only reserved bits may be lost.
        prop_assert!(mad.iter().zip(&again).all(|(old, new)| new & !old == 0));
    }

    /// No bytes make a parser panic.
    #[test]
    fn any_bytes_can_be_read(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = Message::parse(&bytes);
        let _ = route(&bytes);
        let _ = answer_for_nobody(&bytes);
        let _ = IpHeader::parse(&bytes);
    }
}
