//! Both ends of every connection, and what they may come to.
use crate::verdict::{Check, Violation};
use adverb_cm::{Ending, Timing};

/// How an end came to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The other end refused, or had given up.
    Rejected,
    /// The other end did not answer.
    Unanswered,
    /// The program refused, or let go, before the connection was made.
    GaveUp,
    /// A connection that was made has ended.
    Ended(Ending),
    /// The program let go of a connection that was made.
    LetGo,
    /// The process died.
    Died,
}

/// One end.
#[derive(Clone, Debug, Default)]
pub(super) struct End {
    /// The program agreed: the passive side accepted.
    pub agreed: bool,
    /// The connection was made, for this end: confirmed, or seen confirmed.
    pub made: bool,
    /// The program said farewell, with these words.
    pub hung_up: bool,
    /// Of a passive end that has agreed: its host and queue pair.
    pub queue_pair: Option<(usize, u32)>,
    pub outcome: Option<Outcome>,
    /// Of an end that left: DREQs and REJs that the network lost, and whether one was carried.
    pub dreqs_lost: u32,
    pub rejs_lost: u32,
    pub word_carried: bool,
}

impl End {
    /// Notes the one outcome.
    pub fn over(&mut self, outcome: Outcome) -> Check {
        match &self.outcome {
            Some(before) => Err(Violation(format!("a second outcome: {outcome:?} after {before:?}"))),
            None => {
                self.outcome = Some(outcome);
                Ok(())
            }
        }
    }

    fn left(&self) -> bool {
        self.hung_up || matches!(self.outcome, Some(Outcome::LetGo | Outcome::GaveUp))
    }

    /// It left, and the network took all that it said of that: each DREQ, or the REJs when it left
    /// an accepted request and after the last REP.
    fn left_unheard(&self) -> bool {
        let all_lost = self.dreqs_lost > u32::from(Timing::LINUX.max_retries) || self.rejs_lost >= 2;
        self.left() && !self.word_carried && all_lost
    }

    fn is_torn(&self) -> bool {
        let unheard = matches!(
            self.outcome,
            Some(
                Outcome::Died
                    | Outcome::Unanswered
                    | Outcome::Ended(Ending::Unanswered { .. } | Ending::Stale)
            )
        );
        unheard || self.left_unheard()
    }
}

/// An attempt to connect: the end that asked, and each request that came of it at the other. A
/// request that comes again after all is over is one more.
#[derive(Clone, Debug, Default)]
pub(super) struct Attempt {
    pub active: End,
    pub passive: Vec<End>,
    /// Host and queue pair that the active end has confirmed, and sends to. A process that takes
    /// the place of one that died may take a late copy of the same request; that end hears nothing.
    pub confirmed: Option<(usize, u32)>,
    /// What the end that hung up said, by who: active, passive.
    pub farewell: [Vec<u8>; 2],
}

impl Attempt {
    /// The ends could not agree, as one of them died or could not be reached for all of the
    /// protocol's time.
    pub fn is_torn(&self) -> bool {
        self.active.is_torn() || self.passive.iter().any(End::is_torn)
    }

    pub fn was_made(&self) -> bool {
        self.active.made && self.passive.iter().any(|end| end.made)
    }

    /// How it ended is right, seen from both ends.
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
        let left = self.active.left() || self.passive.iter().any(End::left);
        if self.active.made && !left {
            return wrong("a connection ended that nobody has ended");
        }
        self.farewells()
    }

    /// Who is told of the other's farewell is told its words.
    fn farewells(&self) -> Check {
        let ends = [(&self.active, 1)].into_iter().chain(self.passive.iter().map(|end| (end, 0)));
        for (end, other) in ends {
            let Some(Outcome::Ended(Ending::Peer(said))) = &end.outcome else { continue };
            // One that lets go says nothing.
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
