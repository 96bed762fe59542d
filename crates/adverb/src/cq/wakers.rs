//! Tasks that wait for completions of a queue without a channel.
use parking_lot::Mutex;
use std::sync::Arc;
use std::task::Waker;

/// The tasks that wait, each with the number of its stream. An event wakes all of them: each looks for itself what is left.
#[derive(Debug, Default)]
pub struct Wakers(Mutex<Lists>);

#[derive(Debug, Default)]
struct Lists {
    next: u64,
    waiting: Vec<(u64, Waker)>,
    /// Woken. A waker may be the last to hold its task, and the task the last to hold this very queue: it is dropped
    /// where no lock of the device is held.
    woken: Vec<(u64, Waker)>,
}

impl Wakers {
    /// A number for a stream.
    pub fn number(&self) -> u64 {
        let mut lists = self.0.lock();
        lists.next += 1;
        lists.next
    }

    /// Has `waker` called at the next event, instead of the one that the stream gave before.
    pub fn set(&self, stream: u64, waker: &Waker) {
        let mut lists = self.0.lock();
        let woken = std::mem::take(&mut lists.woken);
        let old = match lists.waiting.iter_mut().find(|(number, _)| *number == stream) {
            Some((_, old)) if old.will_wake(waker) => None,
            Some((_, old)) => Some(std::mem::replace(old, waker.clone())),
            None => {
                lists.waiting.push((stream, waker.clone()));
                None
            }
        };
        drop(lists);
        drop((woken, old));
    }

    /// The stream waits no more.
    pub fn remove(&self, stream: u64) {
        let mut lists = self.0.lock();
        let at = lists.waiting.iter().position(|(number, _)| *number == stream);
        let old = at.map(|at| lists.waiting.swap_remove(at));
        let woken = std::mem::take(&mut lists.woken);
        drop(lists);
        drop((woken, old));
    }
}

impl adverb_device::Notify for Wakers {
    /// Called under the queue's lock: wakers only put their task into a queue of their executor's.
    fn notify(&self, _: &Arc<adverb_device::Cq>) {
        let mut waiting = std::mem::take(&mut self.0.lock().waiting);
        waiting.iter().for_each(|(_, waker)| waker.wake_by_ref());
        self.0.lock().woken.append(&mut waiting);
    }
}
