//! Received packets: borrowed by the receiver, or kept until there is one.

use std::net::{IpAddr, SocketAddr};

use adverb_local::{Envelope, LocalPacket};

use crate::types::AddrIndex;

/// The length of a BTH, the shortest packet before its ICRC.
pub(crate) const BTH_LEN: usize = 12;
/// The length of the longest packet before its ICRC: the longest headers and the largest path MTU
/// of any queue pair. Longer packets are not checked, kept or forwarded.
pub(crate) const MAX_PACKET: usize = adverb_wire::MAX_HEADER_LEN + 4096;

/// A packet with a valid ICRC.
#[derive(Clone, Copy, Debug)]
pub struct RxPacket<'a> {
    /// The sender, with the real source port.
    pub src: SocketAddr,
    /// The local destination address.
    pub dst: IpAddr,
    /// The link's index of `dst`; `None` if another process forwarded the packet and this process
    /// does not have the address.
    pub local: Option<AddrIndex>,
    /// The traffic class as received.
    pub traffic_class: u8,
    /// The TTL or hop limit as received.
    pub hop_limit: u8,
    /// The proof of the packet's source.
    pub proof: Proof,
    /// BTH through the pad bytes, without the ICRC; at least 12 bytes.
    pub bytes: &'a [u8],
}

/// The proof of a packet's source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// The packet arrived over UDP. Its source is another host; or it is the link's port at an
    /// address of this machine where this process has a socket, so only this user can have sent the
    /// packet.
    Wire,
    /// The packet arrived over UDP. Its source is an address of this machine without a socket of
    /// this process: any user may have sent the packet. Only packets for queue pair 1 are given to
    /// the sink, for a process with the needed socket.
    Unproven,
    /// Another process of this user received and forwarded the packet.
    Relayed,
    /// As [`Proof::Relayed`], for a packet that is [`Proof::Unproven`] in both processes.
    RelayedUnproven,
    /// A process of this user sent the packet over a connection to this process. The packet was
    /// never on a network.
    Process,
}

impl Proof {
    /// Whether another process of this user gave the packet to this process: its sender, or a
    /// receiver that forwarded it.
    #[must_use]
    pub fn is_forwarded(self) -> bool {
        matches!(self, Proof::Relayed | Proof::RelayedUnproven | Proof::Process)
    }

    /// Whether any user of this machine may have sent the packet.
    #[must_use]
    pub fn is_missing(self) -> bool {
        matches!(self, Proof::Unproven | Proof::RelayedUnproven)
    }
}

impl<'a> RxPacket<'a> {
    pub(crate) fn of(
        envelope: &Envelope,
        local: Option<AddrIndex>,
        proof: Proof,
        bytes: &'a [u8],
    ) -> Self {
        let Envelope { src, dst, traffic_class, hop_limit } = *envelope;
        RxPacket { src, dst, local, traffic_class, hop_limit, proof, bytes }
    }

    /// The packet in the form for other processes of this host.
    #[must_use]
    pub fn as_local(&self) -> LocalPacket<'a> {
        let from_sender = self.proof == Proof::Process;
        LocalPacket { envelope: self.envelope(), from_sender, bytes: self.bytes }
    }

    /// BTH.DestQP. Every packet given to a sink is long enough to have this field.
    pub fn dest_qpn(&self) -> u32 {
        dest_qpn(self.bytes)
    }

    /// The properties of the packet needed in another process beside the bytes.
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
#[must_use]
pub fn dest_qpn(bytes: &[u8]) -> u32 {
    u32::from_be_bytes([0, bytes[5], bytes[6], bytes[7]])
}

/// A packet kept until there is a receiver.
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

    /// The packet as received.
    #[must_use]
    pub fn packet(&self) -> RxPacket<'_> {
        RxPacket::of(&self.envelope, self.local, self.proof, &self.bytes)
    }
}

/// Packets that arrived together: those of one datagram, in order. Each is checked when it is asked
/// for, so that its bytes are near when they are used.
pub struct RxRun<'r, 'p> {
    /// What the packets have in common: a packet without its bytes.
    pub head: RxPacket<'p>,
    /// The bytes of the packets. Packets that a sink does not take are lost.
    pub packets: &'r mut dyn Iterator<Item = &'p [u8]>,
}

impl<'p> RxRun<'_, 'p> {
    /// A packet of the run.
    #[must_use]
    pub fn packet(&self, bytes: &'p [u8]) -> RxPacket<'p> {
        RxPacket { bytes, ..self.head }
    }
}

impl std::fmt::Debug for RxRun<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RxRun").field("head", &self.head).finish_non_exhaustive()
    }
}

/// Takes runs of packets, one a call.
pub type Sink<'a> = &'a mut dyn for<'r, 'p> FnMut(RxRun<'r, 'p>);

/// A sink for packets one by one.
pub fn each(mut take: impl FnMut(RxPacket<'_>)) -> impl for<'r, 'p> FnMut(RxRun<'r, 'p>) {
    move |run| {
        let head = run.head;
        run.packets.for_each(|bytes| take(RxPacket { bytes, ..head }));
    }
}

/// Gives a packet to the sink, as a run of one.
pub(crate) fn give(packet: RxPacket<'_>, sink: Sink<'_>) {
    let head = RxPacket { bytes: &[], ..packet };
    sink(RxRun { head, packets: &mut std::iter::once(packet.bytes) });
}
