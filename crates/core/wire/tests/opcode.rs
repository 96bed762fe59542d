//! The opcode table against the specification's table 38.
use adverb_wire::{MAX_HEADER_LEN, Opcode, Operation, Transport};

/// Opcode byte, bytes of headers, words.
const SPEC: &[(u8, usize, &str)] = &[
    (0x00, 12, "RC SEND First"),
    (0x01, 12, "RC SEND Middle"),
    (0x02, 12, "RC SEND Last"),
    (0x03, 16, "RC SEND Last with Immediate"),
    (0x04, 12, "RC SEND Only"),
    (0x05, 16, "RC SEND Only with Immediate"),
    (0x06, 28, "RC RDMA WRITE First"),
    (0x07, 12, "RC RDMA WRITE Middle"),
    (0x08, 12, "RC RDMA WRITE Last"),
    (0x09, 16, "RC RDMA WRITE Last with Immediate"),
    (0x0a, 28, "RC RDMA WRITE Only"),
    (0x0b, 32, "RC RDMA WRITE Only with Immediate"),
    (0x0c, 28, "RC RDMA READ Request"),
    (0x0d, 16, "RC RDMA READ response First"),
    (0x0e, 12, "RC RDMA READ response Middle"),
    (0x0f, 16, "RC RDMA READ response Last"),
    (0x10, 16, "RC RDMA READ response Only"),
    (0x11, 16, "RC Acknowledge"),
    (0x12, 24, "RC ATOMIC Acknowledge"),
    (0x13, 40, "RC CmpSwap"),
    (0x14, 40, "RC FetchAdd"),
    (0x16, 16, "RC SEND Last with Invalidate"),
    (0x17, 16, "RC SEND Only with Invalidate"),
    (0x1c, 32, "RC FLUSH"),
    (0x1d, 28, "RC ATOMIC WRITE"),
    (0x20, 12, "UC SEND First"),
    (0x21, 12, "UC SEND Middle"),
    (0x22, 12, "UC SEND Last"),
    (0x23, 16, "UC SEND Last with Immediate"),
    (0x24, 12, "UC SEND Only"),
    (0x25, 16, "UC SEND Only with Immediate"),
    (0x26, 28, "UC RDMA WRITE First"),
    (0x27, 12, "UC RDMA WRITE Middle"),
    (0x28, 12, "UC RDMA WRITE Last"),
    (0x29, 16, "UC RDMA WRITE Last with Immediate"),
    (0x2a, 28, "UC RDMA WRITE Only"),
    (0x2b, 32, "UC RDMA WRITE Only with Immediate"),
    (0x64, 20, "UD SEND Only"),
    (0x65, 24, "UD SEND Only with Immediate"),
    (0x81, 12, "CNP"),
    (0xa0, 16, "XRC SEND First"),
    (0xa1, 16, "XRC SEND Middle"),
    (0xa2, 16, "XRC SEND Last"),
    (0xa3, 20, "XRC SEND Last with Immediate"),
    (0xa4, 16, "XRC SEND Only"),
    (0xa5, 20, "XRC SEND Only with Immediate"),
    (0xa6, 32, "XRC RDMA WRITE First"),
    (0xa7, 16, "XRC RDMA WRITE Middle"),
    (0xa8, 16, "XRC RDMA WRITE Last"),
    (0xa9, 20, "XRC RDMA WRITE Last with Immediate"),
    (0xaa, 32, "XRC RDMA WRITE Only"),
    (0xab, 36, "XRC RDMA WRITE Only with Immediate"),
    (0xac, 32, "XRC RDMA READ Request"),
    (0xad, 16, "XRC RDMA READ response First"),
    (0xae, 12, "XRC RDMA READ response Middle"),
    (0xaf, 16, "XRC RDMA READ response Last"),
    (0xb0, 16, "XRC RDMA READ response Only"),
    (0xb1, 16, "XRC Acknowledge"),
    (0xb2, 24, "XRC ATOMIC Acknowledge"),
    (0xb3, 44, "XRC CmpSwap"),
    (0xb4, 44, "XRC FetchAdd"),
    (0xb6, 20, "XRC SEND Last with Invalidate"),
    (0xb7, 20, "XRC SEND Only with Invalidate"),
    (0xbc, 36, "XRC FLUSH"),
    (0xbd, 32, "XRC ATOMIC WRITE"),
];

#[test]
fn the_table_is_the_specifications() {
    for byte in 0..=255u8 {
        let found = Opcode::from_u8(byte).map(|op| (op.as_u8(), op.header_len(), op.to_string()));
        let wanted = SPEC.iter().find(|s| s.0 == byte).map(|s| (s.0, s.1, s.2.to_owned()));
        assert_eq!(found, wanted, "{byte:#04x}");
    }
    assert_eq!(MAX_HEADER_LEN, 44);
}

#[test]
fn transport_and_operation_make_the_opcode() {
    let mut made = 0;
    for transport in [Transport::Rc, Transport::Uc, Transport::Ud, Transport::Cnp, Transport::Xrc] {
        for operation in Operation::ALL {
            if let Some(op) = Opcode::new(transport, *operation) {
                assert_eq!(Opcode::from_u8(op.as_u8()), Some(op));
                assert_eq!((op.transport(), op.operation()), (transport, *operation));
                made += 1;
            }
        }
    }
    assert_eq!(made, SPEC.len());
    assert_eq!(Opcode::new(Transport::Uc, Operation::ReadRequest), None);
    assert_eq!(Opcode::new(Transport::Ud, Operation::SendFirst), None);
    assert_eq!(Opcode::new(Transport::Rc, Operation::CongestionNotification), None);
}

#[test]
fn place_in_message_follows_the_words() {
    for op in SPEC.iter().filter_map(|s| Opcode::from_u8(s.0)) {
        let words = op.to_string();
        let has = |w: &str| words.contains(w);
        assert_eq!(op.is_first(), has("First"), "{op}");
        assert_eq!(op.is_middle(), has("Middle"), "{op}");
        assert_eq!(op.is_last(), has("Last"), "{op}");
        assert_eq!(op.is_only(), !has("First") && !has("Middle") && !has("Last"), "{op}");
        assert_eq!(op.starts_message(), op.is_first() || op.is_only(), "{op}");
        assert_eq!(op.ends_message(), op.is_last() || op.is_only(), "{op}");
        assert_eq!(op.is_response(), has("response") || has("Acknowledge"), "{op}");
        assert_eq!(op.is_request(), !op.is_response() && op != Opcode::CNP, "{op}");
        assert_eq!(op.has_imm(), has("Immediate"), "{op}");
        assert_eq!(op.has_ieth(), has("Invalidate"), "{op}");
        assert_eq!(op.has_deth(), has("UD "), "{op}");
        assert_eq!(op.has_xrceth(), has("XRC ") && op.is_request(), "{op}");
        let bare = has("Acknowledge")
            || has("Request")
            || has("CmpSwap")
            || has("FetchAdd")
            || has("FLUSH");
        assert_eq!(op.carries_payload(), !bare, "{op}");
    }
}
