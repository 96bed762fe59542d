//! Waiting for peers at work in memory of this process.
//!
//! Once a deregistration or the end of a queue pair has returned, no byte arrives any more (MEM-2).
//! A peer's thread sets a hazard before the thread reads entries of the tables. The hazard names a
//! queue pair and a key (`adverb_shm::Published::enter`). The owner takes an entry back, and then
//! reads the hazards of the entry. For each of these threads, one of these conditions becomes true:
//!
//! 1. The hazard has changed: the thread is out.
//! 2. The thread or the process has ended.
//! 3. The thread is off the processor, outside of a copying system call. A thread that sets a
//!    hazard begins its sequence again after any time off the processor (`adverb_memory::Guard`).
//!    When the thread runs again, the entry no longer exists. So the owner does not wait for a
//!    stopped peer.
//! 4. The hazard is a lie (TRU-3): see [`Thread::lies`].
//!
//! Until then the owner waits, without a time limit. A thread starved of processor time stays in
//! the middle of a copy, however long the starvation lasts.
use super::threads::{BOUNDS, Doing, Thread};
use super::{HostConnections, Peer};
use adverb_engine::{Key, Qpn};
use adverb_shm::{Inside, Use};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Longest wait at the end of a queue pair for a peer with payloads still to fetch.
pub(crate) const SETTLE: Duration = Duration::from_secs(5);
/// Interval at which a long wait is logged and the peer's threads are judged.
const STEP: Duration = Duration::from_secs(1);
/// Checks without giving the processor away. Most waits are for a short copy.
const SPINS: u32 = 256;
/// The first sleep between two checks.
const NAP: Duration = Duration::from_micros(20);
/// The longest sleep between two checks.
const LONGEST_NAP: Duration = Duration::from_millis(10);

/// An object taken back by the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Withdrawn {
    Key(Key),
    Qp(Qpn),
}

impl Withdrawn {
    fn is_used(self, owner: u64, at: &Use) -> bool {
        let names = match self {
            Withdrawn::Key(key) => at.key == key,
            Withdrawn::Qp(qpn) => at.qpn == qpn,
        };
        at.owner == owner && names
    }
}

/// A peer with threads at work in an object after the owner took the object back.
struct Wait<'a> {
    peer: &'a Arc<Peer>,
    inside: Inside,
    /// The observations of each thread so far, by thread number.
    threads: Vec<Thread>,
    said: bool,
}

impl Wait<'_> {
    fn is_over(&mut self) -> bool {
        self.peer.tables.are_out(&mut self.inside)
    }

    /// Looks for a proof that threads are out although their hazards still stand.
    fn look_at_threads(&mut self) -> bool {
        if self.peer.links.process_has_ended() {
            return true;
        }
        let pid = self.peer.pid;
        self.inside.retain(|held| !Doing::of(pid, held.thread).is_out());
        self.is_over()
    }

    /// Logs the wait. `true`: the peer lies.
    fn judge(&mut self) -> bool {
        let pid = self.peer.pid;
        // Each thread once: a lying process may name the same thread in many hazards.
        let mut numbers = Vec::new();
        self.inside.retain(|held| {
            numbers.push(held.thread);
            true
        });
        numbers.sort_unstable();
        numbers.dedup();
        let (threads, mut lies, mut how) = (&mut self.threads, false, "");
        for number in numbers {
            let known = threads.iter().position(|thread| thread.number == number);
            let at = known.unwrap_or_else(|| {
                threads.push(Thread::new(pid, number));
                threads.len() - 1
            });
            let doing = Doing::of(pid, number);
            how = doing.words();
            lies |= threads[at].lies(doing, BOUNDS);
        }
        if !lies && !std::mem::replace(&mut self.said, true) {
            log::warn!(
                "the end of a region or queue pair waits for process {pid}, which is in the middle \
                 of a copy{how}: the call returns when the process continues or ends"
            );
        }
        lies
    }
}

impl HostConnections {
    fn others(&self) -> Vec<Arc<Peer>> {
        if !self.any() {
            return Vec::new();
        }
        let mut all = self.all.read().clone();
        all.extend_from_slice(&self.departed.lock());
        all.retain(|peer| !peer.is_own);
        all
    }

    /// Called after a key of this process was removed from the key table. Waits until no thread of
    /// the process uses memory found by the key before.
    pub(crate) fn settle_own(&self) {
        self.taken_back.fetch_add(1, Ordering::SeqCst);
        self.published.wait_quiet();
    }

    /// Waits until no peer uses the object `what`: see the module's page. If a peer sets a hazard
    /// and does no work, the peer is passed to `leave`, with the reason.
    pub(crate) fn settle(&self, what: Withdrawn, leave: impl Fn(&Arc<Peer>, &str)) {
        let peers = self.others();
        let begin = |peer| Wait {
            peer,
            inside: Arc::as_ref(peer).tables.inside(|at| what.is_used(self.nonce, at)),
            threads: Vec::new(),
            said: false,
        };
        let mut waits: Vec<_> = peers.iter().map(begin).collect();
        for _ in 0..SPINS {
            waits.retain_mut(|wait| !wait.is_over());
            if waits.is_empty() {
                return;
            }
            std::hint::spin_loop();
        }
        let (mut nap, mut judged) = (NAP, Instant::now());
        loop {
            waits.retain_mut(|wait| !wait.is_over() && !wait.look_at_threads());
            if judged.elapsed() >= STEP {
                judged = Instant::now();
                waits.retain_mut(|wait| {
                    let lies = wait.judge();
                    if lies {
                        wait.peer.lies();
                        leave(
                            wait.peer,
                            "claims to copy in memory of this process, and copies nothing",
                        );
                        self.forget_departed(wait.peer);
                    }
                    !lies
                });
            }
            if waits.is_empty() {
                return;
            }
            std::thread::sleep(nap);
            nap = LONGEST_NAP.min(nap * 2);
        }
    }
}

/// Waits until the peer has fetched the payloads of a queue pair. The wait ends at once if the peer
/// is stopped, and after [`SETTLE`] at the latest.
pub(crate) fn let_fetch(peer: &Arc<Peer>, qpn: Qpn, mut patience: Duration) -> bool {
    let start = Instant::now();
    let mut nap = NAP;
    for looks in 0_u64.. {
        if peer.outgoing.unfetched(|to| to.qpn == qpn).is_empty() {
            return true;
        }
        if looks == 0 {
            // The peer may sleep, because the doorbell for the rest of a batch is still to be rung.
            peer.ring_doorbell();
            patience = patience.min(SETTLE);
        }
        if looks < SPINS.into() {
            std::hint::spin_loop();
            continue;
        }
        if start.elapsed() >= patience || peer.has_left() || super::threads::is_stopped(peer.pid) {
            return false;
        }
        std::thread::sleep(nap);
        nap = LONGEST_NAP.min(nap * 2);
    }
    false
}

impl HostConnections {
    /// The queue pairs with payloads in a memory range still to be fetched by peers.
    pub(crate) fn referring(&self, addr: u64, len: u64) -> Vec<Qpn> {
        let of = |peer: Arc<Peer>| peer.outgoing.unfetched(|to| to.overlaps(addr, len));
        let mut all: Vec<_> = self.others().into_iter().flat_map(of).map(|to| to.qpn).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}
