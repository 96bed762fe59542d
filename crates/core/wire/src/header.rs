//! The BTH and the extension headers, as values and as bytes (IBTA 9.2 to 9.3). Reserved bits are
//! sent as zero and ignored on receipt.
use crate::opcode::Opcode;
use crate::psn::Psn;

/// The 24 bits of a QPN, an MSN or an SRQ number.
pub const QPN_MASK: u32 = 0xff_ffff;

fn be16(b: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([b[at], b[at + 1]])
}

pub(crate) fn be32(b: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

fn be64(b: &[u8], at: usize) -> u64 {
    u64::from(be32(b, at)) << 32 | u64::from(be32(b, at + 4))
}

/// Base transport header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Bth {
    /// Opcode.
    pub opcode: Opcode,
    /// Solicited event.
    pub solicited: bool,
    /// Migration request.
    pub mig_req: bool,
    /// Pad bytes after the payload, 0 to 3.
    pub pad: u8,
    /// Transport header version, 4 bits, 0.
    pub tver: u8,
    /// Partition key.
    pub pkey: u16,
    /// Forward explicit congestion notification. Not covered by the ICRC.
    pub fecn: bool,
    /// Backward explicit congestion notification. Not covered by the ICRC.
    pub becn: bool,
    /// Destination QPN, 24 bits.
    pub dest_qpn: u32,
    /// The sender requests an acknowledgement.
    pub ack_req: bool,
    /// Packet sequence number.
    pub psn: Psn,
}

impl Bth {
    /// Bytes on the wire.
    pub const LEN: usize = 12;

    /// A BTH with the default partition key (0xffff) and no bit set.
    #[must_use]
    pub const fn new(opcode: Opcode, dest_qpn: u32, psn: Psn) -> Bth {
        Bth {
            opcode,
            solicited: false,
            mig_req: false,
            pad: 0,
            tver: 0,
            pkey: 0xffff,
            fecn: false,
            becn: false,
            dest_qpn,
            ack_req: false,
            psn,
        }
    }

    /// Reads a BTH.
    ///
    /// # Errors
    /// The opcode byte, if the table has no such opcode.
    pub fn parse(b: &[u8; Self::LEN]) -> Result<Bth, u8> {
        Ok(Bth {
            opcode: Opcode::from_u8(b[0]).ok_or(b[0])?,
            solicited: b[1] & 0x80 != 0,
            mig_req: b[1] & 0x40 != 0,
            pad: b[1] >> 4 & 3,
            tver: b[1] & 15,
            pkey: be16(b, 2),
            fecn: b[4] & 0x80 != 0,
            becn: b[4] & 0x40 != 0,
            dest_qpn: be32(b, 4) & QPN_MASK,
            ack_req: b[8] & 0x80 != 0,
            psn: Psn::new(be32(b, 8)),
        })
    }

    /// Takes PSN and ACK request from `next`, if the rest is as in `last`, the bytes of this BTH.
    #[inline]
    pub(crate) fn repeat(&mut self, last: &[u8; Self::LEN], next: &[u8; Self::LEN]) -> bool {
        let same = last[..8] == next[..8];
        if same {
            self.ack_req = next[8] & 0x80 != 0;
            self.psn = Psn::new(be32(next, 8));
        }
        same
    }

    /// The bytes of the BTH. Values wider than their field are truncated.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let bit = |set: bool, n: u32| u32::from(set) << n;
        let words = [
            u32::from(self.opcode.as_u8()) << 24
                | bit(self.solicited, 23)
                | bit(self.mig_req, 22)
                | u32::from(self.pad & 3) << 20
                | u32::from(self.tver & 15) << 16
                | u32::from(self.pkey),
            bit(self.fecn, 31) | bit(self.becn, 30) | self.dest_qpn & QPN_MASK,
            bit(self.ack_req, 31) | self.psn.get(),
        ];
        join(words)
    }
}

/// Converts words to big-endian bytes; `M` is `4 * N`.
fn join<const N: usize, const M: usize>(words: [u32; N]) -> [u8; M] {
    let mut out = [0; M];
    for (to, word) in out.chunks_exact_mut(4).zip(words) {
        to.copy_from_slice(&word.to_be_bytes());
    }
    out
}

const fn high(v: u64) -> u32 {
    (v >> 32) as u32
}

const fn low(v: u64) -> u32 {
    v as u32
}

/// Length, reader and writer of a header.
macro_rules! layout {
    ($kind:ident, $len:literal, |$bytes:ident| $read:expr, |$header:ident| $write:expr) => {
        impl $kind {
            /// Bytes on the wire.
            pub const LEN: usize = $len;
            /// Reads the header.
            #[must_use]
            pub fn parse($bytes: &[u8; Self::LEN]) -> $kind {
                $read
            }
            /// The bytes of the header.
            #[must_use]
            pub fn to_bytes(&self) -> [u8; Self::LEN] {
                let $header = self;
                $write
            }
        }
    };
}

/// RDMA extended transport header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Reth {
    /// Remote virtual address.
    pub va: u64,
    /// Remote key.
    pub rkey: u32,
    /// Length of the whole message in bytes.
    pub len: u32,
}

layout!(Reth, 16, |b| Reth { va: be64(b, 0), rkey: be32(b, 8), len: be32(b, 12) }, |h| join([
    high(h.va),
    low(h.va),
    h.rkey,
    h.len
]));

/// Atomic extended transport header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct AtomicEth {
    /// Remote virtual address, a multiple of 8.
    pub va: u64,
    /// Remote key.
    pub rkey: u32,
    /// The value to swap in, or to add.
    pub swap_add: u64,
    /// The value to compare with; unused by FetchAdd.
    pub compare: u64,
}

