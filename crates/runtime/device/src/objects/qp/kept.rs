//! A send queue whose requests an adversary keeps.
use super::Qp;

impl Qp {
    /// Requests stay in the send queue until [`Node::let_requests_go`]. `false`: they stay already.
    pub fn keep_requests(&self) -> bool {
        !std::mem::replace(&mut self.inner.lock().kept, true)
    }

    /// Places the last line of the WRITE at the head of a send queue that keeps its requests in the
    /// peer's memory. The request stays in the queue.
    pub fn place_tail(&self) {
        let mut inner = self.inner.lock();
        if inner.kept {
            self.context().node().place_tail(self, &mut inner);
        }
    }
}
