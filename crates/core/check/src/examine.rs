//! Why a process failed, or what it waits for: judged from its calls and from the state of the
//! device.
//!
//! [`Ledger::examine`] looks at queues, queue pairs, threads, and calls that failed. Each look adds
//! reports. [`Code::rank`] orders the reports of all processes of a run.
use crate::report::count;
use crate::scene::{Armed, Occasion, PairScene, QueueScene, Scene, ThreadScene};
use crate::state::FailedCompletion;
use crate::{Code, CodeAddress, Ledger, Source};

/// The place of an `exit`. A compiler keeps one of several calls that do not return.
pub(crate) const ENDS: &str = "ends here, or at a like call that the compiler merged";

impl Scene {
    /// The program stands still, or a timer or a user has ended the program.
    pub(crate) fn is_stuck(&self) -> bool {
        const OF_TIMERS_AND_USERS: [i32; 5] = [1, 2, 3, 14, 15];
        match self.occasion {
            Occasion::Stuck => true,
            Occasion::Signal(signal) => OF_TIMERS_AND_USERS.contains(&signal),
            Occasion::Status(_) => false,
        }
    }

    /// The thread that says most about what the program does.
    pub(crate) fn main_thread(&self) -> Option<&ThreadScene> {
        let placed = |thread: &&ThreadScene| thread.place != 0;
        let signalled = self.threads.iter().find(|thread| thread.signalled && thread.place != 0);
        signalled.or(self.threads.iter().find(placed)).or(self.threads.first())
    }

    pub(crate) fn place(&self) -> CodeAddress {
        self.main_thread().map_or(0, |thread| thread.place)
    }

    /// What the threads do, in words.
    pub(crate) fn doing(&self) -> String {
        let all: Vec<_> = self.threads.iter().take(3).map(words_of).collect();
        let more = self.threads.len().saturating_sub(all.len());
        match more {
            0 => all.join(", "),
            n => format!("{}, and {} more", all.join(", "), count(n, "thread")),
        }
    }
}

fn words_of(thread: &ThreadScene) -> String {
    let ThreadScene { id, name, call, limit_ms, .. } = thread;
    if thread.signalled {
        return format!("the signal came to thread {id} {name:?}");
    }
    match (call.is_empty(), limit_ms) {
        (true, _) => format!("thread {id} {name:?} runs"),
        (_, None) => format!("thread {id} {name:?} waits in {call}"),
        (_, Some(ms)) => format!("thread {id} {name:?} waits in {call} for at most {ms} ms"),
    }
}

impl Ledger {
    /// Examines a process that failed or hangs. [`Ledger::reports`] then returns what was found.
    /// `end` is the place of a fault, an `abort` or an `exit`; 0 for none.
    pub fn examine(&mut self, scene: &Scene, end: CodeAddress) {
        self.reporter.examine_again();
        self.reporter.state = scene.occasion.is_no_failure();
        self.examine_all(scene, end);
        self.reporter.state = false;
    }

    fn examine_all(&mut self, scene: &Scene, end: CodeAddress) {
        if let Occasion::Signal(signal) = scene.occasion
            && end != 0
        {
            self.reporter.say(Code::Crashed, &[("stopped", end)], || {
                format!("the program fails with signal {signal} in its own code")
            });
        }
        self.crashed_without_a_stack(scene, end);
        if let Occasion::Status(status) = scene.occasion
            && end != 0
        {
            let mut places = vec![(ENDS, end)];
            if scene.interrupted {
                self.reporter.say(Code::CallFailed, &places, || {
                    format!(
                        "the program ends itself with status {status}, and errno is EINTR: a \
                         signal interrupted a call, which is no failure; make the call again"
                    )
                });
            } else {
                let over = self.picture.wait_over();
                places.splice(0..0, over.map(|over| ("waited", over.place)));
                let (polled, polls) = self.batch_before_polls(scene);
                places.extend(polls);
                self.reporter.say(Code::Ended, &places, || {
                    let after =
                        over.map(|over| format!(" after {} found {}", over.call, over.result));
                    let after = after.unwrap_or_default();
                    format!("the program ends itself with status {status}{after}{polled}")
                });
            }
        }
        if let Some((queue_pair, place)) = self.early {
            self.reporter.say(Code::MessageBeforeEstablished, &[("polled", place)], || {
                format!(
                    "a message of queue pair {queue_pair:#x} was polled before the program had read \
                     RDMA_CM_EVENT_ESTABLISHED of its connection: a message may come first"
                )
            });
        }
        let is_no_failure = self.reporter.state;
        for queue in &scene.queues {
            // The device knows that a wake-up is lost, so the program would wait for ever.
            self.reporter.state = is_no_failure && queue.lost.is_empty();
            if !self.poller_not_woken(queue, scene) {
                self.examine_queue(queue, scene);
            }
        }
        self.reporter.state = is_no_failure;
        // The queue pair with the failed request before the queue pair that refused the request.
        let requests = |pair: &&PairScene| {
            self.qps.get(&pair.number).is_none_or(|qp| qp.sends.posted.is_empty())
        };
        let mut pairs: Vec<_> = scene.pairs.iter().collect();
        pairs.sort_by_key(requests);
        for (n, pair) in pairs.iter().enumerate() {
            // Of two ends of a connection that failed together, the first has told of both.
            let is_told = pairs[..n].iter().any(|first| first.has_failed() && first.joins(pair));
            if pair.has_failed() && !is_told {
                self.queue_pair_failed(pair, scene);
            }
            self.examine_pair(pair, scene);
            self.too_short(pair, scene);
        }
        self.given_up();
        self.lost_requests();
        self.orphans_left();
        self.failed(scene);
        if scene.is_stuck() {
            self.spinning(scene);
            if !self.reporter.has_cause() {
                self.waiting(scene);
            }
        }
    }

