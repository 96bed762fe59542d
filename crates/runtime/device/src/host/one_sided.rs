//! One-sided requests. The initiator performs them in the memory of the target, by the target's
//! published tables.
//!
//! The initiator makes the same checks as the target's engine. If a check fails or the memory
//! cannot be reached, the request goes as a packet, and the target reports the error. So the
//! initiator itself reports no errors.
//!
//! 1. The initiator finds the entries of the queue pair and the key, and how the memory is reached.
//! 2. The initiator sets the thread's hazard, with the names of both entries
//!    ([`Published::enter`](adverb_shm::Published::enter)).
//! 3. Each access to the memory reads both entries in a restartable sequence with the access itself
//!    ([`Guard`]). If an entry was taken back, the copy ends and the request goes as a packet.
//! 4. The initiator clears the hazard.
//!
//! A target that takes back a key or a queue pair waits for all initiators with a hazard of this
//! key or queue pair (`waiting`).
//!
//! The hazard also protects the memory on the initiator's own side. A queue pair caches the memory
//! of a local key, and the number of keys taken back by this process at that time. After setting
//! the hazard, the thread compares the number with [`HostConnections::own_keys`]. A thread that
//! takes a key back raises the number, and then waits for the hazards of all threads of the process
//! ([`HostConnections::settle_own`]). So such a request needs no lock of the key table.
use super::{HostConnections, PRIVATE, Peer, SHARED};
use adverb_engine::memory::RangeKind;
use adverb_engine::packet::Data;
use adverb_engine::qp::HostRequest;
use adverb_engine::wr::{Remote, SendOp};
use adverb_engine::{Access, AtomicOp, Key, KeyTable, Memory, PdId, Qpn, Range};
use adverb_memory::{Cma, Guard, HostMemory, Window, check_memory};
use adverb_shm::{Busy, EntrySeen, KeyEntry, QpEntry, Use};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What a queue pair found in its peer's tables last. Valid while the entries are unchanged.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    qp: Option<(QpEntry, EntrySeen)>,
    key: Option<RemoteRegion>,
    shortcut: Option<Shortcut>,
}

impl Seen {
    /// The entries have changed, so the next request looks them up.
    pub(crate) fn forget_shortcut(&mut self) {
        self.shortcut = None;
    }
}

/// The combined effect of the queue pair's entry and the last used key's entry, for mapped memory.
/// The [`Guard`] of each access checks both entries, so a shortcut needs no check.
#[derive(Debug)]
struct Shortcut {
    rkey: Key,
    dest_qpn: Qpn,
    /// Granted by both entries.
    granted: Access,
    /// The region, in the addresses of the key.
    va: u64,
    len: u64,
    window: Arc<Window>,
    /// Offset of the region in the window.
    start: u64,
    qp: EntrySeen,
    key: EntrySeen,
}

#[derive(Debug)]
struct RemoteRegion {
    entry: KeyEntry,
    seen: EntrySeen,
    reach: Reach,
}

/// How a region is reached.
#[derive(Clone, Debug)]
enum Reach {
    /// A mapping, and the offset of the region in the mapping.
    Window(Arc<Window>, u64),
    Cma(Cma),
}

/// The two queue pairs of a connection.
#[derive(Clone, Copy)]
pub(crate) struct Ends {
    pub(crate) qpn: Qpn,
    pub(crate) dest_qpn: Qpn,
}

fn target_of(op: &SendOp) -> Option<(Remote, Access)> {
    Some(match *op {
        SendOp::Write(remote) | SendOp::AtomicWrite(remote) => (remote, Access::REMOTE_WRITE),
        SendOp::Read(remote) => (remote, Access::REMOTE_READ),
        SendOp::CompareSwap { remote, .. } | SendOp::FetchAdd { remote, .. } => {
            (remote, Access::REMOTE_ATOMIC)
        }
        _ => return None,
    })
}

fn atomic_of(op: &SendOp, local: Data<'_>) -> Option<AtomicOp> {
    Some(match *op {
        SendOp::CompareSwap { compare, swap, .. } => AtomicOp::CompareSwap { compare, swap },
        SendOp::FetchAdd { add, .. } => AtomicOp::FetchAdd { add },
        SendOp::AtomicWrite(_) => match local {
            Data::Bytes(bytes) => {
                AtomicOp::Write { value: u64::from_ne_bytes(bytes.try_into().ok()?) }
            }
            Data::Gather(_) => return None,
        },
        _ => return None,
    })
}

