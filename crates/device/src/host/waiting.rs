//! Waiting for peers that are at work in memory of this process.
//!
//! A deregistration that has returned, or an end of a queue pair, means that no byte arrives any
//! more (MEM-2). An initiator
//! marks itself as inside before it looks at a key, and takes the mark back when it has copied; so
//! the owner, who has withdrawn the key, waits for the marks. An initiator that is stopped in the
//! middle (a debugger, SIGSTOP, a frozen container) is waited for as long as it is stopped. Only
//! one that could have run for a long time, and did not take its mark back, is not: no copy lasts
//! as long, so the mark is a lie (TRU-3).
use super::{Lanes, Peer};
use adverb_link::shm::Inside;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long peers are waited for that have still to fetch a payload, when a queue pair or a region
/// ends. One that is in the middle of a copy is waited for as long as it takes.
pub(crate) const SETTLE: Duration = Duration::from_secs(5);
/// How long a peer is waited for before the log says so.
const STEP: Duration = Duration::from_secs(1);
/// So many of these in which a peer could run, and it is not waited for any more.
const HONEST: u32 = 60;
/// Looks without giving the processor away: most of what is waited for is a short copy.
const SPINS: u32 = 256;
/// Looks that let others run between, before it sleeps between them.
const YIELDS: u32 = 64;
const NAP: Duration = Duration::from_micros(20);

/// What one peer is waited for.
struct Wait<'a> {
    peer: &'a Arc<Peer>,
    /// It has payloads of ours to fetch.
    fetches: bool,
    /// Threads of its that were in memory of this process.
    inside: Option<Inside>,
    /// How long.
    patience: Duration,
    could_run: u32,
    said: bool,
}

impl<'a> Wait<'a> {
    fn new(peer: &'a Arc<Peer>, fetches: bool, inside: Option<Inside>) -> Self {
        Wait { peer, fetches, inside, patience: STEP, could_run: 0, said: false }
    }

    fn is_over(&mut self) -> bool {
        self.fetches = self.fetches && !self.peer.has_fetched();
        if self.inside.as_mut().is_some_and(|inside| self.peer.tables.are_out(inside)) {
            self.inside = None;
        }
        !self.fetches && self.inside.is_none()
    }
}

/// Waits for all of them at once, and leaves those that were waited for in vain. Who has left is
/// not waited for.
fn wait(waits: &mut Vec<Wait<'_>>) {
    let start = Instant::now();
    for looks in 0_u64.. {
        waits.retain_mut(|wait| !wait.is_over());
        if looks == 0 {
            // It may sleep over the rest of a batch whose bell is still to be rung.
            waits.iter().filter(|wait| wait.fetches).for_each(|wait| wait.peer.ring_bell());
        }
        if looks >= SPINS.into() {
            waits.retain(|wait| !wait.peer.has_left());
            let passed = start.elapsed();
            if waits.iter().all(|wait| passed >= wait.patience) {
                return;
            }
        }
        match looks.checked_sub(SPINS.into()) {
            None => std::hint::spin_loop(),
            Some(looks) if looks < YIELDS.into() => std::thread::yield_now(),
            Some(_) => std::thread::sleep(NAP),
        }
        if waits.is_empty() {
            return;
        }
    }
}

/// Waits for all, each as long as it is waited for. One that stands still, or marks itself as at
/// work for ever, is waited for in vain once and not each time.
fn wait_patiently(mut waits: Vec<Wait<'_>>, patience: Duration) {
    for wait in &mut waits {
        let stalls = wait.peer.stalls.load(Ordering::Relaxed);
        wait.patience = if stalls { Duration::ZERO } else { patience };
    }
    let all: Vec<_> = waits.iter().map(|wait| wait.peer).collect();
    wait(&mut waits);
    for peer in all {
        let stalls = waits.iter().any(|wait| Arc::ptr_eq(wait.peer, peer));
        let stalled = peer.stalls.swap(stalls, Ordering::Relaxed);
        if stalls && !stalled {
            log::warn!(
                "process {} has been at work in memory of this one for {patience:?}; it is not waited for any longer",
                peer.pid()
            );
        }
    }
}

impl Lanes {
    fn others(&self) -> Vec<Arc<Peer>> {
        if !self.any() {
            return Vec::new();
        }
        let mut all = self.all.read().clone();
        all.retain(|peer| !peer.is_own());
        all
    }
}

/// Waits until the peer has fetched the payloads that records written before only point at.
pub(crate) fn let_fetch(peer: &Arc<Peer>, patience: Duration) {
    wait_patiently(vec![Wait::new(peer, true, None)], patience);
}

impl Lanes {
    /// Waits until those are out who may be inside a table of this process, as it was before a
    /// change of it: however long it takes, as its owner is about to have memory back. Payloads
    /// that records written before only point at are waited for as long as `patience`. A peer that
    /// marks itself and does nothing is handed to `leave`, with what is said of it.
    pub(crate) fn settle(&self, patience: Duration, leave: impl Fn(&Arc<Peer>, &str)) {
        let peers = self.others();
        let mut inside: Vec<_> =
            peers.iter().map(|peer| Wait::new(peer, false, Some(peer.tables.inside()))).collect();
        // Who fetches a payload later reads what is there by then, and writes nothing.
        wait_patiently(peers.iter().map(|peer| Wait::new(peer, true, None)).collect(), patience);
        loop {
            wait(&mut inside);
            if inside.is_empty() {
                return;
            }
            inside.retain_mut(|wait| goes_on(wait, &leave));
        }
    }
}

/// A peer was waited for in vain for a while. Is it to be waited for on?
fn goes_on(wait: &mut Wait<'_>, leave: &impl Fn(&Arc<Peer>, &str)) -> bool {
    let peer = wait.peer;
    let held_up = is_held_up(peer.pid());
    wait.could_run = if held_up { 0 } else { wait.could_run + 1 };
    if wait.could_run >= HONEST {
        leave(peer, "marks itself at work in memory of this one and does nothing");
        return false;
    }
    if !std::mem::replace(&mut wait.said, true) {
        let how = if held_up { ", and is stopped" } else { "" };
        log::warn!(
            "the end of a region or queue pair waits for process {}, which is in the middle of a copy{how}: it returns when that process goes \
             on or ends",
            peer.pid()
        );
    }
    true
}

/// Is a thread of the process stopped, or in a wait that no signal ends, or the process frozen?
fn is_held_up(pid: i32) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let stopped = |task: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        // The name, in parentheses, may have anything in it.
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        state.is_some_and(|state| matches!(state, 'T' | 't' | 'D'))
    };
    tasks.into_iter().any(stopped) || is_frozen(pid)
}

/// Does its control group stand still (version 2, where the state of a thread does not say so)?
fn is_frozen(pid: i32) -> bool {
    let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let Some(path) = groups.lines().find_map(|line| line.strip_prefix("0::/")) else { return false };
    ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].iter().any(|root| {
        let events = std::fs::read_to_string(format!("{root}/{path}/cgroup.events"));
        events.is_ok_and(|text| text.lines().any(|line| line == "frozen 1"))
    })
}
