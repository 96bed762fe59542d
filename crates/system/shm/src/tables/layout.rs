//! What is where in the segment of tables, and the form of entries.

use super::entry::WORDS;

/// Low bits of a QPN that are its index in the table.
const QP_BITS: u32 = 14;
/// Entries for queue pairs.
pub(super) const QPS: usize = 1 << QP_BITS;
/// Buckets of the key table, and entries a bucket.
const BUCKETS: usize = 1 << 13;
pub(super) const WAYS: usize = 8;
pub(super) const KEYS: usize = BUCKETS * WAYS;
/// Threads of a process that can use others' memory at one time.
pub(super) const MARKS: usize = 256;

/// Which process published tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its number, in its own PID name space.
    pub pid: u32,
    /// When it started, in clock ticks since boot (`/proc/PID/stat`): with the number it is one
    /// process for good.
    pub start_time: u64,
    /// Random; no other tables have it.
    pub nonce: u64,
}

/// A queue pair as its peer needs to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpEntry {
    /// Its number.
    pub qpn: u32,
    /// The number of the queue pair it is connected to.
    pub peer_qpn: u32,
    /// The [`Identity::nonce`] of the process that has that one: a number alone may be of a process
    /// that took over the slot of one that died. 0 if not known.
    pub peer_nonce: u64,
    /// Of records in its peer's ring that point at a payload, those of this epoch count.
    pub epoch: u32,
    /// Its protection domain, as a number of its process.
    pub pd: u32,
    /// What it allows its peer to do.
    pub access: u32,
    /// Whether its peer may use it now.
    pub ready: bool,
    /// Where it offers its receives ([`Published::take_place`](super::Published::take_place)); 0:
    /// it offers none.
    pub offers: u16,
}

/// A key as a peer needs to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyEntry {
    /// The key.
    pub key: u32,
    /// Its protection domain, as a number of its process.
    pub pd: u32,
    /// What it allows.
    pub access: u32,
    /// Where its range begins, in the key's own addresses.
    pub va: u64,
    /// Bytes of the range.
    pub len: u64,
    /// Where its range begins, as an address of its process.
    pub addr: u64,
    /// How a peer reaches the memory: 0 by mapping its pages, 1 by `process_vm_writev` and
    /// `process_vm_readv`.
    pub how: u8,
    /// The only queue pair that may use it (a window of type 2); 0 for all of the protection
    /// domain.
    pub qpn: u32,
}

/// An entry for a key that was found, to ask whether it is still the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeySeen {
    pub(super) slot: usize,
    pub(super) sequence: u64,
}

/// An entry for a queue pair that was found, to ask whether it is still the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpSeen {
    pub(super) slot: usize,
    pub(super) sequence: u64,
}

/// In the last word of an entry that holds something.
const PRESENT: u64 = 1 << 63;
/// What an entry that holds nothing has.
pub(super) const VACANT: [u64; WORDS] = [0; WORDS];

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn low(word: u64) -> u32 {
    word as u32
}

fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

pub(super) fn qp_index(qpn: u32) -> usize {
    qpn as usize % QPS
}

/// Where the bucket of a key begins. Its upper 24 bits are random, the lower eight its consumer's
/// choice.
pub(super) fn bucket(key: u32) -> usize {
    let hash = (key >> 8).wrapping_mul(0x9e37_79b1) >> (u32::BITS - BUCKETS.ilog2());
    hash as usize * WAYS
}

impl QpEntry {
    pub(super) fn to_words(self) -> [u64; WORDS] {
        let QpEntry { qpn, peer_qpn, peer_nonce, epoch, pd, access, ready, offers } = self;
        let flags = PRESENT | u64::from(ready) | u64::from(offers) << 1;
        [pair(qpn, peer_qpn), pair(pd, access), peer_nonce, epoch.into(), 0, 0, flags]
    }

    pub(super) fn from_words(words: &[u64; WORDS]) -> Option<Self> {
        let &[numbers, rights, peer_nonce, epoch, .., flags] = words;
        (flags & PRESENT != 0).then(|| QpEntry {
            qpn: low(numbers),
            peer_qpn: high(numbers),
            peer_nonce,
            epoch: low(epoch),
            pd: low(rights),
            access: high(rights),
            ready: flags & 1 != 0,
            offers: (flags >> 1) as u16,
        })
    }
}

/// The first word of a key's entry.
pub(super) fn key_of(word: u64) -> u32 {
    low(word)
}

impl KeyEntry {
    pub(super) fn to_words(self) -> [u64; WORDS] {
        let KeyEntry { key, pd, access, va, len, addr, how, qpn } = self;
        [pair(key, pd), pair(access, qpn), va, len, addr, 0, PRESENT | u64::from(how)]
    }

    pub(super) fn from_words(words: &[u64; WORDS]) -> Option<Self> {
        let &[numbers, rights, va, len, addr, _, flags] = words;
        (flags & PRESENT != 0).then(|| KeyEntry {
            key: low(numbers),
            pd: high(numbers),
            access: low(rights),
            va,
            len,
            addr,
            how: flags as u8,
            qpn: high(rights),
        })
    }
}