/// Writes the old value of an atomic to its place. [`HostConnections::perform`] has checked the
/// memory. If the program unmaps the memory in between, the value is lost. A NIC would lose the
/// value as well: it writes to pages that the program no longer sees.
fn place_old(op: &SendOp, old: u64, local: Data<'_>) {
    let (false, Data::Gather(ranges)) = (matches!(op, SendOp::AtomicWrite(_)), local) else {
        return;
    };
    let bytes = old.to_ne_bytes();
    let mut at = 0;
    for r in ranges {
        let part = &bytes[at..(at + r.len as usize).min(8)];
        at += r.len as usize;
        let _ = HostMemory.write(*r, part);
    }
}

impl HostConnections {
    /// Performs a request. `false`: nothing has happened, and the request has to go as a packet.
    pub(crate) fn perform(
        &self,
        peer: &Peer,
        seen: &mut Seen,
        ends: Ends,
        keys: &KeyTable,
        request: &HostRequest<'_>,
    ) -> bool {
        let Some((remote, needed)) = target_of(&request.op) else { return false };
        // A request without bytes has no key to check, and goes as a packet.
        if request.len == 0 || request.len > u64::from(u32::MAX) {
            return false;
        }
        // An atomic without a place for the old value would fail too late, so the engine handles
        // it. A copy with a failure halfway is repeated as a packet, and fails there.
        let atomic = needed == Access::REMOTE_ATOMIC;
        let fits = |r: &Range| match r.kind {
            RangeKind::Mapped => true,
            RangeKind::OnDemand => !atomic || check_memory(r.addr, r.len.into(), true).is_ok(),
            _ => false,
        };
        let plain = match request.local {
            Data::Bytes(_) => true,
            Data::Gather(ranges) => ranges.iter().all(fits),
        };
        if !plain || (atomic && !remote.va.is_multiple_of(8)) {
            return false;
        }
        if peer.is_own {
            let Some((pd, _)) = self.open(peer, seen, ends, needed) else { return false };
            return within(keys, pd, ends, remote, needed, request);
        }
        let mut busy = None;
        let at = (remote, needed, request.len);
        let Some((target, off, guard)) = self.begin(peer, seen, ends, at, &mut busy) else {
            return false;
        };
        match &target.reach {
            Reach::Window(window, at) => in_window(window, &guard, at + off, request),
            // The peer chooses the regions' addresses, so the sum may overflow.
            Reach::Cma(cma) => {
                let addr = target.entry.addr.checked_add(off);
                addr.is_some_and(|addr| by_calls(cma, &guard, addr, request))
            }
        }
    }

    /// Steps 1 and 2 of a WRITE or READ, if the peer's memory is mapped. Returns the window, the
    /// offset in the window, and the guard of the access. `None`: the request has to be queued.
    /// `busy`: the hazard set by the thread for a similar request. On return, the hazard of this
    /// request.
    #[inline(always)]
    pub(crate) fn reach<'a, 'b>(
        &'a self,
        peer: &'b Peer,
        seen: &'b mut Seen,
        ends: Ends,
        (remote, needed, len): (Remote, Access, u64),
        busy: &mut Option<Busy<'a>>,
    ) -> Option<(&'b Window, u64, Guard<'b>)> {
        let known = |s: &Shortcut| s.rkey == remote.rkey && s.dest_qpn == ends.dest_qpn;
        if !seen.shortcut.as_ref().is_some_and(known) {
            seen.shortcut = self.find_shortcut(peer, seen, ends, remote.rkey);
        }
        let found = seen.shortcut.as_ref()?;
        let off = remote.va.checked_sub(found.va)?;
        if len == 0 || len > found.len || off > found.len - len || !found.granted.contains(needed) {
            return None;
        }
        let guard = Guard::new(peer.tables.word(&found.qp), peer.tables.word(&found.key));
        self.set_hazard(peer, ends, remote.rkey, &guard, busy)?;
        Some((&found.window, found.start + off, guard))
    }

