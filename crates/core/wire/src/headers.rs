//! All headers of a packet together.
use crate::header::{Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Feth, Ieth, ImmDt, Reth, XrcEth};
use crate::opcode::Opcode;
use thiserror::Error;

/// Pad bytes that bring a payload of `len` bytes to a multiple of four.
#[must_use]
pub const fn pad_for(len: usize) -> u8 {
    (len.wrapping_neg() & 3) as u8
}

/// Why a datagram is not a RoCEv2 packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
pub enum ParseError {
    /// The packet is shorter than its headers.
    #[error("headers take {need} bytes, the packet has {got}")]
    TooShort {
        /// Length of the headers in bytes.
        need: usize,
        /// Length of the packet in bytes.
        got: usize,
    },
    /// The opcode is reserved, or belongs to an unsupported transport.
    #[error("unknown opcode {0:#04x}")]
    UnknownOpcode(u8),
    /// The transport header version is not 0.
    #[error("transport header version {0}, expected 0")]
    BadTransportVersion(u8),
    /// The pad count exceeds the bytes after the headers.
    #[error("pad count {pad}, but {got} bytes after the headers")]
    BadPad {
        /// Pad count of the BTH.
        pad: u8,
        /// Bytes after the headers.
        got: usize,
    },
    /// Payload and pad together are not a multiple of four bytes (IBTA 9.2.3).
    #[error("{got} bytes of payload and pad, expected a multiple of 4")]
    Misaligned {
        /// Bytes after the headers.
        got: usize,
    },
}

/// The BTH and the extension headers of a packet. The opcode determines which headers are present.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Headers {
    /// Base transport header.
    pub bth: Bth,
    /// XRC extended transport header.
    pub xrceth: Option<XrcEth>,
    /// Datagram extended transport header.
    pub deth: Option<Deth>,
    /// FLUSH extended transport header.
    pub feth: Option<Feth>,
    /// RDMA extended transport header.
    pub reth: Option<Reth>,
    /// Atomic extended transport header, of a request.
    pub atomic: Option<AtomicEth>,
    /// ACK extended transport header.
    pub aeth: Option<Aeth>,
    /// Atomic ACK extended transport header.
    pub atomic_ack: Option<AtomicAckEth>,
    /// Immediate data.
    pub imm: Option<ImmDt>,
    /// Key to invalidate.
    pub ieth: Option<Ieth>,
}

/// Takes a header from the front, if the opcode has this header. The caller has checked the length.
macro_rules! take {
    ($rest:ident, $has:expr, $kind:ident) => {
        if $has && let Some((bytes, rest)) = $rest.split_first_chunk::<{ $kind::LEN }>() {
            $rest = rest;
            Some($kind::parse(bytes))
        } else {
            None
        }
    };
}

impl Headers {
    /// Initial value of a variable for headers: a congestion notification to QPN 0.
    pub const EMPTY: Headers = Headers::new(Bth::new(Opcode::CNP, 0, crate::Psn::ZERO));

    /// A BTH without extension headers.
    #[must_use]
    pub const fn new(bth: Bth) -> Headers {
        Headers {
            bth,
            xrceth: None,
            deth: None,
            feth: None,
            reth: None,
            atomic: None,
            aeth: None,
            atomic_ack: None,
            imm: None,
            ieth: None,
        }
    }

    /// Splits a UDP payload without its ICRC into headers and payload, and removes the pad. Ignores
    /// reserved bits.
    ///
    /// # Errors
    /// Why the datagram is not valid, with the expected and the found value.
    #[inline]
    pub fn parse(datagram: &[u8]) -> Result<(Headers, &[u8]), ParseError> {
        let (headers, rest) = Headers::parse_front(datagram)?;
        let got = rest.len();
        if got % 4 != 0 {
            return Err(ParseError::Misaligned { got });
        }
        match got.checked_sub(usize::from(headers.bth.pad)) {
            Some(n) => Ok((headers, &rest[..n])),
            None => Err(ParseError::BadPad { pad: headers.bth.pad, got }),
        }
    }

