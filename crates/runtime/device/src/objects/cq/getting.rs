//! Threads that wait for an event in a call of the device. The kernel shows such a thread in a
//! `ppoll`.
use crate::own_id::own_id;
use crate::ranks;
use adverb_sync::Ranked;

/// The threads inside a get-event call of a channel.
pub(super) type Getting = Ranked<Vec<i32>, ranks::Getting>;

/// Registers the calling thread as waiting for an event, until the value is dropped.
pub(super) struct Waiting<'a> {
    getting: &'a Getting,
    id: i32,
}

impl<'a> Waiting<'a> {
    pub(super) fn new(getting: &'a Getting) -> Self {
        let id = own_id();
        let mut list = getting.lock();
        // A thread cancelled in the call has left its registration behind.
        if !list.contains(&id) {
            list.push(id);
        }
        Waiting { getting, id }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.getting.lock().retain(|id| *id != self.id);
    }
}