    #[cold]
    #[inline(never)]
    fn find_shortcut(
        &self,
        peer: &Peer,
        seen: &mut Seen,
        ends: Ends,
        rkey: Key,
    ) -> Option<Shortcut> {
        if peer.is_own {
            return None;
        }
        let (pd, qp) = self.open(peer, seen, ends, Access::empty())?;
        let allowed = seen.qp.as_ref()?.0.access;
        let RemoteRegion { entry, seen: key, reach } = find_key(peer, &mut seen.key, rkey)?;
        let Reach::Window(window, start) = reach else { return None };
        if !is_for(entry, pd, ends) {
            return None;
        }
        Some(Shortcut {
            rkey,
            dest_qpn: ends.dest_qpn,
            granted: Access::from_bits_truncate(entry.access & allowed),
            va: entry.va,
            len: entry.len,
            window: window.clone(),
            start: *start,
            qp,
            key: *key,
        })
    }

    /// Steps 1 and 2 of an access to the memory of a peer: see the module's page. Returns the
    /// region of the key, the offset of the access in the region, and the guard of the access.
    /// `None`: the access is not allowed.
    #[inline]
    fn begin<'a, 'b>(
        &'a self,
        peer: &'b Peer,
        seen: &'b mut Seen,
        ends: Ends,
        (remote, needed, len): (Remote, Access, u64),
        busy: &mut Option<Busy<'a>>,
    ) -> Option<(&'b RemoteRegion, u64, Guard<'b>)> {
        let (pd, qp) = self.open(peer, seen, ends, needed)?;
        let target = find_key(peer, &mut seen.key, remote.rkey)?;
        let entry = &target.entry;
        let granted = Access::from_bits_truncate(entry.access);
        if !granted.contains(needed) || !is_for(entry, pd, ends) {
            return None;
        }
        let off = remote.va.checked_sub(entry.va)?;
        if len > entry.len || off > entry.len - len {
            return None;
        }
        let guard = Guard::new(peer.tables.word(&qp), peer.tables.word(&target.seen));
        self.set_hazard(peer, ends, remote.rkey, &guard, busy)?;
        Some((target, off, guard))
    }

    /// Step 2. A hazard already set for the same use stays set. `None` for a thread without
    /// restartable sequences: if such a thread were stopped in the middle of a copy, the owner
    /// would have to wait. The request goes as a packet.
    #[inline(always)]
    fn set_hazard<'a>(
        &'a self,
        peer: &Peer,
        ends: Ends,
        key: Key,
        guard: &Guard<'_>,
        busy: &mut Option<Busy<'a>>,
    ) -> Option<()> {
        if !guard.restarts() {
            return None;
        }
        let at = Use { owner: peer.nonce, qpn: ends.dest_qpn, key };
        if !busy.as_ref().is_some_and(|busy| busy.names(&at)) {
            // A thread has a single hazard, so the earlier use ends first.
            *busy = None;
            *busy = Some(self.published.enter(&at)?);
        }
        Some(())
    }

    /// Number of keys of this process taken back so far. Only meaningful while the thread's hazard
    /// is set.
    #[inline]
    pub(crate) fn own_keys(&self) -> u64 {
        self.taken_back.load(Ordering::Relaxed)
    }

    /// A guard for the time in which the peer's queue pair is connected to ours. As long as the
    /// guard holds, the payload of a record is not reused by the peer. `None`: the queue pair is
    /// not connected to ours, or the record is of an earlier epoch.
    pub(crate) fn connected<'a>(
        &self,
        peer: &'a Peer,
        seen: &mut Seen,
        ends: Ends,
        epoch: u32,
    ) -> Option<Guard<'a>> {
        let (_, qp) = self.open(peer, seen, ends, Access::empty())?;
        seen.qp.as_ref().filter(|(entry, _)| entry.epoch == epoch)?;
        let word = peer.tables.word(&qp);
        Some(Guard::new(word, word))
    }

    /// The protection domain of the peer's queue pair, if the queue pair is connected to ours and
    /// allows the operation.
    #[inline]
    pub(crate) fn open(
        &self,
        peer: &Peer,
        seen: &mut Seen,
        ends: Ends,
        needed: Access,
    ) -> Option<(PdId, EntrySeen)> {
        let current = seen.qp.as_ref().is_some_and(|(_, at)| peer.tables.is_unchanged(at));
        if !current {
            seen.qp = peer.tables.qp(ends.dest_qpn);
        }
        let (entry, at) = seen.qp.as_ref()?;
        let open = entry.ready
            && entry.qpn == ends.dest_qpn
            && entry.peer_qpn == ends.qpn
            && entry.peer_nonce == self.nonce
            && Access::from_bits_truncate(entry.access).contains(needed);
        open.then_some((PdId(entry.pd), *at))
    }
}

