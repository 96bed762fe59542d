//! Packets that were received: lent to whoever takes them, or kept until then.

use std::net::{IpAddr, SocketAddr};

use adverb_local::{Envelope, LocalPacket};

use crate::types::AddrIndex;

/// Length of a BTH, the least a packet has before its ICRC.
pub(crate) const BTH_LEN: usize = 12;
/// Bytes of the longest packet before its ICRC: all that any queue pair takes, headers and the
/// largest path MTU. Nothing longer is summed up, kept or handed on.
pub(crate) const MAX_PACKET: usize = adverb_wire::MAX_HEADER_LEN + 4096;

/// A packet whose ICRC was right.
#[derive(Clone, Copy, Debug)]
pub struct RxPacket<'a> {
    /// Who sent it, with the real source port.
    pub src: SocketAddr,
    /// The local address it was sent to.
    pub dst: IpAddr,
    /// The link's index of `dst`; `None` when it was handed on by a process that has an address
    /// which this one has not.
    pub local: Option<AddrIndex>,
    /// Traffic class as received.
    pub traffic_class: u8,
    /// TTL or hop limit as received.
    pub hop_limit: u8,
    /// What vouches for its source.
    pub proof: Proof,
    /// BTH through the pad bytes, without the ICRC; at least 12 bytes.
    pub bytes: &'a [u8],
}

/// What vouches for the source of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// The packet came over UDP. Its source is another host, or the port at an address of this
    /// machine where this process has a socket, so that only this user can have sent it.
    Wire,
    /// The packet came over UDP. Its source is an address of this machine at which this process has
    /// no socket: any user may have sent it. Only packets for queue pair 1 are handed out, for a
    /// process that can tell.
    Unproven,
    /// Another process of this user received the packet and passed it on.
    Relayed,
    /// As [`Proof::Relayed`], of a packet that is [`Proof::Unproven`] in both processes.
    RelayedUnproven,
    /// A process of this user sent the packet over a connection to this one. It was never on a
    /// network.
    Process,
}

impl Proof {
    /// Another process of this user gave it to this one: its sender, or one that received it.
    #[must_use]
    pub fn is_handed_on(self) -> bool {
        matches!(self, Proof::Relayed | Proof::RelayedUnproven | Proof::Process)
    }

    /// Any user of this machine may have sent it.
    #[must_use]
    pub fn is_missing(self) -> bool {
        matches!(self, Proof::Unproven | Proof::RelayedUnproven)
    }
}

impl<'a> RxPacket<'a> {
    /// The packet as other processes of this host are given it.
    #[must_use]
    pub fn as_local(&self) -> LocalPacket<'a> {
        let direct = self.proof == Proof::Process;
        LocalPacket { envelope: self.envelope(), direct, bytes: self.bytes }
    }

    /// BTH.DestQP. Every packet handed out is long enough to have one.
    pub fn dest_qpn(&self) -> u32 {
        dest_qpn(self.bytes)
    }

    /// What it needs beside its bytes in another process.
    pub(crate) fn envelope(&self) -> Envelope {
        Envelope {
            src: self.src,
            dst: self.dst,
            traffic_class: self.traffic_class,
            hop_limit: self.hop_limit,
        }
    }
}

/// BTH.DestQP of a packet of at least 8 bytes.
pub(crate) fn dest_qpn(bytes: &[u8]) -> u32 {
    u32::from_be_bytes([0, bytes[5], bytes[6], bytes[7]])
}

/// A packet kept until somebody receives.
#[derive(Debug)]
pub struct OwnedPacket {
    envelope: Envelope,
    local: Option<AddrIndex>,
    proof: Proof,
    bytes: Vec<u8>,
}

impl OwnedPacket {
    /// A copy of the packet.
    #[must_use]
    pub fn keep(packet: &RxPacket<'_>) -> Self {
        OwnedPacket {
            envelope: packet.envelope(),
            local: packet.local,
            proof: packet.proof,
            bytes: packet.bytes.to_vec(),
        }
    }

    /// The packet as it came.
    #[must_use]
    pub fn packet(&self) -> RxPacket<'_> {
        RxPacket {
            src: self.envelope.src,
            dst: self.envelope.dst,
            local: self.local,
            traffic_class: self.envelope.traffic_class,
            hop_limit: self.envelope.hop_limit,
            proof: self.proof,
            bytes: &self.bytes,
        }
    }
}

/// Takes packets, one a call.
pub type Sink<'a> = &'a mut dyn FnMut(RxPacket<'_>);