    fn examine_queue(&mut self, queue: &QueueScene, scene: &Scene) {
        let Some(cq) = self.cqs.get(&queue.number) else { return };
        let n = queue.number;
        let armed = cq.arm.map_or(0, |arm| arm.place);
        let since = cq.completions - cq.arm.map_or(0, |arm| arm.after);
        let events = self.events.of(Source::Completion(n));
        let waiting = count(queue.waiting as usize, "completion");
        let total = count((since + u64::from(queue.waiting)) as usize, "completion");
        let [lie, are, them] = agreeing(queue.waiting);
        let waiter = if queue.waiter.is_empty() { "the program" } else { &queue.waiter };
        let sleeps = scene.is_stuck() && !queue.waiter.is_empty();
        let silent = queue.channel && queue.unread == 0 && queue.unannounced > 0;
        let lost = !queue.lost.is_empty() || silent && sleeps;
        let polls = if cq.polled != 0 { cq.polled } else { cq.found_empty };
        let quiet = queue.channel && queue.unread == 0 && queue.waiting > 0;
        if quiet && queue.armed == Armed::Solicited {
            let places = [("armed", armed), ("polled", polls)];
            self.reporter.say(Code::ArmedForSolicited, &places, || {
                format!(
                    "CQ {n} was armed for solicited completions only, and none of the {total} \
                     since was solicited: no event comes for a message without \
                     IBV_SEND_SOLICITED; arm with solicited_only = 0, or set the flag at the sender"
                )
            });
        } else if silent && queue.arms == 0 && sleeps {
            let places = [("waits", scene.place()), ("CQ made", cq.made)];
            self.reporter.say(Code::NeverArmed, &places, || {
                format!(
                    "CQ {n} was never armed: {waiting} came, and no event announces them to \
                     {waiter}; call ibv_req_notify_cq before the wait, then poll until empty"
                )
            });
        } else if silent
            && queue.armed == Armed::No
            && (lost || queue.arms == 1 && events.waiting + events.acknowledged > 0)
        {
            let places = [("armed", armed), ("event taken", events.place), ("polled", polls)];
            let times =
                if queue.arms == 1 { "once".into() } else { format!("{} times", queue.arms) };
            // The thread that polls did not take the event.
            let (dropped, remedy) = match queue.poller {
                0 => (String::new(), "arm the queue after each event, then poll until empty"),
                poller => (
                    format!(", which another thread than {poller}, which polls, took and dropped"),
                    "arm and poll the queue of each event, whichever thread takes the event",
                ),
            };
            self.reporter.say(Code::NeverArmedAgain, &places, || {
                format!(
                    "CQ {n} was armed {times} and not again after its last event{dropped}: of \
                     {total} since, {} {lie} in the queue, and no event announces them; {remedy}",
                    queue.waiting
                )
            });
        } else if lost && since > 0 && cq.arm.is_some_and(|arm| !arm.emptied) {
            let places = [("polled last", polls), ("armed", armed)];
            self.reporter.say(Code::LostWakeUp, &places, || {
                format!(
                    "lost wake-up: the program polled {} after the arm of CQ {n} and stopped \
                     before the queue was empty: {waiting} {are} left, and no event announces {them} \
                     to {waiter}; poll until ibv_poll_cq finds nothing",
                    count(since as usize, "completion")
                )
            });
        } else if lost {
            let places = [("armed too late", armed), ("polled before", polls)];
            self.reporter.say(Code::LostWakeUp, &places, || {
                format!(
                    "lost wake-up: {waiting} of CQ {n} came between the last poll and the arm, so \
                     no event announces {them}, and {waiter} sleeps; arm first, then poll until \
                     empty"
                )
            });
        } else if scene.is_stuck() {
            let places = [("waits", scene.place()), ("last polled", polls), ("CQ made", cq.made)];
            self.left_in_queue(queue, scene, &places);
        }
    }

