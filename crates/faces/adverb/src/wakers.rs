//! Tasks that wait for completions of a queue without a channel, or for events of a channel.
use adverb_sync::Mutex;
use std::sync::Arc;
use std::task::{Wake, Waker};

/// The waiting tasks, each with the number of its future or stream. An event wakes all tasks, and
/// each task looks for itself.
#[derive(Debug, Default)]
pub struct Wakers(Mutex<Lists>);

#[derive(Debug, Default)]
struct Lists {
    next: u64,
    waiting: Vec<(u64, Waker)>,
    /// Wakers that were called, to be dropped later. A waker may be the last owner of its task, and
    /// the task the last owner of a queue. The call comes under that queue's lock, so the waker
    /// must not be dropped there.
    woken: Vec<(u64, Waker)>,
}

impl Wakers {
    /// A new number for a future or stream.
    pub fn number(&self) -> u64 {
        let mut lists = self.0.lock();
        lists.next += 1;
        lists.next
    }

    /// Calls `waker` at the next event. Replaces an earlier waker of the same number.
    pub fn set(&self, number: u64, waker: &Waker) {
        let mut lists = self.0.lock();
        let woken = std::mem::take(&mut lists.woken);
        let old = match lists.waiting.iter_mut().find(|(n, _)| *n == number) {
            Some((_, old)) if old.will_wake(waker) => None,
            Some((_, old)) => Some(std::mem::replace(old, waker.clone())),
            None => {
                lists.waiting.push((number, waker.clone()));
                None
            }
        };
        drop(lists);
        drop((woken, old));
    }

    /// The future or stream no longer waits.
    pub fn remove(&self, number: u64) {
        let mut lists = self.0.lock();
        let at = lists.waiting.iter().position(|(n, _)| *n == number);
        let old = at.map(|at| lists.waiting.swap_remove(at));
        let woken = std::mem::take(&mut lists.woken);
        drop(lists);
        drop((woken, old));
    }

    /// Called under a queue's lock. Wakers only put their task into a queue of their executor.
    fn wake_all(&self) {
        let mut waiting = std::mem::take(&mut self.0.lock().waiting);
        waiting.iter().for_each(|(_, waker)| waker.wake_by_ref());
        self.0.lock().woken.append(&mut waiting);
    }
}

/// Events of a queue without a channel.
impl adverb_device::Notify for Wakers {
    fn notify(&self, _: &Arc<adverb_device::Cq>) {
        self.wake_all();
    }
}

/// Events of a channel.
impl Wake for Wakers {
    fn wake(self: Arc<Self>) {
        self.wake_all();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        self.wake_all();
    }
}
