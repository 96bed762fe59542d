//! A completion queue as the node sees it: its deadlines, and its state for other processes of the
//! user ([`crate::snapshot`]).
use super::{Cq, Sink};
use crate::node::{CompletionQueue, Listed};
use crate::snapshot::{Arm, Queue};
use adverb_engine::Time;
use adverb_engine::cq::arm::ArmKind;
use adverb_nldev::Object;
use adverb_threads::Doing;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

impl Listed for Cq {
    fn describe(&self) -> Option<(String, Object)> {
        let object = Object::Cq {
            number: self.number,
            context: self.context.place.serial(),
            capacity: self.capacity(),
            users: self.uses.count(),
        };
        let lives = !self.destroyed.load(Ordering::Relaxed);
        lives.then(|| (self.context.device().name().to_owned(), object))
    }
}

impl CompletionQueue for Cq {
    fn number(&self) -> u32 {
        self.number
    }

    fn timer_due(self: Arc<Self>, at: Time, now: Time) {
        let rearm = |cq: &adverb_engine::Cq| {
            if self.timer_at.load(Ordering::Relaxed) != at.0 {
                // An earlier entry took the place of this entry and is still to come.
                return;
            }
            self.timer_at.store(u64::MAX, Ordering::Relaxed);
            self.keep_timer(cq);
        };
        self.core.expired(now, |cq| self.notify(cq), rearm);
    }

    fn watch_due(self: Arc<Self>, now: Time) {
        self.look_again(now);
    }

    fn announce(self: Arc<Self>) {
        self.core.announce(|cq| self.notify(cq));
    }

    fn show(self: Arc<Self>, now: Time, closely: bool) -> Queue {
        let look = self.core.look();
        let channel = matches!(self.sink, Sink::Channel(_));
        let unread = self.unread.load(Ordering::Relaxed);
        let silent = if channel { self.watch.silent(&look, now) } else { Duration::ZERO };
        let mut queue = Queue {
            number: self.number,
            capacity: self.capacity(),
            waiting: self.core.waiting() as u32,
            unannounced: look.unannounced as u32,
            unread: unread as u32,
            arm: match look.arm {
                None => Arm::None,
                Some(ArmKind::Next) => Arm::Next,
                Some(ArmKind::Solicited) => Arm::Solicited,
                Some(ArmKind::Errors) => Arm::Errors,
            },
            channel,
            broken: self.core.is_broken(),
            arms: look.arms,
            silent_ms: silent.as_millis() as u64,
            poller: self.watch.poller_without_event().map_or(0, i32::cast_unsigned),
            ..Queue::default()
        };
        // A program that has just polled is not asleep beside the completions.
        if !closely || !channel || look.arm.is_none() && look.unannounced == 0 {
            return queue;
        }
        if let Some((lost, evidence)) = self.lost(&look, silent) {
            queue.stuck = lost.words(&evidence);
        }
        let waits = |doing: &Doing| matches!(doing, Doing::Waits { .. });
        let threads = self.scene(&look, silent).map(|scene| scene.threads).unwrap_or_default();
        if let Some(thread) = threads.iter().find(|thread| waits(&thread.doing)) {
            queue.waiter = format!("thread {} {:?} in {}", thread.id, thread.name, thread.call);
        }
        queue
    }
}
