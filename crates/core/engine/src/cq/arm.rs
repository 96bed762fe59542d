//! The arming machine of a completion queue: which added completion leads to an event?
//!
//! A pure state machine: arms and added completions go in, "fire" comes out. The machine never sees
//! the ring, so completions already in the queue cannot fire (CQN-3). An arm is one-shot (CQN-4) or
//! persistent (EXT-3). A second arm over a pending arm leaves the wider of both (CQN-5, CQN-6,
//! NDK-1):
//!
//! | pending \ new | Errors | Solicited | Next |
//! |---|---|---|---|
//! | none | Errors | Solicited | Next |
//! | Errors | Errors | Solicited | Next |
//! | Solicited | Solicited | Solicited | Next |
//! | Next | Next | Next | Next |
//!
//! `Moderation` (`ibv_modify_cq`, EXT-2) holds the event back until enough matching completions
//! were added, or the first of them has waited long enough. States and transitions:
//!
//! ```text
//!              arm                       a completion matches, nothing holds it back
//!   IDLE ────────────────▶ ARMED(kind) ────────────────────────────────────────────▶ fire
//!     ▲                      │  ▲                                                      │
//!     │ disarm               │  └──── arm: the kinds combine                           │ one-shot: IDLE
//!     ├──────────────────────┤                                                         │ persistent: ARMED
//!     │                      ▼ a completion matches, moderation holds it back          │
//!     └─────────────── MODERATED(kind, n, since) ────────────────────────────────────┘
//!                                            the n-th completion, or its time has come
//! ```
//!
//! [`ArmRule::Waiting`] is the arm of ConnectX NICs: the host tells the machine of the completions
//! in the queue (`Arming::count_waiting`).
//!
//! `Arming::arm_fresh` is the arm of NDKPI. Completions already in the queue may satisfy this arm
//! (NDK-2), and so does an overrun of the queue.
use crate::completion::{Completion, WcOpcode, WcStatus};
use adverb_wire::Time;
use core::time::Duration;

/// What an arm waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArmKind {
    /// The next completion (CQN-1).
    Next,
    /// The next solicited or unsuccessful completion (CQN-2).
    Solicited,
    /// The next unsuccessful completion (NDK's ERRORS).
    Errors,
}

/// Which completions satisfy an arm. A device has one rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ArmRule {
    /// Only completions added after the arm (CQN-3).
    #[default]
    Later,
    /// Also completions that wait in the queue at the arm (NIC-7). On ConnectX NICs, the doorbell
    /// of an arm has the index of the next completion to poll, and each completion from this index
    /// on satisfies the arm.
    Waiting,
}

impl ArmKind {
    /// Combines two arms to the wider arm. The sets of completions are nested.
    const fn combine(self, other: ArmKind) -> ArmKind {
        match (self, other) {
            (ArmKind::Next, _) | (_, ArmKind::Next) => ArmKind::Next,
            (ArmKind::Solicited, _) | (_, ArmKind::Solicited) => ArmKind::Solicited,
            (ArmKind::Errors, ArmKind::Errors) => ArmKind::Errors,
        }
    }

    /// Does this arm wait for completions of this class?
    pub(super) const fn matches(self, class: Class) -> bool {
        match self {
            ArmKind::Next => true,
            ArmKind::Solicited => matches!(class, Class::Solicited | Class::Error),
            ArmKind::Errors => matches!(class, Class::Error),
        }
    }
}

/// The class of a completion for the arming machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Successful and not solicited.
    Ordinary,
    /// A successful receive of a message sent with the solicited flag.
    Solicited,
    /// Unsuccessful, send or receive.
    Error,
}

impl Class {
    /// The class of a completion (CQN-2). A successful send completion is never solicited, whatever
    /// its flag says.
    pub(super) fn of(completion: &Completion) -> Class {
        let receive = matches!(completion.opcode, WcOpcode::Recv | WcOpcode::RecvRdmaWithImm);
        if completion.status != WcStatus::Success {
            Class::Error
        } else if completion.solicited && receive {
            Class::Solicited
        } else {
            Class::Ordinary
        }
    }
}

