//! Both ends of every connection, and their permitted outcomes.
use crate::verdict::{Check, Violation};
use adverb_cm::{Ending, Timing};

/// How an end's part in a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum EndOutcome {
    /// The other end refused, or had given up.
    Rejected,
    /// The other end did not answer.
    Unanswered,
    /// The program refused the connection or destroyed its id before the connection was made.
    GaveUp,
    /// An established connection has ended.
    Ended(Ending),
    /// The program destroyed the id of an established connection.
    LetGo,
    /// A lookup was answered.
    LookedUp,
    /// The process died.
    Died,
}

/// One end of an attempt.
#[derive(Clone, Debug, Default)]
pub(super) struct AttemptEnd {
    /// The program agreed: the passive side accepted.
    pub agreed: bool,
    /// The connection was made from this end's view: confirmed by this end, or seen confirmed.
    pub made: bool,
    /// The program disconnected, with the farewell of this end as private data.
    pub hung_up: bool,
    /// Passive end with agreement: its host and queue pair.
    pub queue_pair: Option<(usize, u32)>,
    pub outcome: Option<EndOutcome>,
    /// The time-wait is over.
    pub rested: bool,
    /// For an end that left: DREQs and REJs lost by the network, and whether the network carried
    /// any of them.
    pub dreqs_lost: u32,
    pub rejs_lost: u32,
    pub word_carried: bool,
}

impl AttemptEnd {
    /// Records the outcome; a second outcome is a violation.
    pub fn over(&mut self, outcome: EndOutcome) -> Check {
        match &self.outcome {
            Some(before) => {
                Err(Violation(format!("a second outcome: {outcome:?} after {before:?}")))
            }
            None => {
                self.outcome = Some(outcome);
                Ok(())
            }
        }
    }

    fn left(&self) -> bool {
        self.hung_up || matches!(self.outcome, Some(EndOutcome::LetGo | EndOutcome::GaveUp))
    }

    /// This end left, and the network lost all messages about this: each DREQ, or both REJs. There
    /// are two REJs if the end left an accepted request: at that time, and after the last REP.
    fn left_unheard(&self) -> bool {
        let all_lost =
            self.dreqs_lost > u32::from(Timing::LINUX.max_retries) || self.rejs_lost >= 2;
        self.left() && !self.word_carried && all_lost
    }

    fn is_torn(&self) -> bool {
        let unheard = matches!(
            self.outcome,
            Some(
                EndOutcome::Died
                    | EndOutcome::Unanswered
                    | EndOutcome::Ended(Ending::Unanswered { .. } | Ending::Stale)
            )
        );
        unheard || self.left_unheard()
    }
}

/// An attempt to connect: the active end, and each resulting request at the passive side. A request
/// that arrives again after everything is over counts as another request.
#[derive(Clone, Debug, Default)]
pub(super) struct Attempt {
    pub active: AttemptEnd,
    pub passive: Vec<AttemptEnd>,
    /// Host and queue pair that the active end has confirmed, and sends to. A process that replaces
    /// a dead process may take a late copy of the same request. The active end sends nothing to
    /// such an end.
    pub confirmed: Option<(usize, u32)>,
    /// Private data of the end that disconnects: `[0]` of the active end, `[1]` of the passive one.
    pub farewell: [Vec<u8>; 2],
}

impl Attempt {
    /// The ends could not agree, because one of them died or stayed out of reach for all of the
    /// protocol's time.
    pub fn is_torn(&self) -> bool {
        self.active.is_torn() || self.passive.iter().any(AttemptEnd::is_torn)
    }

    pub fn was_made(&self) -> bool {
        self.active.made && self.passive.iter().any(|end| end.made)
    }

    /// Checks the outcomes of both ends against each other.
    pub fn judge(&self) -> Check {
        let wrong = |why: &str| Err(Violation(format!("{why}: {self:?}")));
        if self.active.outcome.is_none() || self.passive.iter().any(|end| end.outcome.is_none()) {
            return wrong("an end waits for ever");
        }
        let made = self.passive.iter().filter(|end| end.made).count();
        if made > 1 {
            return wrong("one connection has two passive ends");
        }
        if self.passive.iter().any(|end| end.made && end.queue_pair != self.confirmed) {
            return wrong("a connection that the active end has not confirmed");
        }
        if self.is_torn() {
            return Ok(());
        }
        let agreed = self.passive.iter().any(|end| end.agreed);
        if self.active.made && !agreed {
            return wrong("a connection that nobody has agreed to");
        }
        let left = self.active.left() || self.passive.iter().any(AttemptEnd::left);
        if self.active.made && !left {
            return wrong("a connection ended that nobody has ended");
        }
        self.farewells()
    }

    /// An end that learns of the other end's farewell must see the other end's private data.
    fn farewells(&self) -> Check {
        let ends = [(&self.active, 1)].into_iter().chain(self.passive.iter().map(|end| (end, 0)));
        for (end, other) in ends {
            let Some(EndOutcome::Ended(Ending::Peer(said))) = &end.outcome else { continue };
            // An end that destroys its id without disconnecting sends no private data.
            let silent = said.0.iter().all(|byte| *byte == 0);
            let words = &self.farewell[other];
            let right = said.0.starts_with(words) && !words.is_empty();
            if !right && !silent {
                return Err(Violation(format!("words that the other end has not said: {self:?}")));
            }
        }
        Ok(())
    }
}
