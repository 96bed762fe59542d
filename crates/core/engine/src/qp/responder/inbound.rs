//! Filling a receive: a cursor into the scatter list, checked before every byte.
use crate::cause::Cause;
use crate::keys::KeyTable;
use crate::memory::Memory;
use crate::types::Access;
use crate::wr::{RecvWqe, Sge};

/// A receive taken off its queue and not completed yet.
#[derive(Debug)]
pub(super) struct Active {
    pub(super) wqe: RecvWqe,
    /// XRC: the SRQ it came from.
    pub(super) xrc_srqn: Option<u32>,
    /// Bytes of all buffers.
    pub(super) capacity: u64,
    /// Bytes filled; the cursor below stands there.
    pub(super) filled: u64,
    index: usize,
    offset: u32,
}

impl Active {
    pub(super) fn new(wqe: RecvWqe, xrc_srqn: Option<u32>) -> Self {
        let capacity = wqe.sges.as_slice().iter().map(|s| u64::from(s.length)).sum();
        Active { wqe, xrc_srqn, capacity, filled: 0, index: 0, offset: 0 }
    }

    /// Back to the start: the message was dropped, the receive serves the next one (UC, UD).
    pub(super) fn rewind(&mut self) {
        self.filled = 0;
        self.index = 0;
        self.offset = 0;
    }

    /// Bytes that still fit.
    pub(super) fn room(&self) -> u64 {
        self.capacity - self.filled
    }

    pub(super) fn pieces(&self, len: usize) -> Pieces<'_> {
        Pieces { sges: self.wqe.sges.as_slice(), index: self.index, offset: self.offset, left: len }
    }

    /// May the next `len` bytes be written? There must be room for them.
    pub(super) fn check(&self, keys: &KeyTable, len: usize) -> Result<(), Cause> {
        for p in self.pieces(len) {
            keys.check_local(self.wqe.pd, p.lkey, Access::LOCAL_WRITE, p.addr, p.length)?;
        }
        Ok(())
    }

    /// Writes `data`, for which there must be room, behind what is filled already. Nothing is
    /// written unless every byte of it may be.
    pub(super) fn place<M: Memory + ?Sized>(
        &mut self,
        keys: &KeyTable,
        memory: &M,
        data: &[u8],
    ) -> Result<(), Cause> {
        let mut pieces = self.pieces(data.len());
        let pd = self.wqe.pd;
        let mut rest = data;
        let mut checked = false;
        while let Some(p) = pieces.next() {
            // A packet that spans entries is checked as a whole first; the usual one is checked
            // only once.
            if !checked && pieces.left > 0 {
                self.check(keys, data.len())?;
            }
            checked = true;
            let range = keys.check_local(pd, p.lkey, Access::LOCAL_WRITE, p.addr, p.length)?;
            let (now, later) = rest.split_at(p.length as usize);
            memory.write(range, now).map_err(|f| Cause::Fault { addr: f.addr })?;
            rest = later;
        }
        (self.index, self.offset) = (pieces.index, pieces.offset);
        self.filled += data.len() as u64;
        Ok(())
    }
}

/// The parts of the scatter list that the next bytes go to; none is empty.
#[derive(Default)]
pub(super) struct Pieces<'a> {
    sges: &'a [Sge],
    index: usize,
    offset: u32,
    left: usize,
}

impl<'a> Pieces<'a> {
    /// From the beginning of a list, for no bytes.
    pub(super) fn of(sges: &'a [Sge]) -> Self {
        Pieces { sges, ..Pieces::default() }
    }

    /// The part of the next entry that the next `len` bytes go to, or begin to go to.
    pub(super) fn next_of(&mut self, len: u32) -> Option<Sge> {
        self.left = len as usize;
        self.next()
    }
}

impl Iterator for Pieces<'_> {
    type Item = Sge;
    fn next(&mut self) -> Option<Sge> {
        while self.left > 0 {
            let sge = self.sges.get(self.index)?;
            let room = sge.length - self.offset;
            if room == 0 {
                self.index += 1;
                self.offset = 0;
                continue;
            }
            let length = room.min(u32::try_from(self.left).unwrap_or(u32::MAX));
            let addr = sge.addr.wrapping_add(u64::from(self.offset));
            self.offset += length;
            self.left -= length as usize;
            return Some(Sge { addr, length, lkey: sge.lkey });
        }
        None
    }
}