/// How long an event is moderated. With both parts zero (the default) no event is moderated. With
/// one part zero only the other part counts. With both parts the first to be reached counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Moderation {
    /// Completions until the event.
    pub(super) count: u32,
    /// Time from the first of these completions to the event.
    pub(super) period: Duration,
}

/// The state of the arming machine.
#[derive(Clone, Debug, Default)]
pub(super) struct Arming {
    pub(super) pending: Option<ArmKind>,
    /// The pending arm stays after it fires (EXT-3): an event for every matching completion, or for
    /// every batch made by moderation, until [`Arming::disarm`].
    pub(super) persistent: bool,
    /// The pending arm fires on an overrun of the queue (NDKPI).
    overrun_fires: bool,
    /// If the counted completions satisfy a changed moderation, the next [`Arming::fire_if_due`]
    /// fires, and [`Arming::deadline`] is at once.
    pub(super) moderation: Moderation,
    /// Completions that matched the pending arm and are moderated; 0 without a pending arm.
    moderated: u32,
    /// When the first of these completions was added.
    moderated_since: Time,
}

impl Arming {
    /// Asks for one event. Completions counted for a pending arm stay counted, because they match
    /// the wider arm as well.
    pub(super) fn arm(&mut self, kind: ArmKind) {
        self.pending = Some(self.pending.map_or(kind, |p| p.combine(kind)));
    }

    /// Removes the pending arm and the completions counted for the arm.
    pub(super) fn disarm(&mut self) {
        self.pending = None;
        self.persistent = false;
        self.overrun_fires = false;
        self.moderated = 0;
    }

    /// Asks for one event as NDKPI does. `fresh` completions were added after the last callback;
    /// the oldest of them was added at `since`. Completions of any class satisfy the arm at once
    /// (NDK-2), within the limits of moderation. `true`: the event is due.
    pub(super) fn arm_fresh(&mut self, kind: ArmKind, fresh: u32, since: Time, now: Time) -> bool {
        self.arm(kind);
        self.overrun_fires = true;
        self.count_waiting(fresh, since, now)
    }

    /// `waiting` completions in the queue satisfy the pending arm, within the limits of moderation;
    /// the oldest of them was added at `since`. `true`: the event is due.
    pub(super) fn count_waiting(&mut self, waiting: u32, since: Time, now: Time) -> bool {
        if waiting > self.moderated {
            self.moderated = waiting;
            self.moderated_since = since;
        }
        self.fire_if_due(now)
    }

    /// The queue overran. `true`: the overrun satisfied and removed an arm of NDKPI, and the event
    /// is due.
    pub(super) fn overrun(&mut self) -> bool {
        let fires = self.overrun_fires && self.pending.is_some();
        if fires {
            self.disarm();
        }
        fires
    }

    /// A completion was added. `true`: the arm fired and its event is due.
    pub(super) fn added(&mut self, class: Class, now: Time) -> bool {
        if !self.pending.is_some_and(|p| p.matches(class)) {
            return false;
        }
        if self.moderated == 0 {
            self.moderated_since = now;
        }
        self.moderated = self.moderated.saturating_add(1);
        self.fire_if_due(now)
    }

    /// When [`Arming::fire_if_due`] has to be called; only while completions are moderated.
    pub(super) fn deadline(&self) -> Option<Time> {
        let period = self.moderation.period;
        if self.moderated == 0 {
            None
        } else if self.moderated_enough() {
            Some(self.moderated_since)
        } else {
            (!period.is_zero()).then(|| self.moderated_since + period)
        }
    }

    /// Were enough completions counted, so that the event is due at any time?
    fn moderated_enough(&self) -> bool {
        let Moderation { count, period } = self.moderation;
        self.moderated > 0 && self.moderated >= count && (count > 0 || period.is_zero())
    }

    /// Has a deadline come? `true`: the arm fired and its event is due.
    pub(super) fn fire_if_due(&mut self, now: Time) -> bool {
        // `now` may be earlier than the time of a completion: a thread that arms reads the clock,
        // and another thread adds a completion before the arm takes effect.
        let due = self.moderated_enough() || self.deadline().is_some_and(|t| t <= now);
        if due {
            self.moderated = 0;
            // One-shot (CQN-4) unless persistent (EXT-3).
            if !self.persistent {
                self.disarm();
            }
        }
        due
    }
}
