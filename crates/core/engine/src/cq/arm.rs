//! The arming machine of a completion queue: when does an added completion lead to an event?
//!
//! A pure state machine: arms and added completions go in, "fire" comes out. It never sees the
//! ring, so what is already in the queue cannot fire anything (CQN-3). An arm is one-shot (CQN-4)
//! unless it was asked for as persistent (EXT-3). A second arm while one is pending keeps the one
//! that fires on more (CQN-5, CQN-6, NDK-1):
//!
//! | pending \ new | Errors | Solicited | Next |
//! |---|---|---|---|
//! | none | Errors | Solicited | Next |
//! | Errors | Errors | Solicited | Next |
//! | Solicited | Solicited | Solicited | Next |
//! | Next | Next | Next | Next |
//!
//! [`Moderation`] (`ibv_modify_cq`, EXT-2) holds the event back until enough completions that match
//! the arm were added, or the first of them has waited long enough. The states and what moves
//! between them:
//!
//! ```text
//!              arm                       a completion matches, nothing holds it back
//!   IDLE ────────────────▶ ARMED(kind) ────────────────────────────────────────────▶ fire
//!     ▲                      │  ▲                                                      │
//!     │ disarm               │  └──── arm: the kinds combine                           │ one-shot: IDLE
//!     ├──────────────────────┤                                                         │ persistent: ARMED
//!     │                      ▼ a completion matches, moderation holds it back          │
//!     └─────────────── HELD(kind, n, since) ───────────────────────────────────────────┘
//!                                            the n-th completion, or its time has come
//! ```
//!
//! [`Arming::arm_fresh`] is NDKPI's arm, which completions that are there already may satisfy
//! (NDK-2), and which an overrun of the queue satisfies, too.
use crate::completion::{Completion, WcOpcode, WcStatus};
use crate::time::Time;
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

impl ArmKind {
    /// Combines two arms to the one that fires on more completions; the sets are nested.
    #[must_use]
    pub const fn combine(self, other: ArmKind) -> ArmKind {
        match (self, other) {
            (ArmKind::Next, _) | (_, ArmKind::Next) => ArmKind::Next,
            (ArmKind::Solicited, _) | (_, ArmKind::Solicited) => ArmKind::Solicited,
            (ArmKind::Errors, ArmKind::Errors) => ArmKind::Errors,
        }
    }

    /// Does this arm wait for completions of this class?
    #[must_use]
    pub const fn matches(self, class: Class) -> bool {
        match self {
            ArmKind::Next => true,
            ArmKind::Solicited => matches!(class, Class::Solicited | Class::Error),
            ArmKind::Errors => matches!(class, Class::Error),
        }
    }
}

/// What a completion is to the arming machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Successful, and nobody asked to be told.
    Ordinary,
    /// A successful receive of a message sent with the solicited flag.
    Solicited,
    /// Unsuccessful, send or receive.
    Error,
}

impl Class {
    /// The class of a completion (CQN-2). A successful send completion is never solicited, whatever
    /// its flag says.
    #[must_use]
    pub fn of(completion: &Completion) -> Class {
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

/// How long an event is held back. Both parts zero (the default): not at all. With one part zero
/// the other decides alone; with both, whichever is reached first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moderation {
    /// Completions until the event.
    pub count: u32,
    /// Time since the first of them until the event.
    pub period: Duration,
}

/// The state of the arming machine.
#[derive(Clone, Debug, Default)]
pub struct Arming {
    pending: Option<ArmKind>,
    /// The pending arm stays when it fires (EXT-3).
    persistent: bool,
    /// The pending arm fires on an overrun of the queue (NDKPI).
    overrun_fires: bool,
    moderation: Moderation,
    /// Completions that matched the pending arm and were held back; 0 when none is pending.
    held: u32,
    /// When the first of them was added.
    held_since: Time,
}

impl Arming {
    /// The pending arm.
    #[must_use]
    pub fn pending(&self) -> Option<ArmKind> {
        self.pending
    }

    /// Asks for one event. Completions that were counted for a pending arm stay counted, as they
    /// match the wider arm as well.
    pub fn arm(&mut self, kind: ArmKind) {
        self.pending = Some(self.pending.map_or(kind, |p| p.combine(kind)));
    }

    /// Asks for an event for every completion that matches, or for every batch that moderation
    /// makes of them, until [`Arming::disarm`] (EXT-3).
    pub fn arm_persistent(&mut self, kind: ArmKind) {
        self.arm(kind);
        self.persistent = true;
    }

    /// Does the pending arm stay when it fires?
    #[must_use]
    pub fn is_persistent(&self) -> bool {
        self.persistent
    }

    /// Removes the pending arm and the completions counted for it.
    pub fn disarm(&mut self) {
        self.pending = None;
        self.persistent = false;
        self.overrun_fires = false;
        self.held = 0;
    }

    /// Asks for one event as NDKPI does. `fresh` completions are in the queue that came after its
    /// last callback, the oldest of them at `since`; whatever they are, they satisfy the arm at
    /// once (NDK-2), as far as moderation lets them. `true`: the event is due.
    #[must_use]
    pub fn arm_fresh(&mut self, kind: ArmKind, fresh: u32, since: Time, now: Time) -> bool {
        self.arm(kind);
        self.overrun_fires = true;
        if fresh > self.held {
            self.held = fresh;
            self.held_since = since;
        }
        self.fire_if_due(now)
    }

    /// The queue overran. `true`: an arm of NDKPI's is satisfied and gone, its event is due.
    #[must_use]
    pub fn overrun(&mut self) -> bool {
        let fires = self.overrun_fires && self.pending.is_some();
        if fires {
            self.disarm();
        }
        fires
    }

    /// A completion was added. `true`: the arm is satisfied and gone, its event is due.
    #[must_use]
    pub fn added(&mut self, class: Class, now: Time) -> bool {
        if !self.pending.is_some_and(|p| p.matches(class)) {
            return false;
        }
        if self.held == 0 {
            self.held_since = now;
        }
        self.held = self.held.saturating_add(1);
        self.fire_if_due(now)
    }

    /// Changes the moderation. If the completions counted so far satisfy the new one, the next
    /// [`Arming::expired`] fires, and [`Arming::deadline`] asks for it at once.
    pub fn set_moderation(&mut self, moderation: Moderation) {
        self.moderation = moderation;
    }

    /// The moderation.
    #[must_use]
    pub fn moderation(&self) -> Moderation {
        self.moderation
    }

    /// When [`Arming::expired`] wants to be called: only while completions are held back.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        let period = self.moderation.period;
        if self.held == 0 {
            None
        } else if self.held_enough() {
            Some(self.held_since)
        } else {
            (!period.is_zero()).then(|| self.held_since + period)
        }
    }

    /// Are there as many as moderation wants, so that the event is due whatever the time is?
    fn held_enough(&self) -> bool {
        let Moderation { count, period } = self.moderation;
        self.held > 0 && self.held >= count && (count > 0 || period.is_zero())
    }

    /// Time has come. `true`: the arm is satisfied and gone, its event is due.
    #[must_use]
    pub fn expired(&mut self, now: Time) -> bool {
        self.fire_if_due(now)
    }

    fn fire_if_due(&mut self, now: Time) -> bool {
        // `now` may be earlier than the completions' times: an arm reads the clock, and another
        // thread adds one before the arm takes effect.
        let due = self.held_enough() || self.deadline().is_some_and(|t| t <= now);
        if due {
            self.held = 0;
            // One-shot (CQN-4) unless asked for otherwise (EXT-3).
            if !self.persistent {
                self.disarm();
            }
        }
        due
    }
}
