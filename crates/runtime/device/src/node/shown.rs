//! Pages of what this process does, for other processes of the user ([`crate::snapshot`]).
//!
//! The background thread answers. A question wakes the thread, whichever thread has received the
//! question. Nothing is written for a page without a question.
use super::core::Node;
use super::queue_pair::{AnyQp, QpInner};
use super::stats::lock_within;
use crate::snapshot::{OBJECTS, PAGE, PacketPath, Page, Pair, Process, Queue};
use adverb_engine::Cause;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Longest wait for the locks of all queue pairs of a page.
const LOCK_WAIT: Duration = Duration::from_millis(50);
/// Time for looks at the threads that wait for completion queues.
const LOOKS: Duration = Duration::from_millis(10);

/// The state of this process, if the process has a device: all queue pairs, and their completion
/// queues.
#[must_use]
pub fn of_this_process() -> Option<Page> {
    let node = Node::existing()?;
    let mut whole = node.page(0);
    while let Some(from) = whole.next {
        let page = node.page(from);
        whole.next = page.next.filter(|next| *next > from);
        whole.queue_pairs.extend(page.queue_pairs);
        for queue in page.queues {
            if whole.queues.iter().all(|known| known.number != queue.number) {
                whole.queues.push(queue);
            }
        }
    }
    Some(whole)
}

impl Node {
    /// Does a queue pair wait for a timer? A locked queue pair counts as working.
    #[must_use]
    pub fn waits_for_timers(&self) -> bool {
        let waits =
            |qp: &Arc<AnyQp>| qp.inner.try_lock().is_none_or(|i| i.engine.waits_for_timer());
        self.registry.qps.from(0).iter().any(waits)
    }

    /// Does the program wait for an answer of the connection manager, which is sent again until the
    /// answer comes?
    pub fn awaits_connection(&self) -> bool {
        let handler = self.mads.handler.read().clone();
        handler.is_some_and(|handler| handler.awaits_answer())
    }

    /// Has questions wake the background thread.
    pub(super) fn hear_questions(self: &Arc<Self>) {
        let node = Arc::downgrade(self);
        if let Some(local) = self.link.local() {
            local.on_question(move || {
                if let Some(node) = node.upgrade() {
                    node.wake_thread();
                }
            });
        }
    }

    /// Answers the questions that have come.
    pub(super) fn answer_questions(&self) {
        if let Some(local) = self.link.local() {
            local.answer_questions(|question| {
                if let Some(fault) = question.fault {
                    return self.take_fault(&fault).err().unwrap_or_default().into_bytes();
                }
                let objects = question.from >= OBJECTS;
                let page = if objects { Node::objects_page } else { Node::page };
                page(self, question.from).emit()
            });
        }
    }

    /// The page that begins at a queue pair number.
    pub(crate) fn page(&self, from: u32) -> Page {
        let all = self.registry.qps.from(from);
        let mut page = Page { process: self.process(), ..Page::default() };
        if from == 0 {
            let counted = self.named_counters().into_iter().filter(|(_, value)| *value > 0);
            page.counters = counted.map(|(name, value)| (name.to_owned(), value)).collect();
        }
        let until = self.now() + LOCK_WAIT;
        let (mut bytes, mut queues) = (0, BTreeMap::new());
        for qp in all {
            if bytes > PAGE {
                page.next = Some(qp.number());
                break;
            }
            let pair = self.pair(&qp, until.since(self.now()));
            // The texts are usually empty.
            bytes += Pair::LONGEST / 4;
            for queue in qp.own.queues().into_iter().flatten() {
                let before = queues.insert(queue.number(), queue);
                bytes += if before.is_none() { Queue::LONGEST / 4 } else { 0 };
            }
            page.queue_pairs.push(pair);
        }
        let until = self.now() + LOOKS;
        page.queues = queues
            .into_values()
            .map(|queue| {
                let now = self.now();
                queue.show(now, now < until)
            })
            .collect();
        page
    }

    pub(super) fn process(&self) -> Process {
        let name = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
        Process {
            pid: std::process::id(),
            slot: self.link.slots().first().copied().unwrap_or_default(),
            at: self.now().0,
            name: name.trim_end_matches('\n').to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            contexts: self.open.load(Ordering::Relaxed) as u32,
            queue_pairs: self.registry.qps.count() as u32,
        }
    }

    /// The state of a queue pair. Waits for the queue pair's lock for at most `patience`.
    fn pair(&self, qp: &AnyQp, patience: Duration) -> Pair {
        // The names of `Pair` are in the order of `QpType`.
        let qp_type = qp.qp_type() as u8;
        let pair = Pair { number: qp.number(), qp_type, ..Pair::default() };
        let locked = lock_within(qp, patience);
        locked.map_or(Pair { busy: true, ..pair.clone() }, |inner| shown(qp, &inner, pair))
    }
}

fn shown(qp: &AnyQp, inner: &QpInner, pair: Pair) -> Pair {
    let QpInner { engine, carried, traffic, commits, .. } = inner;
    let (attr, counters, depth) =
        (engine.attr(), engine.counters(), engine.config().cap.max_send_wr);
    let shared = qp.own.shared_receives();
    let [send_cq, recv_cq] = qp.own.queues().map(|queue| queue.map_or(0, |queue| queue.number()));
    let peer = carried.ring.peer.as_ref();
    Pair {
        state: attr.state as u8,
        retrying: engine.is_retrying(),
        shared: shared.is_some(),
        way: match (&qp.port, peer) {
            (Some(_), _) => PacketPath::Frames,
            (_, Some(_)) => PacketPath::Memory,
            _ => PacketPath::Network,
        },
        peer_pid: peer.map_or(0, |peer| peer.pid.unsigned_abs()),
        dest: attr.dest_qpn,
        own_gid: attr.av.sgid,
        peer_gid: attr.av.dgid,
        send_cq,
        recv_cq,
        depth,
        open: depth.saturating_sub((engine.free_sends() + engine.staged_sends()) as u32),
        receives: shared.map_or(engine.receives_posted(), |(_, waiting)| waiting as u32),
        posted: commits.requests,
        sent_bytes: traffic.sent_bytes,
        read_bytes: traffic.read_bytes,
        received: traffic.received,
        received_bytes: traffic.received_bytes,
        retransmitted: counters.retransmitted,
        timeouts: counters.timeouts,
        rnr_naks: counters.rnr_naks,
        seq_naks: counters.seq_naks,
        drops: counters.dropped_total(),
        refused: counters.rnr_naks_sent,
        srq: shared.map_or(0, |(number, _)| number),
        unfit: inner.unfit.map(|unfit| unfit.words(qp.qp_type())).unwrap_or_default(),
        unknown_key: match engine.first_error().map(|cause| &**cause) {
            Some(Cause::UnknownKey { key }) => *key,
            _ => 0,
        },
        error: engine.first_error().map(ToString::to_string).unwrap_or_default(),
        ..pair
    }
}
