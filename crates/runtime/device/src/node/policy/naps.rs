//! How the background thread wakes while the program waits for its memory to change.
//!
//! A program that polls memory makes no call of the library. Where two such programs share a
//! processor, each polls to the end of its time slice. Each wake-up of a background thread makes
//! the kernel choose again which thread runs, so short naps of that thread end the wait.
//!
//! 1. The program posts a one-sided request, and the thread is told which thread of the program did
//!    (`Policy::posts`).
//! 2. The background thread reads how long the poster ran, and how long it waited for a processor
//!    (`schedstat`). It does so again after some ticks of the scheduler ([`Naps::judge`]).
//! 3. A poster that waited for a processor shares it: the thread takes short naps.
//! 4. A poster that ran all the time has its own: the thread reads again later.
//! 5. A poster that slept does not poll memory: the thread sleeps without naps, and is told again
//!    after twice as many requests.
use adverb_engine::Time;
use std::time::Duration;

#[cfg(test)]
mod tests;

/// Ticks from one reading to the next: what the kernel says of a thread that runs is as old as the
/// last tick.
const TICKS: u32 = 4;
/// The same for a poster that has its processor to itself.
const MOST_TICKS: u32 = 16;
/// A nap is so many times as long as a wake-up takes.
const NAP: u32 = 16;
/// Before it is known what a wake-up takes: so many naps to a tick.
const FIRST: u32 = 64;
/// Shortest nap to a tick, and the longest.
const SHORTEST: u32 = 128;
const LONGEST: u32 = 16;
/// A poster that waited for a processor during such a part of the time shares it.
const SHARES: u32 = 8;
/// Requests until the thread is told again, at most.
const MOST_POSTS: u32 = 1024;

/// What the kernel says of the poster and of the background thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    /// When it was read.
    pub(crate) at: Time,
    /// How long the poster has run so far.
    pub(crate) ran: Duration,
    /// How long it has waited for a processor so far.
    pub(crate) waited: Duration,
    /// How long the background thread has run so far.
    pub(crate) own: Duration,
}

/// What is known of the poster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Poster {
    /// Nothing: it is not watched.
    Unwatched,
    /// It is watched, or has its processor to itself.
    Alone,
    /// It shares its processor.
    Shares,
}

/// See the module's page.
#[derive(Debug)]
pub(crate) struct Naps {
    tick: Duration,
    poster: Poster,
    /// The last reading, and when the next one is due.
    last: Reading,
    due: Time,
    /// Ticks from the last reading to the next.
    ticks: u32,
    /// Naps since the last reading.
    taken: u32,
    /// A nap while the poster shares its processor.
    short: Duration,
    /// Requests until the thread is told again.
    posts: u32,
}

impl Naps {
    /// `tick`: the time between two ticks of the scheduler.
    pub(crate) fn new(tick: Duration) -> Self {
        Naps {
            tick,
            poster: Poster::Unwatched,
            last: Reading::default(),
            due: Time::ZERO,
            ticks: TICKS,
            taken: 0,
            short: tick / FIRST,
            posts: 1,
        }
    }

    /// The thread is told of a poster.
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

    /// How long the thread may sleep at `now`; `None`: as long as nothing wakes it.
    pub(crate) fn length(&self, now: Time) -> Option<Duration> {
        match self.poster {
            Poster::Unwatched => None,
            Poster::Alone => Some(self.due.since(now)),
            Poster::Shares => Some(self.short),
        }
    }

    /// The thread has napped. `true`: a reading is due.
    pub(crate) fn napped(&mut self, now: Time) -> bool {
        self.taken += 1;
        self.poster != Poster::Unwatched && now >= self.due
    }

    /// A reading that was due; `None`: the poster has ended, or the kernel does not tell. Answers
    /// `Some` if the thread watches no poster any more: it is to be told again after so many
    /// requests.
    pub(crate) fn judge(&mut self, reading: Option<Reading>) -> Option<u32> {
        let Some(reading) = reading else { return Some(self.end()) };
        let time = reading.at.since(self.last.at);
        let (ran, waited) =
            (reading.ran.saturating_sub(self.last.ran), reading.waited.saturating_sub(self.last.waited));
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
