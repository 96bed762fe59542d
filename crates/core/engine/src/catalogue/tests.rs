use super::*;
use crate::types::{Access, QpState};
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::Ipv6Addr;
use core::time::Duration;

/// A sample of each kind.
fn samples() -> Vec<Cause> {
    let (key, peer) = (0x1f04, crate::types::Gid(Ipv6Addr::LOCALHOST.octets()));
    Vec::from([
        Cause::UnknownKey { key },
        Cause::WrongPd { key },
        Cause::OutOfBounds { key, va: 9, len: 8, start: 1, size: 2 },
        Cause::AccessDenied { key, needed: Access::REMOTE_WRITE, granted: Access::empty() },
        Cause::WindowNotUsable { key },
        Cause::NotRegistered { key },
        Cause::InUse { key },
        Cause::QpAccessDenied { needed: Access::REMOTE_READ },
        Cause::Fault { addr: 1 },
        Cause::Misaligned { va: 1 },
        Cause::TooManySges { given: 2, max: 1 },
        Cause::TooMuchInline { given: 2, max: 1 },
        Cause::MessageTooLong { len: 2, max: 1 },
        Cause::RecvTooShort { message: 2, buffers: 1 },
        Cause::OpNotSupported { op: "RDMA read", on: "UC" },
        Cause::WrongState { op: "post send", state: QpState::Init },
        Cause::QueueFull { queue: "send queue", depth: 4 },
        Cause::BadArgument { what: "port_num", rule: "must be 1" },
        Cause::RetryExceeded {
            peer,
            dest_qpn: 7,
            psn: 1,
            attempts: 8,
            last_heard: Some(Duration::from_secs(1)),
        },
        Cause::PeerEnded { peer, dest_qpn: 7 },
        Cause::RnrRetryExceeded { peer, dest_qpn: 7, psn: 1, attempts: 1 },
        Cause::RemoteNak { code: "remote access error", psn: 1, dest_qpn: 7 },
        Cause::ProtocolViolation { what: "length", psn: 1 },
        Cause::CqOverflow { depth: 4 },
        Cause::Flushed { first: None },
        Cause::Flushed { first: Some(Arc::new(Cause::UnknownKey { key })) },
        Cause::Injected,
    ])
}

#[test]
fn codes_are_one_each_and_in_order() {
    assert!(CAUSES.iter().all(|e| e.code != 0), "0 is no detail");
    assert!(CAUSES.iter().zip(&CAUSES[1..]).all(|(a, b)| a.code < b.code));
    // Programs and people remember these numbers, so the numbers do not change.
    let fixed = [
        (Cause::Injected, 0xfb),
        (Cause::CqOverflow { depth: 1 }, 0x85),
        (Cause::UnknownKey { key: 1 }, 1),
    ];
    for (cause, code) in fixed {
        assert_eq!(cause.vendor_err(), code);
    }
}

#[test]
fn each_cause_is_known_again_by_its_words() {
    let samples = samples();
    for entry in CAUSES {
        assert!(samples.iter().any(|c| c.entry() == entry), "no sample of {}", entry.name);
        assert!(!entry.look.is_empty() && entry.meaning.ends_with('.'), "{}", entry.name);
    }
    for cause in samples {
        let text = cause.to_string();
        for entry in CAUSES.iter().filter(|e| !e.marks.is_empty()) {
            let first = matches!(&cause, Cause::Flushed { first: Some(c) } if c.entry() == entry);
            assert_eq!(
                entry.is_in(&text),
                cause.entry() == entry || first,
                "{} in {text:?}",
                entry.name
            );
        }
    }
}
