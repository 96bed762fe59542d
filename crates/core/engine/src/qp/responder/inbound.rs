//! Filling a receive: a cursor into the scatter list; every byte is checked before it is written.
use crate::cause::Cause;
use crate::keys::KeyTable;
use crate::memory::Memory;
use crate::types::Access;
use crate::wr::{RecvWqe, Sge};

/// A receive taken from its queue and not completed yet.
#[derive(Debug)]
pub(super) struct Active {
    pub(super) wqe: RecvWqe,
    /// XRC: the number of the SRQ of this receive.
    pub(super) xrc_srqn: Option<u32>,
    /// Size of all buffers in bytes.
    pub(super) capacity: u64,
    /// Bytes filled. The cursor below stands behind them.
    pub(super) filled: u64,
    index: usize,
    offset: u32,
}

impl Active {
    pub(super) fn new(wqe: RecvWqe, xrc_srqn: Option<u32>) -> Self {
        let capacity = wqe.sges.as_slice().iter().map(|s| u64::from(s.length)).sum();
        Active { wqe, xrc_srqn, capacity, filled: 0, index: 0, offset: 0 }
    }

    /// Moves the cursor to the start. The message was dropped, and the receive serves the next
    /// message (UC, UD).
    pub(super) fn rewind(&mut self) {
        self.filled = 0;
        self.index = 0;
        self.offset = 0;
    }

    /// Free bytes.
    pub(super) fn room(&self) -> u64 {
        self.capacity - self.filled
    }

    pub(super) fn pieces(&self, len: usize) -> Pieces<'_> {
        Pieces { sges: self.wqe.sges.as_slice(), index: self.index, offset: self.offset, left: len }
    }

    /// May the next `len` bytes be written? The caller knows that there is room.
    pub(super) fn check(&self, keys: &KeyTable, len: usize) -> Result<(), Cause> {
        for p in self.pieces(len) {
            keys.check_local(self.wqe.pd, p.lkey, Access::LOCAL_WRITE, p.addr, p.length)?;
        }
        Ok(())
    }

    /// Writes `data` behind the filled bytes. The caller knows that there is room. If a byte may
    /// not be written, no byte is written.
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
            // A packet in several entries is first checked as a whole. The usual packet is checked
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

/// The parts of the scatter list for the next bytes. No part is empty.
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

    /// The part of the next entry where the next `len` bytes start.
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
