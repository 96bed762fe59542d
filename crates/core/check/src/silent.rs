//! Causes that no call and no completion tells: a dropped message, an event that did not reach the
//! thread that polls, and a crash whose stack is lost.
use crate::queues::{Cq, Posts};
use crate::scene::{Occasion, PairScene, QueueScene, Scene, ThreadScene};
use crate::{Code, CodeAddress, Ledger, Source};

/// Faults and SIGABRT: signals that a program gets for what its own code does.
const OF_CODE: [i32; 5] = [4, 6, 7, 8, 11];

impl Ledger {
    /// Another thread took the event or armed after the last poll, and the thread that polls sleeps
    /// until a thread wakes it. Whatever the order of the arm, no poll follows the arm. Returns
    /// whether this is so.
    pub(crate) fn poller_not_woken(&mut self, queue: &QueueScene, scene: &Scene) -> bool {
        let sleeps = |t: &&ThreadScene| {
            t.id == queue.poller && t.call.starts_with("futex") && t.limit_ms.is_none()
        };
        let Some(thread) = scene.threads.iter().find(sleeps) else { return false };
        if !scene.is_stuck() || queue.unread > 0 || queue.waiting == 0 {
            return false;
        }
        let n = queue.number;
        let taken = self.events.of(Source::Completion(n)).place;
        let of = |cq: &Cq| if cq.found_empty == 0 { cq.polled } else { cq.found_empty };
        let polled = self.cqs.get(&n).map_or(0, of);
        let places = [("waits", thread.place), ("event taken", taken), ("polls", polled)];
        self.reporter.say(Code::PollerNotWoken, &places, || {
            format!(
                "another thread took the event of CQ {n} and armed, and thread {} {:?}, which polls \
                 CQ {n}, sleeps in {} and was not woken after the arm: {} in the queue; arm, wake \
                 the thread, then poll until empty; a condition variable keeps no signal for \
                 a later pthread_cond_wait, so set a flag under the mutex before the signal, and \
                 look at the flag before each wait",
                thread.id,
                thread.name,
                thread.call,
                match queue.waiting {
                    1 => "1 completion lies".to_owned(),
                    n => format!("{n} completions lie"),
                }
            )
        });
        true
    }

    /// The receives that the program has posted for the messages of a queue pair.
    pub(crate) fn receives_posted(&self, pair: &PairScene) -> Posts {
        let own = || self.qps.get(&pair.number).map(|qp| qp.received);
        let shared = self.srqs.get(&pair.srq).map(|srq| srq.received);
        if pair.srq == 0 { own() } else { shared }.unwrap_or_default()
    }

    /// A message was dropped because its receive is too short.
    pub(crate) fn too_short(&mut self, pair: &PairScene, scene: &Scene) {
        if pair.unfit.is_empty() || !self.qps.contains_key(&pair.number) {
            return;
        }
        let posts = self.receives_posted(pair);
        let places = [("receives posted", posts.place), ("now", scene.place())];
        self.reporter.say(Code::ReceiveTooShort, &places, || {
            format!("queue pair {:#x}: {}", pair.number, pair.unfit)
        });
    }

    /// The program fails in its own code, and its stack names no place (`end`): the last call says
    /// how far the thread came.
    pub(crate) fn crashed_without_a_stack(&mut self, scene: &Scene, end: CodeAddress) {
        let Occasion::Signal(signal) = scene.occasion else { return };
        let thread = scene.threads.iter().find(|thread| thread.signalled);
        let Some(thread) = thread.filter(|_| end == 0 && OF_CODE.contains(&signal)) else { return };
        let last = self.picture.last(thread.id).map(|last| (last.call.clone(), last.place));
        let places: Vec<_> = last.iter().map(|(_, place)| ("last call", *place)).collect();
        self.reporter.say(Code::Crashed, &places, || {
            let last = match last {
                Some((call, _)) => format!("the last verbs call of the thread was {call}"),
                None => "the thread has made no verbs call".to_owned(),
            };
            let ThreadScene { id, name, .. } = thread;
            format!(
                "the program fails with signal {signal} in thread {id} {name:?}, whose stack names \
                 no place: {last}"
            )
        });
    }
}
