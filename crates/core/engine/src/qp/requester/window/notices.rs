//! Congestion notifications: their frequency, as in DCQCN.

/// The value of `alpha` when every round trip has a notification.
const ALPHA_ONE: u64 = 1024;
/// `alpha` moves by this part of its distance in each round trip.
const ALPHA_GAIN: u64 = 16;

/// The amount of congestion, by the share of round trips with a notification.
#[derive(Debug)]
pub(super) struct Notices {
    /// In parts of [`ALPHA_ONE`].
    alpha: u64,
    /// The round trip under way. `None` before the first notification.
    round: Option<Round>,
}

#[derive(Clone, Copy, Debug)]
struct Round {
    /// The PSN at which the round trip ends.
    end: u64,
    /// There was a notification in this round trip.
    marked: bool,
}

impl Default for Notices {
    fn default() -> Self {
        Notices { alpha: ALPHA_ONE, round: None }
    }
}

impl Notices {
    /// Has the network notified of congestion?
    pub(super) fn are_given(&self) -> bool {
        self.round.is_some()
    }

    /// All packets before `una` are acknowledged; `high` is the first PSN never sent.
    pub(super) fn progress(&mut self, una: u64, high: u64) {
        let Some(round) = self.round.filter(|round| una >= round.end) else { return };
        if !round.marked {
            self.alpha -= self.alpha / ALPHA_GAIN;
        }
        self.round = Some(Round { end: high, marked: false });
    }

    /// A notification has come. Answers the smaller size of a window of `size`, once a round trip.
    pub(super) fn take(&mut self, size: u64, una: u64, high: u64) -> Option<u64> {
        if self.round.is_some_and(|round| round.marked) {
            return None;
        }
        self.round = Some(Round { end: high.max(una + 1), marked: true });
        self.alpha += (ALPHA_ONE - self.alpha) / ALPHA_GAIN;
        Some(size - size * self.alpha / (2 * ALPHA_ONE))
    }
}
