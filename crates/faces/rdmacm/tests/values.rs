//! Translations that need no device.

use adverb_abi::rdma_user_cm::ib_path_rec_data;
use rdmacm::abi::cma::event_name;
use rdmacm::query::path_record;
use rdmacm::resolve::number;

/// A path in wire format is converted to the header's type, field by field (RCM-4).
#[test]
fn a_path_is_translated_field_by_field() {
    let mut raw = [0u8; 64];
    raw[8..24].copy_from_slice(&[0xd; 16]);
    raw[24..40].copy_from_slice(&[0x5; 16]);
    raw[40..42].copy_from_slice(&0x1234u16.to_be_bytes());
    raw[42..44].copy_from_slice(&0x5678u16.to_be_bytes());
    raw[44..48].copy_from_slice(&((0xabcde_u32 << 8) | 64).to_be_bytes());
    raw[48] = 104;
    raw[49] = 0x80 | 1;
    raw[50..52].copy_from_slice(&0xffffu16.to_be_bytes());
    raw[52..54].copy_from_slice(&0x0013u16.to_be_bytes());
    raw[54] = (2 << 6) | 5;
    raw[55] = (2 << 6) | 18;
    raw[56] = (2 << 6) | 16;
    let path = path_record(&ib_path_rec_data { flags: 3, reserved: 0, path_rec: raw });
    assert_eq!((path.dgid.bytes(), path.sgid.bytes()), ([0xd; 16], [0x5; 16]));
    assert_eq!((u16::from_be(path.dlid), u16::from_be(path.slid)), (0x1234, 0x5678));
    assert_eq!(
        (u32::from_be(path.flow_label), path.hop_limit, path.traffic_class),
        (0xabcde, 64, 104)
    );
    assert_eq!((path.reversible, path.numb_path, path.pkey, path.sl), (1, 1, 0xffff, 3));
    assert_eq!((path.mtu_selector, path.mtu), (2, 5));
    assert_eq!((path.rate_selector, path.rate), (2, 18));
    assert_eq!(
        (path.packet_life_time_selector, path.packet_life_time, path.preference),
        (2, 16, 3)
    );
}

#[test]
fn services_are_numbers_as_c_writes_them_or_names() {
    assert_eq!(number(b"7471"), Some(7471));
    assert_eq!(number(b" 0x1D2f"), Some(0x1d2f));
    assert_eq!(number(b"010"), Some(8));
    assert_eq!(number(b"0"), Some(0));
    for name in [&b"name"[..], b"", b"7x", b"0x", b"08"] {
        assert_eq!(number(name), None);
    }
}

/// Each event kind has its name (RCM-3).
#[test]
fn events_have_their_names() {
    assert_eq!(event_name(0), c"RDMA_CM_EVENT_ADDR_RESOLVED");
    assert_eq!(event_name(7), c"RDMA_CM_EVENT_UNREACHABLE");
    assert_eq!(event_name(15), c"RDMA_CM_EVENT_TIMEWAIT_EXIT");
    assert_eq!(event_name(17), c"RDMA_CM_EVENT_ADDRINFO_ERROR");
    assert_eq!(event_name(99), c"UNKNOWN EVENT");
}
