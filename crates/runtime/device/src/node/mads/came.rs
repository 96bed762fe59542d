//! MADs as they come.
use super::{QKEY, SEND_ONLY};
use crate::node::MAD_LEN;
use adverb_cm::Path;
use adverb_link::{MAD_QPN, Proof, RxPacket};
use adverb_wire::Headers;
use std::net::{IpAddr, SocketAddr};

/// A MAD that came, with its headers.
pub(super) struct Came {
    pub(super) src: SocketAddr,
    pub(super) dst: IpAddr,
    pub(super) traffic_class: u8,
    pub(super) hop_limit: u8,
    pub(super) proof: Proof,
    pub(super) bytes: Box<[u8]>,
}

impl Came {
    pub(super) fn of(p: &RxPacket<'_>) -> Self {
        Came {
            src: p.src,
            dst: p.dst,
            traffic_class: p.traffic_class,
            hop_limit: p.hop_limit,
            proof: p.proof,
            bytes: p.bytes.into(),
        }
    }

    /// Another process of this user gave it to this one.
    pub(super) fn is_handed_on(&self) -> bool {
        self.proof.is_handed_on()
    }

    pub(super) fn packet(&self) -> RxPacket<'_> {
        RxPacket {
            src: self.src,
            dst: self.dst,
            local: None,
            traffic_class: self.traffic_class,
            hop_limit: self.hop_limit,
            proof: self.proof,
            bytes: &self.bytes,
        }
    }

    pub(super) fn path(&self) -> Path {
        Path { local: self.dst, remote: self.src.ip() }
    }

    pub(super) fn scope_id(&self) -> u32 {
        match self.src {
            SocketAddr::V6(v6) => v6.scope_id(),
            SocketAddr::V4(_) => 0,
        }
    }

    pub(super) fn mad(&self) -> Option<&[u8; MAD_LEN]> {
        self.bytes.last_chunk()
    }
}

/// Is it a MAD as queue pair 1 takes it? All else changes nothing.
pub(super) fn is_taken(p: &RxPacket<'_>, headers: &Headers, payload: &[u8]) -> bool {
    headers.bth.opcode == SEND_ONLY
        && headers.bth.pkey & 0x7fff == 0x7fff
        && headers.deth.is_some_and(|deth| deth.qkey == QKEY && deth.src_qpn == MAD_QPN)
        && payload.len() == MAD_LEN
        && headers.bth.pad == 0
        && !p.src.ip().is_multicast()
        && !p.src.ip().is_unspecified()
        && adverb_cm::route(payload).is_ok()
}
