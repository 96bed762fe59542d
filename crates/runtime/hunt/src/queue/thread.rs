//! The thread of a hunted process: releases withheld completions that are due, and lets late queue
//! pairs begin.
use super::{Why, of};
use crate::late::everyone_sleeps;
use crate::process::{Hunt, restart_look};
use crate::quiet::PROCESS;
use adverb_device::Cq;
use adverb_device::node::Node;
use nix::sys::signal::{SigSet, SigmaskHow};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Processor time of a thread without progress, after which the thread counts as waiting, during
/// the first holds. A program may poll for a while before it sleeps.
const FIRST_HOLD_TIME: Duration = Duration::from_millis(20);
/// The number of the first holds.
const FIRST_HOLDS: u64 = 4;
/// The same processor time during later holds.
const HOLD_TIME: Duration = Duration::from_millis(1);
/// Period of the thread that releases withheld completions.
const TICK: Duration = Duration::from_micros(500);
/// Number of periods between two progress lines in the log.
const TICKS_A_BEAT: u32 = 100;
/// A thread that has polled an empty queue within this time waits for a completion.
const POLLED: Duration = Duration::from_secs(1);

impl Hunt {
    /// The queue was made.
    pub(crate) fn enters(&'static self, cq: &Arc<Cq>) {
        let mut queues = self.queues.lock();
        queues.list.retain(|cq| cq.strong_count() > 0);
        queues.list.push(Arc::downgrade(cq));
        drop(queues);
        self.see_to_thread();
    }

    /// Makes sure that the thread which releases withheld completions runs. The child of a fork
    /// gets its own thread.
    pub(crate) fn see_to_thread(&'static self) {
        let mut queues = self.queues.lock();
        let own = std::process::id();
        if std::mem::replace(&mut queues.thread_of, own) == own {
            return;
        }
        self.say(&format!("{PROCESS} {own}"));
        // The program's signal handlers must run on the program's own threads.
        let old = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK);
        let spawned = std::thread::Builder::new().name("adverb-hunt".into()).spawn(|| self.run());
        let _ = old.map(|old| old.thread_set_mask());
        if let Err(e) = spawned {
            log::error!("no completion is held, as no thread can be started: {e}");
            queues.thread_of = 0;
        }
    }

    /// Lets a late queue pair begin, if one is due.
    fn end_lateness(&self) {
        let due = self.late.lock().next_due(Instant::now(), everyone_sleeps);
        if let (Some(qpn), Some(node)) = (due, Node::existing()) {
            node.let_requests_go(qpn);
        }
    }

    /// Names the threads that wait for a completion in a loop.
    fn say_pollers(&self) {
        let mut pollers = self.pollers.lock();
        pollers.retain(|_, at| at.elapsed() < POLLED);
        if !pollers.is_empty() {
            let threads: String = pollers.keys().map(|thread| format!(" {thread}")).collect();
            self.say(&format!("polls{threads}"));
        }
    }

    fn run(&self) {
        let (mut said, mut ticks, mut seen) = (u64::MAX, 0, u64::MAX);
        loop {
            std::thread::sleep(TICK);
            let cqs: Vec<_> = self.queues.lock().list.iter().filter_map(Weak::upgrade).collect();
            let beats = self.beats.load(Ordering::Relaxed);
            let hunted = || cqs.iter().filter_map(|cq| Some((cq, of(cq)?)));
            let holds = hunted().any(|(_, queue)| queue.withholds());
            if beats != seen || !holds {
                restart_look();
                seen = beats;
            }
            let is_first = self.holds.load(Ordering::Relaxed) <= FIRST_HOLDS;
            let enough = if is_first { FIRST_HOLD_TIME } else { HOLD_TIME };
            let why = if holds && self.is_at_rest(enough) { Why::Rest } else { Why::Time };
            hunted().for_each(|(cq, queue)| queue.let_go(cq, why));
            self.end_lateness();
            ticks += 1;
            if ticks % TICKS_A_BEAT == 0 && beats != said {
                said = beats;
                self.say(&format!("beat {} {beats}", std::process::id()));
            } else if ticks % TICKS_A_BEAT == 0
                && let Some(node) = Node::existing()
            {
                self.say_pollers();
                if node.awaits_connection() {
                    self.say(&format!("exchange {}", std::process::id()));
                } else if node.waits_for_timers() {
                    self.say(&format!("timer {}", std::process::id()));
                }
            }
        }
    }
}
