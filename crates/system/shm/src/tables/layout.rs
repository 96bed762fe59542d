//! The layout of the segment of tables, and the form of entries.

use super::entry::WORDS;

/// The low bits of a QPN are the index in the table.
const QP_BITS: u32 = 14;
/// Entries for queue pairs.
pub(super) const QPS: usize = 1 << QP_BITS;
/// Buckets of the key table. Each bucket has [`WAYS`] entries.
const BUCKETS: usize = 1 << 13;
pub(super) const WAYS: usize = 8;
pub(super) const KEYS: usize = BUCKETS * WAYS;
/// The largest number of threads of one process using other processes' memory at the same time.
pub(super) const HAZARDS: usize = 256;

/// The process that published tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The process id, in the process's own PID namespace.
    pub pid: u32,
    /// The start time in clock ticks since boot (`/proc/PID/stat`). Together with `pid` the start
    /// time identifies a process even after the kernel reuses the number.
    pub start_time: u64,
    /// A random number identifying the tables.
    pub nonce: u64,
}

/// What a peer needs to know of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpEntry {
    /// The queue pair number.
    pub qpn: u32,
    /// The number of the connected queue pair.
    pub peer_qpn: u32,
    /// The [`Identity::nonce`] of the connected queue pair's process; 0 if unknown. The number
    /// alone is not enough: a new process may have taken over the slot of a dead process.
    pub peer_nonce: u64,
    /// The current epoch. The owner accepts records by reference from the peer's ring only if the
    /// records carry this epoch.
    pub epoch: u32,
    /// The protection domain, as a number of the owning process.
    pub pd: u32,
    /// The access rights of the peer.
    pub access: u32,
    /// Whether the peer may use the queue pair now.
    pub ready: bool,
}

/// What a peer needs to know of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyEntry {
    /// The key.
    pub key: u32,
    /// The protection domain, as a number of the owning process.
    pub pd: u32,
    /// The access rights of the key.
    pub access: u32,
    /// The start of the range, in the address space of the key.
    pub va: u64,
    /// The length of the range in bytes.
    pub len: u64,
    /// The start of the range, as an address of the owning process.
    pub addr: u64,
    /// How a peer reaches the memory: 0 by mapping the pages, 1 by `process_vm_writev` and
    /// `process_vm_readv`.
    pub how: u8,
    /// The only queue pair that may use the key (a type 2 memory window); 0 if every queue pair of
    /// the protection domain may.
    pub qpn: u32,
}

/// An entry of a key or a queue pair, as found by a lookup.
/// [`PeerTables::is_unchanged`](super::PeerTables::is_unchanged) tells whether the entry is still
/// the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntrySeen {
    pub(super) slot: usize,
    pub(super) sequence: u64,
}

/// Set in the last word of an occupied entry.
const PRESENT: u64 = 1 << 63;
/// The words of a vacant entry.
pub(super) const VACANT: [u64; WORDS] = [0; WORDS];
/// Set in the last word of a queue pair's entry that only says why the queue pair has failed.
const FAILED: u64 = 1 << 62;

/// Why a queue pair has failed, as values of the publisher.
pub type Failure = [u64; 5];

/// The words of an entry with the failure of a queue pair. For peers the entry is vacant.
pub(super) fn failure_words(qpn: u32, failure: Failure) -> [u64; WORDS] {
    let [a, b, c, d, e] = failure;
    [qpn.into(), a, b, c, d, e, FAILED]
}

/// The number and the failure of a queue pair.
pub(super) fn failure_from(words: &[u64; WORDS]) -> Option<(u32, Failure)> {
    let &[qpn, a, b, c, d, e, flags] = words;
    (flags == FAILED).then_some((low(qpn), [a, b, c, d, e]))
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// The low half of a word. In the first word of a key's entry, the key.
pub(super) fn low(word: u64) -> u32 {
    word as u32
}

fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

pub(super) fn qp_index(qpn: u32) -> usize {
    qpn as usize % QPS
}

/// The first entry of a key's bucket. The upper 24 bits of the key are random; the consumer chooses
/// the lower eight.
pub(super) fn bucket(key: u32) -> usize {
    let hash = (key >> 8).wrapping_mul(0x9e37_79b1) >> (u32::BITS - BUCKETS.ilog2());
    hash as usize * WAYS
}

impl QpEntry {
    pub(super) fn to_words(self) -> [u64; WORDS] {
        let QpEntry { qpn, peer_qpn, peer_nonce, epoch, pd, access, ready } = self;
        let flags = PRESENT | u64::from(ready);
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
        })
    }
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
