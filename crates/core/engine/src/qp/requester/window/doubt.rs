//! The loss rule above [`BUFFER`]: after a loss or a notification so much has to arrive before the
//! window may be larger again.
use crate::qp::requester::evidence::BUFFER;

/// After the first loss or notification, so much has to arrive before the window grows above
/// [`BUFFER`]. The amount grows eightfold if a loss follows the growth within [`SOON`], and shrinks
/// as much if a loss comes later. A router without room for bursts of growth drops them each time.
/// Losses at random hit small windows, too.
pub(super) const PATIENCE: u64 = 4 << 20;
/// The largest of these amounts.
const MOST_PATIENCE: u64 = 256 << 20;
/// A loss follows the growth of the window if at most so much was acknowledged in between.
const SOON: u64 = 2 << 20;

/// Doubt in a window larger than [`BUFFER`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Doubt {
    /// Cost to be acknowledged before the window may exceed [`BUFFER`] again.
    pub(super) wary: u64,
    /// That cost after the next loss.
    patience: u64,
    /// Cost acknowledged since the window exceeded [`BUFFER`].
    above: u64,
}

impl Default for Doubt {
    fn default() -> Self {
        Doubt { wary: 0, patience: PATIENCE, above: 0 }
    }
}

impl Doubt {
    /// A loss or a notification happened not long ago.
    pub(super) fn is_wary(&self) -> bool {
        self.wary > 0
    }

    /// So much was acknowledged with a window of this size.
    pub(super) fn acknowledged(&mut self, cost: u64, size: u64) {
        self.wary = self.wary.saturating_sub(cost);
        self.above = if size > BUFFER { self.above + cost } else { 0 };
    }

    /// A loss or a notification with a window of this size.
    pub(super) fn arise(&mut self, size: u64) {
        if size > BUFFER {
            let next = if self.above < SOON { self.patience * 8 } else { self.patience / 8 };
            self.patience = next.clamp(PATIENCE, MOST_PATIENCE);
        }
        self.renew();
    }

    /// No answer arrived for too long.
    pub(super) fn renew(&mut self) {
        self.wary = self.patience;
    }

    /// The packets of a silence were late and not lost.
    pub(super) fn limit(&mut self) {
        self.wary = self.wary.min(PATIENCE);
    }

    /// As before a loss that was none.
    pub(super) fn restore(&mut self, before: Doubt) {
        (self.wary, self.patience) = (before.wary, before.patience);
    }
}
