//! Memory descriptor lists.
use crate::status::NtStatus;
use adverb_device::Mapping;

/// Memory for a registration or a mapping: a single piece, or a chain of pieces. A request uses the
/// first bytes of the list, which must be virtually contiguous. The request checks this.
#[derive(Clone, Debug)]
pub struct Mdl {
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug)]
struct Piece {
    mapping: Mapping,
    offset: u64,
    len: u64,
}

/// Contiguous memory that a request uses.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) mapping: Mapping,
    /// Offset of the first byte in the mapping.
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

impl Mdl {
    /// `len` bytes of `mapping` from `offset` on.
    ///
    /// # Errors
    /// `INVALID_PARAMETER` if the bytes are not all in the mapping.
    pub fn new(mapping: &Mapping, offset: u64, len: u64) -> Result<Mdl, NtStatus> {
        if offset.checked_add(len).is_none_or(|end| end > mapping.len()) {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        Ok(Mdl { pieces: vec![Piece { mapping: mapping.clone(), offset, len }] })
    }

    /// The whole `mapping`.
    #[must_use]
    pub fn of(mapping: &Mapping) -> Mdl {
        Mdl { pieces: vec![Piece { mapping: mapping.clone(), offset: 0, len: mapping.len() }] }
    }

    /// Appends `next` to this list.
    #[must_use]
    pub fn chain(mut self, next: &Mdl) -> Mdl {
        self.pieces.extend_from_slice(&next.pieces);
        self
    }

    /// The virtual address of the first byte (`MmGetMdlVirtualAddress`).
    #[must_use]
    pub fn virtual_address(&self) -> u64 {
        self.pieces[0].address()
    }

    /// The total size of all pieces, in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.pieces.iter().fold(0, |sum, p| p.len.saturating_add(sum))
    }

    /// Is the total size zero?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first `length` bytes, if they are contiguous.
    pub(crate) fn span(&self, length: u64) -> Result<Span, NtStatus> {
        if length == 0 || length > self.len() {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let mut parts: Vec<(Mapping, u64, u64)> = Vec::new();
        let mut next = self.virtual_address();
        let mut left = length;
        for piece in &self.pieces {
            if left == 0 {
                break;
            }
            if piece.address() != next {
                return Err(NtStatus::INVALID_PARAMETER);
            }
            let take = piece.len.min(left);
            parts.push((piece.mapping.clone(), piece.offset, take));
            left -= take;
            next += piece.len;
        }
        let (first, offset, _) = parts[0].clone();
        if parts.len() == 1 {
            return Ok(Span { mapping: first, offset, len: length });
        }
        let mapping = Mapping::joined(&parts).ok_or(NtStatus::INVALID_PARAMETER)?;
        Ok(Span { mapping, offset: 0, len: length })
    }
}

impl Piece {
    fn address(&self) -> u64 {
        self.mapping.addr() + self.offset
    }
}

impl Span {
    /// The address of the first byte.
    pub(crate) fn address(&self) -> u64 {
        self.mapping.addr() + self.offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_is_contiguous_up_to_the_length_asked_for() {
        let memory = Mapping::alloc(16384).unwrap();
        let piece = |offset, len| Mdl::new(&memory, offset, len).unwrap();
        let chain = piece(100, 4000).chain(&piece(4100, 1000)).chain(&piece(9000, 100));
        assert_eq!((chain.len(), chain.virtual_address()), (5100, memory.addr() + 100));
        let span = chain.span(5000).unwrap();
        assert_eq!((span.address(), span.len), (memory.addr() + 100, 5000));
        assert_eq!(chain.span(5001).unwrap_err(), NtStatus::INVALID_PARAMETER, "a gap");
        assert_eq!(
            chain.span(5101).unwrap_err(),
            NtStatus::INVALID_PARAMETER,
            "longer than the chain"
        );
        assert_eq!(chain.span(0).unwrap_err(), NtStatus::INVALID_PARAMETER);
        let span = chain.span(3000).unwrap();
        assert_eq!((span.address(), span.len), (memory.addr() + 100, 3000));
    }

    #[test]
    fn a_piece_stays_inside_its_mapping() {
        let memory = Mapping::alloc(4096).unwrap();
        assert!(Mdl::new(&memory, 4000, 96).is_ok());
        assert!(Mdl::new(&memory, 4000, 97).is_err());
        assert!(Mdl::new(&memory, u64::MAX, 2).is_err());
    }
}