    /// As [`Headers::parse`], for a packet behind `before`, whose headers these are. The packets of
    /// a message mostly differ in the PSN, the ACK request and the payload alone.
    ///
    /// # Errors
    /// As [`Headers::parse`]. The headers stay as they are.
    #[inline]
    pub fn parse_after<'p>(
        &mut self,
        before: &[u8],
        datagram: &'p [u8],
    ) -> Result<&'p [u8], ParseError> {
        if let (Some(last), Some((bth, rest))) =
            (before.first_chunk(), datagram.split_first_chunk())
            && self.len() == Bth::LEN
            && before.len() == datagram.len()
            && self.bth.repeat(last, bth)
        {
            return Ok(&rest[..rest.len() - usize::from(self.bth.pad)]);
        }
        let (headers, payload) = Headers::parse(datagram)?;
        *self = headers;
        Ok(payload)
    }

    /// Splits the headers from the front of a packet, or from the part of a packet that is
    /// available. The rest may end with a pad.
    ///
    /// # Errors
    /// As [`Headers::parse`], except for errors about the payload.
    #[inline]
    pub fn parse_front(packet: &[u8]) -> Result<(Headers, &[u8]), ParseError> {
        let got = packet.len();
        let (bth, mut rest) =
            packet.split_first_chunk().ok_or(ParseError::TooShort { need: Bth::LEN, got })?;
        let bth = Bth::parse(bth).map_err(ParseError::UnknownOpcode)?;
        if bth.tver != 0 {
            return Err(ParseError::BadTransportVersion(bth.tver));
        }
        let op = bth.opcode;
        let need = op.header_len();
        if got < need {
            return Err(ParseError::TooShort { need, got });
        }
        // In wire order: Rust evaluates struct fields in the written order.
        let headers = Headers {
            bth,
            xrceth: take!(rest, op.has_xrceth(), XrcEth),
            deth: take!(rest, op.has_deth(), Deth),
            feth: take!(rest, op.has_feth(), Feth),
            reth: take!(rest, op.has_reth(), Reth),
            atomic: take!(rest, op.has_atomic_eth(), AtomicEth),
            aeth: take!(rest, op.has_aeth(), Aeth),
            atomic_ack: take!(rest, op.has_atomic_ack_eth(), AtomicAckEth),
            imm: take!(rest, op.has_imm(), ImmDt),
            ieth: take!(rest, op.has_ieth(), Ieth),
        };
        Ok((headers, rest))
    }

    /// Do the extension headers match the opcode?
    #[must_use]
    pub const fn is_consistent(&self) -> bool {
        let op: Opcode = self.bth.opcode;
        self.xrceth.is_some() == op.has_xrceth()
            && self.deth.is_some() == op.has_deth()
            && self.feth.is_some() == op.has_feth()
            && self.reth.is_some() == op.has_reth()
            && self.atomic.is_some() == op.has_atomic_eth()
            && self.aeth.is_some() == op.has_aeth()
            && self.atomic_ack.is_some() == op.has_atomic_ack_eth()
            && self.imm.is_some() == op.has_imm()
            && self.ieth.is_some() == op.has_ieth()
    }

    /// Bytes that [`Headers::emit`] writes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "there is always a BTH")]
    pub const fn len(&self) -> usize {
        self.bth.opcode.header_len()
    }

    /// Writes the headers to the front of `out` and returns their length. The caller writes
    /// payload, pad and ICRC.
    ///
    /// # Panics
    /// If `out` is shorter than [`Headers::len`] (at most [`crate::MAX_HEADER_LEN`]). Debug builds
    /// also panic if the headers do not match the opcode.
    pub fn emit(&self, out: &mut [u8]) -> usize {
        self.emit_with(&self.bth, out)
    }

    /// As [`Headers::emit`], with a pad count of 0 instead of `bth.pad`. A host path may carry
    /// payloads without pad.
    ///
    /// # Panics
    /// As [`Headers::emit`].
    pub fn emit_unpadded(&self, out: &mut [u8]) -> usize {
        self.emit_with(&Bth { pad: 0, ..self.bth }, out)
    }

    #[inline]
    fn emit_with(&self, bth: &Bth, out: &mut [u8]) -> usize {
        debug_assert!(self.is_consistent(), "extension headers do not fit the opcode: {self:?}");
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            out[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        put(&bth.to_bytes());
        if self.len() == Bth::LEN {
            return Bth::LEN;
        }
        macro_rules! put {
            ($($field:ident)*) => { $(if let Some(h) = &self.$field { put(&h.to_bytes()); })* };
        }
        put!(xrceth deth feth reth atomic aeth atomic_ack imm ieth);
        at
    }
}
