//! Bytes of sends, compared with the bytes at the post.
//!
//! The bytes of a request are compared when the completion that frees the request is polled. UC and
//! UD send nothing again: after the message has left, the device reads the buffer no more. A
//! program that polls a receive may learn from the message that its own sends have arrived, before
//! the program polls their completions. So the bytes of all UC and UD sends that the device has
//! carried out are compared with a polled receive. Later changes are the program's right.
use super::Check;
use super::sums::sum;
use adverb_check::{CodeAddress, Request};
use adverb_device::Qp;
use std::sync::Arc;

/// A request with the locations of its bytes.
type Located = (Vec<(u64, u32)>, Request);

impl Check {
    /// Requests are about to be posted.
    pub(super) fn awaits_answers(&self, qp: &Arc<Qp>, requests: &[Request]) {
        if !qp.qp_type().is_reliable() && requests.iter().any(|request| request.sum.is_some()) {
            self.datagrams.lock().insert(qp.number(), Arc::downgrade(qp));
        }
    }

    /// The program gets a message, which may answer sends of queue pairs without retransmission.
    pub(super) fn answered(&self, at: CodeAddress) {
        let all = std::mem::take(&mut *self.datagrams.lock());
        for (number, queue_pair) in all {
            let Some(qp) = queue_pair.upgrade() else { continue };
            // While a thread posts, the number of open requests is unknown.
            let Some(alone) = self.try_alone(number) else {
                self.datagrams.lock().insert(number, queue_pair);
                continue;
            };
            let places = qp.query().cap.max_send_wr as usize;
            let open = places.saturating_sub(qp.free_sends());
            let done = self.tell(|ledger| ledger.carried_out(number, open));
            drop(alone);
            if open > 0 {
                self.datagrams.lock().insert(number, queue_pair);
            }
            self.compare(number, &done, at);
        }
    }

    /// Compares the bytes of requests with the bytes at the post.
    pub(super) fn compare(&self, number: u32, requests: &[Located], at: CodeAddress) {
        for (bytes, request) in requests {
            if let Some(now) = sum(bytes)
                && Some(now) != request.sum
            {
                self.tell(|ledger| ledger.changed(number, request, at));
            }
        }
    }
}