layout!(
    AtomicEth,
    28,
    |b| AtomicEth { va: be64(b, 0), rkey: be32(b, 8), swap_add: be64(b, 12), compare: be64(b, 20) },
    |h| join([
        high(h.va),
        low(h.va),
        h.rkey,
        high(h.swap_add),
        low(h.swap_add),
        high(h.compare),
        low(h.compare)
    ])
);

/// Reason of a NAK (IBTA table 46).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum NakCode {
    /// A PSN before this packet is missing.
    PsnSequence = 0,
    /// The request is malformed, unsupported, or too long for the receive buffer.
    InvalidRequest = 1,
    /// The key, bounds or access rights do not allow the access.
    RemoteAccess = 2,
    /// The responder failed.
    RemoteOperational = 3,
    /// RD only.
    InvalidRdRequest = 4,
}

impl NakCode {
    const fn from_bits(code: u8) -> Option<NakCode> {
        Some(match code {
            0 => NakCode::PsnSequence,
            1 => NakCode::InvalidRequest,
            2 => NakCode::RemoteAccess,
            3 => NakCode::RemoteOperational,
            4 => NakCode::InvalidRdRequest,
            _ => return None,
        })
    }
}

/// The first byte of an AETH.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Syndrome {
    /// Positive, with the encoded credit count, 0 to 31; 31 means that the responder keeps no
    /// credits.
    Ack {
        /// Encoded credit count.
        credits: u8,
    },
    /// Receiver not ready: retry after the encoded time (see [`crate::rnr_timer_us`]).
    RnrNak {
        /// Timer code, 0 to 31.
        timer: u8,
    },
    /// Negative.
    Nak(NakCode),
    /// A reserved kind or NAK code, with the whole byte.
    Reserved(u8),
}

impl Syndrome {
    /// An ACK of a responder without a credit count.
    pub const ACK_NO_CREDITS: Syndrome = Syndrome::Ack { credits: 31 };

    /// Decodes the byte. The top bit is reserved and ignored.
    #[must_use]
    pub const fn from_u8(byte: u8) -> Syndrome {
        let low = byte & 0x1f;
        match (byte >> 5 & 3, NakCode::from_bits(low)) {
            (0, _) => Syndrome::Ack { credits: low },
            (1, _) => Syndrome::RnrNak { timer: low },
            (3, Some(code)) => Syndrome::Nak(code),
            _ => Syndrome::Reserved(byte),
        }
    }

    /// Encodes the byte.
    #[must_use]
    pub const fn as_u8(self) -> u8 {
        match self {
            Syndrome::Ack { credits } => credits & 0x1f,
            Syndrome::RnrNak { timer } => 0x20 | timer & 0x1f,
            Syndrome::Nak(code) => 0x60 | code as u8,
            Syndrome::Reserved(byte) => byte,
        }
    }
}

/// ACK extended transport header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Aeth {
    /// The kind of answer.
    pub syndrome: Syndrome,
    /// Message sequence number, 24 bits.
    pub msn: u32,
}

layout!(Aeth, 4, |b| Aeth { syndrome: Syndrome::from_u8(b[0]), msn: be32(b, 0) & QPN_MASK }, |h| {
    join([u32::from(h.syndrome.as_u8()) << 24 | h.msn & QPN_MASK])
});

/// Atomic ACK extended transport header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct AtomicAckEth {
    /// The remote value before the operation.
    pub original: u64,
}

layout!(AtomicAckEth, 8, |b| AtomicAckEth { original: be64(b, 0) }, |h| h.original.to_be_bytes());

/// Datagram extended transport header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Deth {
    /// Queue key.
    pub qkey: u32,
    /// Source QPN, 24 bits.
    pub src_qpn: u32,
}

layout!(Deth, 8, |b| Deth { qkey: be32(b, 0), src_qpn: be32(b, 4) & QPN_MASK }, |h| join([
    h.qkey,
    h.src_qpn & QPN_MASK
]));

/// Immediate data: the four wire bytes, read as a `u32` in host memory order. This equals the
/// verbs' `__be32 imm_data` without conversion. `u32::from_be(imm.0)` is the number that the
/// application passed to `htonl`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ImmDt(pub u32);

layout!(ImmDt, 4, |b| ImmDt(u32::from_ne_bytes(*b)), |h| h.0.to_ne_bytes());

/// Invalidate extended transport header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Ieth {
    /// The key to invalidate, as a number.
    pub rkey: u32,
}

layout!(Ieth, 4, |b| Ieth { rkey: be32(b, 0) }, |h| h.rkey.to_be_bytes());

/// XRC extended transport header (annex A14).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct XrcEth {
    /// XRC SRQ number at the responder, 24 bits.
    pub srqn: u32,
}

layout!(XrcEth, 4, |b| XrcEth { srqn: be32(b, 0) & QPN_MASK }, |h| join([h.srqn & QPN_MASK]));

/// FLUSH extended transport header (annex A19).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Feth {
    /// Placement type, 4 bits: 1 global visibility, 2 persistence.
    pub placement: u8,
    /// Selectivity level, 2 bits: 0 the range, 1 the whole region.
    pub selectivity: u8,
}

layout!(Feth, 4, |b| Feth { placement: b[3] & 15, selectivity: b[3] >> 4 & 3 }, |h| [
    0,
    0,
    0,
    (h.selectivity & 3) << 4 | h.placement & 15
]);
