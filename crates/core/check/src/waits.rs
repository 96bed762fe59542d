//! What a program that stands still does: threads that spin, threads that wait, and queues that are
//! polled in vain.
use crate::examine::peer;
use crate::queues::{Cq, Qp};
use crate::report::count;
use crate::scene::{Armed, PairScene, QueueScene, Scene, ThreadScene};
use crate::{Code, CodeAddress, Ledger};

/// So many polls in a row that find nothing are a wait.
const MANY: u64 = 1000;

type Places = Vec<(&'static str, CodeAddress)>;

impl Ledger {
    /// Threads that run and make no call of verbs.
    pub(crate) fn spinning(&mut self, scene: &Scene) {
        let runs = |t: &&ThreadScene| t.call.is_empty() && !t.signalled;
        let running: Vec<_> = scene.threads.iter().filter(runs).collect();
        // Each queue that is polled has one of the running threads. The place of a poll says which.
        let polls = |t: &ThreadScene| {
            let near = |cq: &Cq| cq.found_empty != 0 && cq.found_empty.abs_diff(t.place) <= 8;
            scene.polling.iter().filter_map(|n| self.cqs.get(n)).any(near)
        };
        let spins = |t: &&ThreadScene| {
            scene.polling.is_empty() || running.len() > scene.polling.len() && !polls(t)
        };
        let spinning: Vec<_> = running.iter().copied().filter(spins).cloned().collect();
        for thread in &spinning {
            let (id, name) = (thread.id, &thread.name);
            let mut places = vec![("spins", thread.place)];
            let write = self.last_write;
            places.extend(write.map(|write| ("last WRITE posted", write.place)));
            let region = write.and_then(|write| self.regions.get(write.to.lkey));
            places.extend(region.map(|region| ("its region registered", region.place)));
            self.reporter.say(Code::Spins, &places, || {
                let written = match (write, region) {
                    (Some(write), Some(region)) => format!(
                        "; the last WRITE of this process put {} at offset {} of a region of {}",
                        count(write.to.length as usize, "byte"),
                        write.to.addr.wrapping_sub(region.start),
                        count(region.length as usize, "byte")
                    ),
                    _ => String::new(),
                };
                format!(
                    "thread {id} {name:?} runs in a loop without a verbs call and waits for memory \
                     to change: either no thread and no peer writes there, or the compiler reads \
                     the value only once (a flag between threads must be atomic){written}"
                )
            });
        }
    }

    /// What the program waits for.
    pub(crate) fn waiting(&mut self, scene: &Scene) {
        let Some(thread) = scene.main_thread() else { return };
        // The report of the mistake says what the thread waits for.
        if self.reporter.has_named(thread.place) {
            return;
        }
        let armed = scene.queues.iter().filter(|queue| queue.armed != Armed::No);
        let armed: Vec<_> = armed
            .filter_map(|queue| Some((queue.number, self.cqs.get(&queue.number)?.arm?.place)))
            .collect();
        let mut places = vec![("waits", thread.place)];
        places.extend(armed.iter().map(|(_, place)| ("armed", *place)));
        let is_polled = |cq: u32| scene.polling.is_empty() || scene.polling.contains(&cq);
        let open = || scene.pairs.iter().filter(|pair| pair.open > 0);
        let open = open().find(|pair| is_polled(pair.send_cq)).or(open().next());
        let oldest = open.and_then(|pair| self.qps.get(&pair.number)?.sends.posted.front());
        places.extend(oldest.map(|request| ("not done, posted", request.place)));
        // A receive of another queue is not what a program that polls waits for.
        let waits = |pair: &&PairScene| pair.receives > 0 && is_polled(pair.recv_cq);
        let receives = scene.pairs.iter().find(waits);
        let posts = receives.and_then(|pair| self.qps.get(&pair.number)).map(|qp| qp.received);
        places.extend(posts.map(|posts| ("receives posted", posts.place)));
        let (polled, polls) = self.polled_in_vain(scene.polling.iter().copied(), scene);
        places.extend(polls);
        self.reporter.say(Code::Waits, &places, || {
            let mut text = scene.doing() + &polled;
            if let Some((number, _)) = armed.first() {
                text += &format!("; CQ {number} is armed and empty, and no completion is due");
            }
            if let Some(pair) = open {
                text += &format!(
                    "; {} of queue pair {:#x} to {} {} not done",
                    count(pair.open as usize, "request"),
                    pair.number,
                    peer(pair),
                    if pair.open == 1 { "is" } else { "are" }
                );
            }
            if let Some(pair) = receives {
                text += &format!(
                    "; {} of queue pair {:#x}{} wait for a message of {}",
                    count(pair.receives as usize, "receive"),
                    pair.number,
                    match pair.recv_cq {
                        0 => String::new(),
                        cq => format!(" on CQ {cq}"),
                    },
                    peer(pair)
                );
            }
            text
        });
    }

    /// The facts about a CQ that is polled again and again after a batch of completions: the
    /// program may have dropped the rest of the batch.
    pub(crate) fn batch_before_polls(&self, scene: &Scene) -> (String, Places) {
        let in_vain = |(number, cq): (&u32, &Cq)| {
            let waits = cq.batch.len() > 1 && cq.empty_polls >= MANY;
            (waits && self.is_idle(*number, scene)).then_some(*number)
        };
        self.polled_in_vain(self.cqs.iter().filter_map(in_vain).min(), scene)
    }

    /// The facts about CQs whose last polls found nothing, with their places.
    fn polled_in_vain(
        &self,
        queues: impl IntoIterator<Item = u32>,
        scene: &Scene,
    ) -> (String, Places) {
        let (mut text, mut places) = (String::new(), Vec::new());
        for number in queues {
            let Some(cq) = self.cqs.get(&number).filter(|cq| cq.empty_polls > 0) else { continue };
            places.push(("polls", cq.found_empty));
            let polls = count(cq.empty_polls as usize, "poll");
            text += &format!("; the last {polls} of CQ {number} found nothing");
            if self.is_idle(number, scene) {
                text += ", and nothing is outstanding on this CQ, so no completion can come before \
                         another post";
            }
            if cq.batch.len() > 1 {
                places.push(("completions polled", cq.polled));
                let ids: Vec<_> = cq.batch.iter().take(4).map(|id| format!("{id:#x}")).collect();
                text += &format!(
                    "; the poll before took {} completions at once (wr_id {}{})",
                    cq.batch.len(),
                    ids.join(", "),
                    if cq.batch.len() > ids.len() { ", …" } else { "" }
                );
            }
        }
        (text, places)
    }

    /// Is no request posted whose completion can come to this CQ?
    fn is_idle(&self, number: u32, scene: &Scene) -> bool {
        let uses = |qp: &Qp| {
            qp.of.send_cq == Some(number) && !qp.sends.posted.is_empty()
                || qp.of.recv_cq == Some(number) && !qp.receives.is_empty()
        };
        // The device also knows the binds of memory windows.
        let open = |pair: &PairScene| {
            pair.send_cq == number && pair.open > 0 || pair.recv_cq == number && pair.receives > 0
        };
        let waiting = |queue: &QueueScene| queue.number == number && queue.waiting > 0;
        // The CQ of a shared receive depends on the queue pair that takes it.
        !self.qps.values().any(uses)
            && self.srqs.values().all(|srq| srq.receives.is_empty())
            && !scene.pairs.iter().any(open)
            && !scene.queues.iter().any(waiting)
    }
}
