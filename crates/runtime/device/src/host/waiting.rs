//! Waiting for peers that are at work in memory of this process.
//!
//! Once a deregistration or the end of a queue pair has returned, no byte arrives any more (MEM-2).
//! A peer's thread sets its mark, which names a queue pair and a key, before it looks at their
//! entries (`adverb_shm::Published::enter`). The owner takes an entry back, and then looks at
//! the marks that name it. For each of these threads one of four things is true in the end:
//!
//! 1. The mark has changed: the thread is out.
//! 2. The thread or its process is no more.
//! 3. The thread begins again after any time off the processor (`adverb_memory::Guard`), and it is
//!    off the processor, outside of a copying system call. When it comes back it finds the entry
//!    taken back. So a stopped peer is not waited for.
//! 4. The mark is a lie (TRU-3): see [`Thread::lies`].
//!
//! Until then the owner waits, without a limit in time: a thread that is starved of processor time
//! is in the middle of a copy, however long that takes.
use super::threads::{BOUNDS, Doing, Thread};
use super::{Lanes, Peer};
use adverb_engine::{Key, Qpn};
use adverb_shm::{Inside, Use};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long a queue pair that ends waits for a peer that has still to fetch payloads.
pub(crate) const SETTLE: Duration = Duration::from_secs(5);
/// How often a wait that takes long is said, and a peer judged.
const STEP: Duration = Duration::from_secs(1);
/// Looks without giving the processor away: most of what is waited for is a short copy.
const SPINS: u32 = 256;
/// The first and the longest sleep between two looks.
const NAP: Duration = Duration::from_micros(20);
const LONGEST_NAP: Duration = Duration::from_millis(10);

/// The key that the mark of a message names. A message is placed by its receiver, and uses no key
/// of the sender's choice.
pub(super) const NO_KEY: Key = 0;

/// What its owner has taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Withdrawn {
    Key(Key),
    Qp(Qpn),
    /// All receives that were offered.
    Offers,
}

impl Withdrawn {
    fn is_used(self, owner: u64, at: &Use) -> bool {
        let names = match self {
            Withdrawn::Key(key) => at.key == key,
            Withdrawn::Qp(qpn) => at.qpn == qpn,
            Withdrawn::Offers => at.key == NO_KEY,
        };
        at.owner == owner && names
    }
}

/// A peer whose threads were at work in what was taken back.
struct Wait<'a> {
    peer: &'a Arc<Peer>,
    inside: Inside,
    /// What was seen of the threads so far, by their numbers.
    threads: Vec<Thread>,
    said: bool,
}

impl Wait<'_> {
    fn is_over(&mut self) -> bool {
        self.peer.tables.are_out(&mut self.inside)
    }

    /// Looks for a proof that threads are out although their marks stand.
    fn look_at_threads(&mut self) -> bool {
        if self.peer.process_has_ended() {
            return true;
        }
        let pid = self.peer.pid();
        self.inside.retain(|held| !Doing::of(pid, held.thread).is_out(held.what.restarts));
        self.is_over()
    }

    /// Says what is waited for; `true`: the peer lies.
    fn judge(&mut self) -> bool {
        let pid = self.peer.pid();
        // Each thread once: a lying process may name one in many marks.
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
                "the end of a region or queue pair waits for process {pid}, which is in the middle of a copy{how}: it returns when that process \
                 goes on or ends"
            );
        }
        lies
    }
}

impl Lanes {
    fn others(&self) -> Vec<Arc<Peer>> {
        if !self.any() {
            return Vec::new();
        }
        let mut all = self.all.read().clone();
        all.extend_from_slice(&self.departed.lock());
        all.retain(|peer| !peer.is_own());
        all
    }

    /// A key of this process is in its table no more: waits until no thread of the process is at
    /// work in what such a thread found by the key before.
    pub(crate) fn settle_own(&self) {
        self.taken_back.fetch_add(1, Ordering::SeqCst);
        self.published.wait_quiet();
    }

    /// Waits until no peer is at work any more in what was taken back: see the module's page. A
    /// peer that marks itself and does nothing is handed to `leave`, with what is said of it.
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
                        leave(wait.peer, "marks itself at work in memory of this one and does nothing");
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

/// Waits until the peer has fetched the payloads of a queue pair. A peer that is stopped is not
/// waited for, and another for [`SETTLE`] at most.
pub(crate) fn let_fetch(peer: &Arc<Peer>, qpn: Qpn, mut patience: Duration) -> bool {
    let start = Instant::now();
    let mut nap = NAP;
    for looks in 0_u64.. {
        if peer.unfetched(|to| to.qpn == qpn).is_empty() {
            return true;
        }
        if looks == 0 {
            // It may sleep over the rest of a batch whose bell is still to be rung.
            peer.ring_bell();
            patience = patience.min(SETTLE);
        }
        if looks < SPINS.into() {
            std::hint::spin_loop();
            continue;
        }
        if start.elapsed() >= patience || peer.has_left() || super::threads::is_stopped(peer.pid()) {
            return false;
        }
        std::thread::sleep(nap);
        nap = LONGEST_NAP.min(nap * 2);
    }
    false
}

impl Lanes {
    /// The queue pairs of which peers have still to fetch payloads that lie in a range.
    pub(crate) fn referring(&self, addr: u64, len: u64) -> Vec<Qpn> {
        let of = |peer: Arc<Peer>| peer.unfetched(|to| to.overlaps(addr, len));
        let mut all: Vec<_> = self.others().into_iter().flat_map(of).map(|to| to.qpn).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}