/// Does a key open memory to a queue pair of this protection domain?
#[inline]
fn is_for(entry: &KeyEntry, pd: PdId, ends: Ends) -> bool {
    entry.pd == pd.0 && (entry.qpn == 0 || entry.qpn == ends.dest_qpn)
}

/// The entry of a key, and the way to the key's memory.
#[inline]
fn find_key<'a>(
    peer: &Peer,
    known: &'a mut Option<RemoteRegion>,
    rkey: Key,
) -> Option<&'a RemoteRegion> {
    let current =
        known.as_ref().is_some_and(|t| t.entry.key == rkey && peer.tables.is_unchanged(&t.seen));
    if !current {
        *known = look_up(peer, rkey);
    }
    known.as_ref()
}

#[cold]
fn look_up(peer: &Peer, rkey: Key) -> Option<RemoteRegion> {
    let (entry, seen) = peer.tables.key(rkey)?;
    let reach = match entry.how {
        SHARED => {
            let (window, at) = peer.memory.window(entry.addr, entry.len)?;
            Reach::Window(window, at)
        }
        PRIVATE => Reach::Cma(peer.memory.cma()?),
        _ => return None,
    };
    Some(RemoteRegion { entry, seen, reach })
}

fn in_window(window: &Window, guard: &Guard<'_>, off: u64, request: &HostRequest<'_>) -> bool {
    if matches!(
        request.op,
        SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } | SendOp::AtomicWrite(_)
    ) {
        let Some(op) = atomic_of(&request.op, request.local) else { return false };
        return window.atomic(guard, off, op).is_ok_and(|old| {
            place_old(&request.op, old, request.local);
            true
        });
    }
    let write = matches!(request.op, SendOp::Write(_));
    match request.local {
        Data::Bytes(bytes) => write && window.write(guard, off, bytes).is_ok(),
        Data::Gather(ranges) => {
            let mut at = off;
            ranges.iter().all(|r| {
                let from = at;
                at += u64::from(r.len);
                if write {
                    window.write_from(guard, from, *r).is_ok()
                } else {
                    window.read_to(guard, from, *r).is_ok()
                }
            })
        }
    }
}

fn by_calls(cma: &Cma, guard: &Guard<'_>, addr: u64, request: &HostRequest<'_>) -> bool {
    match (&request.op, request.local) {
        (SendOp::Write(_), Data::Bytes(bytes)) => {
            let here = Range {
                addr: bytes.as_ptr() as u64,
                len: bytes.len() as u32,
                kind: RangeKind::Mapped,
            };
            cma.write(guard, &[here], &[(addr, request.len)]).is_ok()
        }
        (SendOp::Write(_), Data::Gather(ranges)) => {
            cma.write(guard, ranges, &[(addr, request.len)]).is_ok()
        }
        (SendOp::Read(_), Data::Gather(ranges)) => {
            cma.read(guard, ranges, &[(addr, request.len)]).is_ok()
        }
        // The CPU's atomics do not reach private memory of the peer: the target performs them.
        _ => false,
    }
}

/// Within the process, the key table itself checks the key.
fn within(
    keys: &KeyTable,
    pd: PdId,
    ends: Ends,
    remote: Remote,
    needed: Access,
    request: &HostRequest<'_>,
) -> bool {
    let Ok(target) =
        keys.check_remote(pd, ends.dest_qpn, remote.rkey, needed, remote.va, request.len as u32)
    else {
        return false;
    };
    if let Some(op) = atomic_of(&request.op, request.local) {
        return remote.va.is_multiple_of(8)
            && HostMemory.atomic(target, op).is_ok_and(|old| {
                place_old(&request.op, old, request.local);
                true
            });
    }
    let mut at = target.addr;
    let mut step = |len: u32| {
        let addr = at;
        at += u64::from(len);
        Range { addr, len, ..target }
    };
    match (&request.op, request.local) {
        (SendOp::Write(_), Data::Bytes(bytes)) => HostMemory.write(target, bytes).is_ok(),
        (SendOp::Write(_), Data::Gather(ranges)) => {
            ranges.iter().all(|r| adverb_memory::copy(*r, step(r.len)).is_ok())
        }
        (SendOp::Read(_), Data::Gather(ranges)) => {
            ranges.iter().all(|r| adverb_memory::copy(step(r.len), *r).is_ok())
        }
        _ => false,
    }
}
