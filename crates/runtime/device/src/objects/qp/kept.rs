//! A send queue whose requests an adversary keeps or loses.
use super::Qp;

impl Qp {
    /// Requests stay in the send queue until
    /// [`let_requests_go`](crate::node::Node::let_requests_go). `false`: they stay already.
    pub fn keep_requests(&self) -> bool {
        !std::mem::replace(&mut self.inner.lock().kept, true)
    }

    /// Places the last line of the WRITE or READ at the head of a send queue that keeps its
    /// requests. The request stays in the queue.
    pub fn place_tail(&self) {
        let mut inner = self.inner.lock();
        if inner.kept {
            self.context().node().place_tail(self, &mut inner);
        }
    }

    /// Messages that leave are lost from now on. With `false`, those posted so far are lost, and
    /// later messages are not.
    pub fn lose(&self, loses: bool) {
        let node = self.context().node();
        if node.is_stale() {
            return;
        }
        node.with_tx(|tx| {
            let mut inner = self.inner.lock();
            if !loses {
                node.pump(self, &mut inner, tx);
            }
            inner.loses = loses;
        });
    }
}
