//! How the background thread wakes while the program waits for its memory to change.
//!
//! A program that polls memory makes no call of the library. If two such programs share a
//! processor, each polls to the end of its time slice. Each wake-up of a background thread makes
//! the kernel choose anew which thread runs. So short naps of the background thread end the wait.
//!
//! 1. The program posts a one-sided request. The background thread is told the number of the
//!    posting thread, the poster (`Policy::posts`).
//! 2. The background thread reads how long the poster ran, and how long the poster waited for a
//!    processor (`schedstat`). It reads again after some ticks of the scheduler ([`Naps::judge`]).
//! 3. A poster that waited for a processor shares a processor: the background thread takes short
//!    naps.
//! 4. A poster that ran all the time has its own processor: the background thread reads again
//!    later.
//! 5. A poster that slept does not poll memory: the background thread sleeps without naps, and is
//!    told again after twice as many requests.
use crate::node::costs::Costs;
use adverb_engine::Time;
use std::time::Duration;

#[cfg(test)]
mod tests;

/// Ticks between two readings. The kernel's values of a running thread are as old as the last tick.
const TICKS: u32 = 4;
/// Longest interval, for a poster with its own processor.
const MOST_TICKS: u32 = 16;
/// A nap is this many times as long as a wake-up takes.
const NAP: u32 = 16;
/// Wake-ups' costs in a nap before the processor time of a nap is known.
const FIRST: u32 = 3;
/// Number of the shortest naps in a tick.
const SHORTEST: u32 = 128;
/// Number of the longest naps in a tick.
const LONGEST: u32 = 16;
/// A poster shares its processor if it waited for this part of the time.
const SHARES: u32 = 8;
/// Largest number of requests until the background thread is told again.
const MOST_POSTS: u32 = 1024;

/// The kernel's values for the poster and the background thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    /// Time of the reading.
    pub(crate) at: Time,
    /// Running time of the poster so far.
    pub(crate) ran: Duration,
    /// Time the poster has waited for a processor so far.
    pub(crate) waited: Duration,
    /// Running time of the background thread so far.
    pub(crate) own: Duration,
}

/// What is known of the poster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Poster {
    /// Not watched.
    Unwatched,
    /// Watched, with its own processor as far as known.
    Alone,
    /// The poster shares its processor.
    Shares,
}

/// See the module's page.
#[derive(Debug)]
pub(crate) struct Naps {
    tick: Duration,
    poster: Poster,
    /// The last reading, and the time of the next reading.
    last: Reading,
    due: Time,
    /// Ticks from the last reading to the next.
    ticks: u32,
    /// Naps since the last reading.
    taken: u32,
    /// Length of a nap while the poster shares its processor.
    short: Duration,
    /// Requests until the background thread is told again.
    posts: u32,
}

impl Naps {
    /// `tick`: the time between two ticks of the scheduler.
    pub(crate) fn new(tick: Duration, costs: Costs) -> Self {
        Naps {
            tick,
            poster: Poster::Unwatched,
            last: Reading::default(),
            due: Time::ZERO,
            ticks: TICKS,
            taken: 0,
            short: (costs.turn() * FIRST).clamp(tick / SHORTEST, tick / LONGEST),
            posts: 1,
        }
    }

    /// The background thread is told of a poster.
    pub(crate) fn begin(&mut self, reading: Reading) {
        self.poster = Poster::Alone;
        self.watch(reading, TICKS);
    }

    fn watch(&mut self, reading: Reading, ticks: u32) {
        self.last = reading;
        self.taken = 0;
        self.ticks = ticks;
        self.due = reading.at + self.tick * ticks;
    }

    /// How long the background thread may sleep at `now`. `None`: without a limit.
    pub(crate) fn length(&self, now: Time) -> Option<Duration> {
        match self.poster {
            Poster::Unwatched => None,
            Poster::Alone => Some(self.due.since(now)),
            Poster::Shares => Some(self.short),
        }
    }

    /// The background thread has napped. `true`: a reading is due.
    pub(crate) fn napped(&mut self, now: Time) -> bool {
        self.taken += 1;
        self.poster != Poster::Unwatched && now >= self.due
    }

    /// Judges a due reading. `None`: the poster has ended, or the kernel gives no values. Returns
    /// `Some` if the background thread stops watching. The value is the number of requests until it
    /// is told again.
    pub(crate) fn judge(&mut self, reading: Option<Reading>) -> Option<u32> {
        let Some(reading) = reading else { return Some(self.end()) };
        let time = reading.at.since(self.last.at);
        let (ran, waited) = (
            reading.ran.saturating_sub(self.last.ran),
            reading.waited.saturating_sub(self.last.waited),
        );
        if (ran + waited) * 2 < time {
            return Some(self.end());
        }
        self.posts = 1;
        if waited * SHARES >= time {
            if self.poster == Poster::Shares {
                let cost = reading.own.saturating_sub(self.last.own) / self.taken.max(1);
                self.short = (cost * NAP).clamp(self.tick / SHORTEST, self.tick / LONGEST);
            }
            self.poster = Poster::Shares;
            self.watch(reading, TICKS);
        } else {
            self.poster = Poster::Alone;
            self.watch(reading, (self.ticks * 2).min(MOST_TICKS));
        }
        None
    }

    fn end(&mut self) -> u32 {
        self.poster = Poster::Unwatched;
        let posts = self.posts;
        self.posts = (posts * 2).min(MOST_POSTS);
        posts
    }
}
