//! How much one acknowledgement releases. A window that opens at once would be a burst.
use adverb_wire::Time;

/// The burst that the last acknowledgement allows.
#[derive(Debug)]
pub(super) struct Bursts {
    /// The cost in flight at the last acknowledgement, and the most before the next.
    released: u64,
    most: u64,
    /// When more may leave, if the last acknowledgement released less than fits the window.
    pub(super) more_at: Option<Time>,
}

impl Bursts {
    /// The first burst.
    pub(super) fn new(most: u64) -> Self {
        Bursts { released: 0, most, more_at: None }
    }

    #[inline]
    pub(super) fn admit(&self, in_flight: u64, cost: u64) -> bool {
        in_flight + cost <= self.most
    }

    /// As [`Bursts::admit`], for a part of a READ. An acknowledgement releases a long part, too.
    pub(super) fn admit_part(&self, in_flight: u64, cost: u64) -> bool {
        in_flight <= self.released || self.admit(in_flight, cost)
    }

    /// At most `most` may leave in addition to what is in flight, and more at `more_at`.
    pub(super) fn release(&mut self, in_flight: u64, most: u64, more_at: Option<Time>) {
        (self.released, self.most, self.more_at) = (in_flight, in_flight + most, more_at);
    }
}