    /// An event is not read, or completions are not polled.
    fn left_in_queue(
        &mut self,
        queue: &QueueScene,
        scene: &Scene,
        places: &[(&'static str, CodeAddress)],
    ) {
        let (n, doing) = (queue.number, scene.doing());
        let waiting = count(queue.waiting as usize, "completion");
        if queue.unread > 0 {
            let taken = self.events.of(Source::Completion(n)).place;
            let places = [("waits", scene.place()), ("last event taken", taken)];
            let [lie, _, them] = agreeing(queue.unread);
            self.reporter.say(Code::EventUnread, &places, || {
                format!(
                    "{} of CQ {n} {lie} in the completion channel, and no thread reads {them}: \
                     {doing}; {waiting} lie in the queue",
                    count(queue.unread as usize, "event")
                )
            });
        } else if queue.waiting > 0 {
            let [lie, ..] = agreeing(queue.waiting);
            self.reporter.say(Code::NotPolled, places, || {
                format!("{waiting} {lie} in CQ {n}, and no thread polls the queue: {doing}")
            });
        }
    }

    fn examine_pair(&mut self, pair: &PairScene, scene: &Scene) {
        let Some(qp) = self.qps.get(&pair.number) else { return };
        let n = pair.number;
        let (sent, received, moved) = (qp.sent, qp.received, qp.moved);
        let first = qp.sends.posted.front();
        let oldest = first.map_or(sent.place, |request| request.place);
        let srq = first.map_or(0, |request| request.srq);
        // The sender of this process, or a sender elsewhere, has given up.
        let gave_up = self.failed_completion.is_some_and(|f| f.done.status.contains("RNR"));
        let failed = self.failed_completion.is_some_and(|f| f.done.queue_pair == n);
        if pair.refused > 0 && (pair.receives == 0 || gave_up || failed) {
            let posts = self.receives_posted(pair);
            let what = of_shared(pair.srq);
            let mut places = vec![("receives posted", posts.place)];
            // A program with several shared receive queues may have filled another.
            let other = self.srqs.iter().filter(|(srq, _)| pair.srq != 0 && **srq != pair.srq);
            let other = other.max_by_key(|(_, of)| of.receives.len());
            let other = other.filter(|(_, of)| !of.receives.is_empty());
            places.extend(
                other.map(|(_, of)| ("receives of the other queue posted", of.received.place)),
            );
            places.push(("now", scene.place()));
            let other = other.map_or_else(String::new, |(srq, of)| {
                format!(" ({} in {})", of.receives.len(), Source::Srq(*srq))
            });
            self.reporter.say(Code::NoReceive, &places, || {
                format!(
                    "{what}queue pair {n:#x} had no receive for a message of the peer: {}, and \
                     {} now{other}; the peer waits, or fails with RNR_RETRY_EXC_ERR; post a \
                     receive for each message before the peer can send the message",
                    match posts.count {
                        0 => "none was posted".to_owned(),
                        1 => "1 was posted".to_owned(),
                        n => format!("{n} were posted so far"),
                    },
                    match pair.receives {
                        0 => "none waits".to_owned(),
                        1 => "1 waits".to_owned(),
                        n => format!("{n} wait"),
                    }
                )
            });
        }
        if pair.rnr_naks > 0 && pair.open > 0 {
            self.reporter.say(Code::PeerHasNoReceive, &[("posted", oldest)], || {
                format!(
                    "{} of queue pair {n:#x} wait: {}{} has no receive posted for the next message",
                    count(pair.open as usize, "request"),
                    of_shared(srq),
                    peer(pair)
                )
            });
        }
        if scene.is_stuck()
            && let Some((left, place)) = qp.discarded
        {
            let places = [("reset", place), ("now", scene.place())];
            self.reporter.say(Code::RequestsDiscarded, &places, || {
                format!(
                    "queue pair {n:#x} was moved to RESET with {}: RESET discards requests without \
                     a completion; move the queue pair to ERR first, and poll the flushed \
                     completions",
                    count(left, "posted request")
                )
            });
        }
        let used = sent.count + received.count > 0;
        if scene.is_stuck() && used && matches!(pair.state, "RESET" | "INIT") {
            let places = [("state changed", moved), ("now", scene.place())];
            self.reporter.say(Code::NotConnected, &places, || {
                format!(
                    "queue pair {n:#x} is in the state {} and not connected: it receives nothing \
                     before RTR, and sends nothing before RTS",
                    pair.state
                )
            });
        }
    }

    /// A queue pair has failed, and perhaps the other end of its connection.
    fn queue_pair_failed(&mut self, pair: &PairScene, scene: &Scene) {
        let Some(qp) = self.qps.get(&pair.number) else { return };
        let n = pair.number;
        let own = self.failed_completion.filter(|f| f.done.queue_pair == n && !f.done.flushed);
        let open = qp.sends.posted.front().map_or(0, |request| request.place);
        let other = scene.pairs.iter().find(|other| other.has_failed() && other.joins(pair));
        let mut ends = [Some(pair), other].into_iter().flatten();
        let earlier = ends.find_map(|end| self.regions.deregistered(end.unknown_key));
        let own_queue = |queue: &&QueueScene| [pair.send_cq, pair.recv_cq].contains(&queue.number);
        let overflowed = scene.queues.iter().filter(own_queue).find(|queue| queue.overflowed);
        let made = overflowed.and_then(|queue| self.cqs.get(&queue.number)).map_or(0, |cq| cq.made);
        let places = [
            ("CQ made", made),
            ("deregistered", earlier.map_or(0, |of| of.deregistered)),
            ("posted", own.map_or(open, |f| f.posted)),
            ("failure polled", own.map_or(0, |f| f.polled)),
            ("registered", earlier.map_or(0, |of| of.registered)),
        ];
        self.explained = true;
        self.reporter.say(Code::QueuePairFailed, &places, || {
            let other = other.map_or_else(String::new, |other| {
                format!("; queue pair {:#x} at the other end: {}", other.number, other.error)
            });
            let earlier = match earlier {
                Some(_) => "; the region with this key was deregistered before",
                None => "",
            };
            format!("queue pair {n:#x} has failed: {}{other}{earlier}", pair.error)
        });
    }

    /// Calls and completions that failed.
    fn failed(&mut self, scene: &Scene) {
        // The report of a failed queue pair has the places of its first failure.
        let is_told = |failed: &FailedCompletion| {
            let mut pairs = scene.pairs.iter().filter(|pair| pair.has_failed());
            !failed.done.flushed && pairs.any(|pair| pair.number == failed.done.queue_pair)
        };
        if let Some(failed) = self.failed_completion.filter(|failed| !is_told(failed)) {
            let places = [("polled", failed.polled), ("posted", failed.posted)];
            let done = failed.done;
            self.reporter.say(Code::CompletionFailed, &places, || {
                format!(
                    "the {} with wr_id {:#x} on queue pair {:#x} completed with {}",
                    if done.receive { "receive" } else { "request" },
                    done.wr_id,
                    done.queue_pair,
                    done.status
                )
            });
        }
        if !self.calls_failed_recently() {
            return;
        }
        // In the order of time: later calls may fail because the first call failed.
        for failed in std::mem::take(&mut self.failed_calls) {
            let end = match scene.occasion {
                Occasion::Stuck => "the program then waits".to_owned(),
                Occasion::Status(status) => format!("the program then ends with status {status}"),
                Occasion::Signal(signal) => format!("signal {signal} then ends the program"),
            };
            self.reporter.say(Code::CallFailed, &[("called", failed.place)], || {
                format!("{} failed: {}; {end}", failed.name, failed.why)
            });
        }
    }
}

/// In front of a part of a shared receive queue; empty for no such queue.
fn of_shared(number: u32) -> String {
    if number == 0 { String::new() } else { format!("{} of ", Source::Srq(number)) }
}

/// The words that agree with a number of things.
fn agreeing(n: u32) -> [&'static str; 3] {
    if n == 1 { ["lies", "is", "it"] } else { ["lie", "are", "them"] }
}

pub(crate) fn peer(pair: &PairScene) -> String {
    match (pair.peer, pair.dest) {
        (0, 0) => "no peer".into(),
        (0, dest) => format!("queue pair {dest:#x}"),
        (pid, dest) => format!("queue pair {dest:#x} of process {pid}"),
    }
}
