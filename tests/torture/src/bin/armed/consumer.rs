//! Event threads: *get → acknowledge → arm → poll until empty*.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use adverb_bench::Result;
use adverb_bench::pair;
use adverb_device::{CompChannel, Cq, Errno};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::epoll::{Epoll, EpollTimeout};

use super::track::{Board, Track};

/// How often a waiting thread checks for the end.
const LOOK: Duration = Duration::from_millis(50);
/// Completions per poll.
const POLL: usize = 4;

/// One thread and its channels.
pub struct Consumer {
    board: Arc<Board>,
    channels: Vec<Arc<CompChannel>>,
    /// The thread sleeps in an epoll over several channels instead of the get-event call of one
    /// channel.
    by_epoll: bool,
    /// No other thread reads these channels.
    alone: bool,
    /// By CQ: completions polled after the last arm.
    found: Vec<u64>,
}

impl Consumer {
    /// The first channel has its own thread, an epoll watches the next two, and two threads share
    /// the last.
    pub fn four(channels: &[Arc<CompChannel>], board: &Arc<Board>) -> Vec<Consumer> {
        let consumer = |channels: &[Arc<CompChannel>], by_epoll, alone| Consumer {
            board: board.clone(),
            channels: channels.to_vec(),
            by_epoll,
            alone,
            found: vec![0; board.tracks.len()],
        };
        vec![
            consumer(&channels[..1], false, true),
            consumer(&channels[1..3], true, true),
            consumer(&channels[3..], false, false),
            consumer(&channels[3..], false, false),
        ]
    }

    /// Runs until the board says stop.
    pub fn run(mut self) {
        let result = if self.by_epoll { self.by_epoll() } else { self.by_get() };
        if let Err(why) = result {
            self.board.wrong(|| format!("a consumer ended: {why}"));
        }
    }

    fn stopped(&self) -> bool {
        self.board.stop.load(Ordering::Relaxed)
    }

    fn by_get(&mut self) -> Result<()> {
        let channel = self.channels[0].clone();
        while !self.stopped() {
            match channel.next_event(Some(Instant::now() + LOOK)) {
                Ok(cq) => self.event(&cq)?,
                Err(Errno::ETIMEDOUT | Errno::EINTR) => {}
                Err(e) => return Err(format!("get event: {e}")),
            }
        }
        Ok(())
    }

    fn by_epoll(&mut self) -> Result<()> {
        let channels = self.channels.clone();
        for channel in &channels {
            let flags =
                fcntl(&**channel, FcntlArg::F_GETFL).map_err(|e| format!("F_GETFL: {e}"))?;
            let flags = OFlag::from_bits_retain(flags) | OFlag::O_NONBLOCK;
            fcntl(&**channel, FcntlArg::F_SETFL(flags)).map_err(|e| format!("F_SETFL: {e}"))?;
        }
        let fds: Vec<&CompChannel> = channels.iter().map(|c| &**c).collect();
        let epoll: Epoll = pair::epoll_of(&fds)?;
        let limit = EpollTimeout::try_from(LOOK).map_err(|e| e.to_string())?;
        while !self.stopped() {
            if !pair::sleep(&epoll, limit)? {
                continue;
            }
            for channel in &channels {
                match channel.next_event(None) {
                    Ok(cq) => self.event(&cq)?,
                    Err(Errno::EAGAIN) => {}
                    Err(e) => return Err(format!("get event: {e}")),
                }
            }
        }
        Ok(())
    }

    /// Acknowledges, arms, polls until empty, and then checks the counters.
    fn event(&mut self, cq: &Arc<Cq>) -> Result<()> {
        let board = self.board.clone();
        let Some(track) = board.of(cq) else { return Err("an event of an unknown CQ".to_string()) };
        let events = track.events.fetch_add(1, Ordering::Relaxed) + 1;
        let arms = track.arms.load(Ordering::Relaxed);
        if events > arms {
            board.wrong(|| format!("{}: event {events} after {arms} arms", track.name()));
        }
        cq.ack_events(1);
        track.arm()?;
        let found = self.drain(track)?;
        let before = std::mem::replace(&mut self.found[track.index], found);
        if track.lockstep && found != 1 {
            board.wrong(|| format!("{}: an event came with {found} completions", track.name()));
        } else if self.alone && found + before == 0 {
            board.wrong(|| format!("{}: an event that no completion made", track.name()));
        }
        Ok(())
    }

    /// Polls until empty and returns the number of completions.
    fn drain(&self, track: &Track) -> Result<u64> {
        let mut found = 0;
        loop {
            let n = track.cq.poll(POLL, |c| self.board.polled(track, &c));
            match n.map_err(|e| format!("poll: {e}"))? {
                0 => break,
                n => found += n as u64,
            }
        }
        if track.lockstep {
            track.ready.store(track.polled.load(Ordering::Acquire), Ordering::Release);
        }
        Ok(found)
    }
}
