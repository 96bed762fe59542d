//! Arrived MADs.
use crate::node::mad_handler::MAD_LEN;
use adverb_cm::Path;
use adverb_link::{Proof, RxPacket};
use adverb_local::MAD_QPN;
use adverb_wire::{Headers, Opcode, Operation, Transport};
use std::net::{IpAddr, SocketAddr};

/// Q_Key of queue pair 1 (IBTA 3.5.3).
pub(in crate::node) const QKEY: u32 = 0x8001_0000;
pub(in crate::node) const SEND_ONLY: Opcode = match Opcode::new(Transport::Ud, Operation::SendOnly)
{
    Some(opcode) => opcode,
    None => panic!("UD has SEND Only"),
};

/// An arrived MAD, with its headers.
pub(in crate::node) struct ArrivedMad {
    pub(in crate::node) src: SocketAddr,
    pub(in crate::node) dst: IpAddr,
    pub(in crate::node) traffic_class: u8,
    pub(in crate::node) hop_limit: u8,
    pub(in crate::node) proof: Proof,
    pub(in crate::node) bytes: Box<[u8]>,
}

impl ArrivedMad {
    pub(in crate::node) fn of(p: &RxPacket<'_>) -> Self {
        ArrivedMad {
            src: p.src,
            dst: p.dst,
            traffic_class: p.traffic_class,
            hop_limit: p.hop_limit,
            proof: p.proof,
            bytes: p.bytes.into(),
        }
    }

    /// Did another process of this user forward the MAD to this process?
    pub(in crate::node) fn is_forwarded(&self) -> bool {
        self.proof.is_forwarded()
    }

    pub(in crate::node) fn packet(&self) -> RxPacket<'_> {
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

    pub(in crate::node) fn path(&self) -> Path {
        Path { local: self.dst, remote: self.src.ip() }
    }

    pub(in crate::node) fn scope_id(&self) -> u32 {
        match self.src {
            SocketAddr::V6(v6) => v6.scope_id(),
            SocketAddr::V4(_) => 0,
        }
    }

    pub(in crate::node) fn mad(&self) -> Option<&[u8; MAD_LEN]> {
        self.bytes.last_chunk()
    }
}

/// Is the packet a valid MAD of queue pair 1? Other packets change nothing.
pub(in crate::node) fn is_taken(p: &RxPacket<'_>, headers: &Headers, payload: &[u8]) -> bool {
    headers.bth.opcode == SEND_ONLY
        && headers.bth.pkey & 0x7fff == 0x7fff
        && headers.deth.is_some_and(|deth| deth.qkey == QKEY && deth.src_qpn == MAD_QPN)
        && payload.len() == MAD_LEN
        && headers.bth.pad == 0
        && !p.src.ip().is_multicast()
        && !p.src.ip().is_unspecified()
        && adverb_cm::route(payload).is_ok()
}
