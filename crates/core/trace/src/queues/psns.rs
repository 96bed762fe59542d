//! PSNs: which packets belong to which request.
use super::{Process, QueuePair};
use crate::record::Request;

/// Number of bits of a PSN.
const PSN_BITS: u32 = 24;
const PSN_MASK: u32 = (1 << PSN_BITS) - 1;
/// Opcodes of requests without packets.
const WITHOUT_PACKETS: [u32; 2] = [7, 8];

/// Largest payload of a packet that crosses shared memory in bytes.
const NEAR_MTU: u64 = 64 << 10;

/// Is `psn` one of the `count` PSNs from `first` on?
fn within(psn: u32, first: u32, count: u32) -> bool {
    psn.wrapping_sub(first) & PSN_MASK < count
}

/// Does `psn` precede `other`, within half the circle?
pub fn precedes(psn: u32, other: u32) -> bool {
    psn != other && other.wrapping_sub(psn) & PSN_MASK < 1 << (PSN_BITS - 1)
}

/// The last of `count` PSNs from `first` on.
pub fn last_psn(first: u32, count: u32) -> u32 {
    first.wrapping_add(count.saturating_sub(1)) & PSN_MASK
}

/// A posted request, for matching packets.
#[derive(Debug)]
pub struct Posted {
    pub first: u32,
    pub count: u32,
    pub slice: usize,
    pub post: usize,
    pub sent: bool,
    pub opcode: u32,
    pub bytes: u64,
}

impl Process {
    /// Handles a packet of a request that leaves through shared memory. Gives the PSN to the oldest
    /// request that fits, unless an earlier packet already did.
    pub fn number_near(&mut self, to: u32, psn: u32, kind: u8) {
        for known in self.queue_pairs.values_mut().filter(|known| known.dest == Some(to)) {
            known.draw_near();
            if known.posted.iter().any(|posted| within(psn, posted.first, posted.count)) {
                continue;
            }
            let fits =
                |posted: &&mut Posted| posted.count == 0 && begins(kind).contains(&posted.opcode);
            let Some(posted) = known.posted.iter_mut().find(fits) else { continue };
            let count = u32::try_from(posted.bytes.div_ceil(NEAR_MTU)).unwrap_or(1).max(1);
            (posted.first, posted.count) = (psn, count);
            let slice = posted.slice;
            if let Some(pending) = known.send.iter_mut().find(|pending| pending.slice == slice) {
                pending.psns = Some((psn, count));
            }
        }
    }

    /// The request to which a packet for queue pair `to` with this PSN belongs.
    pub fn request_of(&mut self, to: u32, from: Option<u32>, psn: u32) -> Option<&mut Posted> {
        let all = self.queue_pairs.iter_mut();
        let mine =
            all.filter(|(number, qp)| from.map_or(qp.dest == Some(to), |from| **number == from));
        mine.flat_map(|(_, qp)| qp.posted.iter_mut())
            .find(|posted| within(psn, posted.first, posted.count))
    }
}

impl QueuePair {
    /// Computes the PSNs of a request posted now.
    pub fn number(&mut self, request: &Request) -> Option<(u32, u32)> {
        let first = self.next_psn?;
        if self.near {
            return Some((first, 0));
        }
        let count = match request.opcode {
            op if WITHOUT_PACKETS.contains(&op) => 0,
            _ if self.transport == "Ud" => 1,
            _ => u32::try_from(request.bytes.div_ceil(u64::from(self.mtu.max(1))))
                .unwrap_or(1)
                .max(1),
        };
        self.next_psn = Some(first.wrapping_add(count) & PSN_MASK);
        Some((first, count))
    }

    /// From here on the packets cross shared memory. Previously computed PSNs are invalid.
    pub fn draw_near(&mut self) {
        if !std::mem::replace(&mut self.near, true) {
            self.posted
                .iter_mut()
                .filter(|posted| !posted.sent)
                .for_each(|posted| posted.count = 0);
            self.send.iter_mut().for_each(|pending| pending.psns = None);
        }
    }

    /// Handles the end of an arrived message. A repeated end replaces the earlier end, unless the
    /// receive has been completed.
    pub fn arrived(&mut self, psn: u32, datagram: bool, node: usize) {
        if !datagram {
            if self.last_end.is_some_and(|last| !precedes(last, psn)) {
                return;
            }
            if let Some(same) = self.ends.iter_mut().find(|(of, _)| *of == psn) {
                same.1 = node;
                return;
            }
        }
        self.ends.push_back((psn, node));
    }
}

/// The requests (`enum ibv_wr_opcode`) that can begin with a packet of this opcode.
fn begins(kind: u8) -> &'static [u32] {
    match kind {
        0x00 => &[2, 3, 9],
        0x04 => &[2],
        0x05 => &[3],
        0x06 => &[0, 1],
        0x0a => &[0],
        0x0b => &[1],
        0x0c => &[4],
        0x13 => &[5],
        0x14 => &[6],
        0x17 => &[9],
        0x1c => &[14],
        0x1d => &[15],
        _ => &[],
    }
}
