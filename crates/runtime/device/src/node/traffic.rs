//! Messages and bytes of a queue pair.

/// Messages and bytes of a queue pair, for [`crate::snapshot`]. Changed under the queue pair's
/// lock. The chains of requests are counted in [`QpInner::commits`](super::queue_pair::QpInner).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Traffic {
    /// Bytes of posted messages, without READs.
    pub(crate) sent_bytes: u64,
    /// Bytes of posted READs.
    pub(crate) read_bytes: u64,
    /// Requests of the peer that were executed.
    pub(crate) received: u64,
    /// Bytes of these requests.
    pub(crate) received_bytes: u64,
    /// Posted requests at the last message of the peer over the wire.
    posts: u64,
    /// Before the last message, the program had posted since the message before that.
    in_turns: bool,
    /// The last message was one-sided.
    one_sided: bool,
    /// A message of the peer has begun and not ended.
    is_inside: bool,
}

impl Traffic {
    /// The program posts a request of `len` bytes.
    #[inline]
    pub(crate) fn posted(&mut self, len: u64, is_read: bool) {
        let bytes = if is_read { &mut self.read_bytes } else { &mut self.sent_bytes };
        *bytes = bytes.wrapping_add(len);
    }

    /// A message of the peer has ended. The program has posted `posts` requests so far.
    pub(super) fn ended(&mut self, one_sided: bool, posts: u64) {
        self.in_turns = self.posts != posts;
        self.one_sided = one_sided;
        self.posts = posts;
    }

    /// Does the program answer the peer's messages by requests of its own? Inside of a message
    /// nothing is there to be answered, and the peer may wait for an ACK.
    pub(super) fn is_in_turns(&self) -> bool {
        self.in_turns && !self.is_inside
    }

    /// As [`Traffic::is_in_turns`], and the last message was one-sided.
    pub(super) fn is_answered(&self) -> bool {
        self.is_in_turns() && self.one_sided
    }

    /// A packet with a request of the peer was executed. `ends`: its message has ended. `bytes`:
    /// its payload.
    #[inline]
    pub(super) fn executed(&mut self, ends: bool, bytes: usize) {
        self.is_inside = !ends;
        self.received += u64::from(ends);
        self.received_bytes = self.received_bytes.wrapping_add(bytes as u64);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn only_a_program_that_posts_between_one_sided_requests_answers_them() {
        let mut traffic = Traffic::default();
        let mut ended = |one_sided, posts| {
            traffic.ended(one_sided, posts);
            traffic.is_answered()
        };
        assert!(!ended(true, 0), "nothing was posted");
        assert!(ended(true, 1) && ended(true, 3));
        assert!(!ended(true, 3), "two requests in a row");
        assert!(!ended(false, 4), "a message that completes a receive");
        assert!(ended(true, 5));
    }

    #[test]
    fn a_program_has_nothing_to_answer_inside_of_a_message() {
        let mut traffic = Traffic::default();
        for posts in [1, 2] {
            traffic.executed(false, 4096);
            assert!(!traffic.is_answered() && !traffic.is_in_turns(), "the peer waits for an ACK");
            traffic.executed(true, 4096);
            traffic.ended(true, posts);
            assert!(traffic.is_answered());
        }
    }
}
