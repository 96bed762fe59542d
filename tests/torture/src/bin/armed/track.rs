//! Counters of each CQ: posted and polled requests, arms and events.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use adverb_bench::Result;
use adverb_bench::world::World;
use adverb_device::engine::Completion;
use adverb_device::engine::cq::arm::ArmKind;
use adverb_device::{CompChannel, Cq};
use adverb_sync::Mutex;

/// Limit of outstanding completions in a racing CQ.
pub const WINDOW: u64 = 8;
/// Entries of each CQ: more than the limit of outstanding completions.
const DEPTH: u32 = 64;
/// Number of violations kept in words.
const TOLD: usize = 20;

/// The traffic that fills a CQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// Sends over the wire path: successful, never solicited.
    Send,
    /// Receives of these sends: solicited or not.
    Recv,
    /// Binds of a window, local to the device: successful, never solicited.
    Bind,
    /// Requests to a queue pair in ERR: failed.
    Flush,
}

impl Traffic {
    /// The arms that fire with this traffic, taken in turn.
    fn arms(self) -> &'static [ArmKind] {
        match self {
            Traffic::Send | Traffic::Bind => &[ArmKind::Next],
            Traffic::Recv => &[ArmKind::Next, ArmKind::Solicited],
            Traffic::Flush => &[ArmKind::Next, ArmKind::Solicited, ArmKind::Errors],
        }
    }
}

/// A CQ and its counters.
pub struct Track {
    pub cq: Arc<Cq>,
    pub traffic: Traffic,
    /// One completion for each arm.
    pub lockstep: bool,
    /// Number of this CQ, on the board and as a cookie.
    pub index: usize,
    /// Number of the channel.
    pub channel: usize,
    /// Requests posted so far, which is the number of the next request.
    pub posted: AtomicU64,
    /// Completions polled so far, which is the number of the next completion.
    pub polled: AtomicU64,
    /// Value of `polled` when the CQ was last armed and then found empty.
    pub ready: AtomicU64,
    pub arms: AtomicU64,
    pub events: AtomicU64,
}

impl Track {
    /// How many more requests may be posted now.
    pub fn room(&self) -> u64 {
        let posted = self.posted.load(Ordering::Relaxed);
        if self.lockstep {
            u64::from(self.ready.load(Ordering::Acquire) == posted)
        } else {
            (self.polled.load(Ordering::Acquire) + WINDOW).saturating_sub(posted)
        }
    }

    /// Arms the CQ for a single event.
    pub fn arm(&self) -> Result<()> {
        let n = self.arms.fetch_add(1, Ordering::Relaxed) as usize;
        let kinds = self.traffic.arms();
        self.cq.req_notify(kinds[n % kinds.len()]).map_err(|e| format!("arm: {e}"))
    }

    /// The name of this CQ in the verdict.
    pub fn name(&self) -> String {
        let pace = if self.lockstep { "lockstep" } else { "racing" };
        format!("CQ {} ({:?}, {pace}, channel {})", self.index, self.traffic, self.channel)
    }
}

/// All CQs, and the violations found.
pub struct Board {
    pub tracks: Vec<Track>,
    /// Consumers must end.
    pub stop: AtomicBool,
    pub violations: AtomicU64,
    told: Mutex<Vec<String>>,
}

impl Board {
    /// Creates CQs for the given traffic on each channel. Every second CQ races.
    pub fn new(world: &World, channels: &[Arc<CompChannel>], traffic: &[Traffic]) -> Result<Board> {
        let mut tracks = Vec::new();
        for (channel, events) in channels.iter().enumerate() {
            for (n, traffic) in traffic.iter().enumerate() {
                let cq = Cq::new(&world.context, DEPTH, Some(events), 0)
                    .map_err(|e| format!("CQ: {e}"))?;
                let index = tracks.len();
                cq.set_cookie(index);
                tracks.push(Track {
                    cq,
                    traffic: *traffic,
                    lockstep: n % 2 == 0,
                    index,
                    channel,
                    posted: AtomicU64::new(0),
                    polled: AtomicU64::new(0),
                    ready: AtomicU64::new(0),
                    arms: AtomicU64::new(0),
                    events: AtomicU64::new(0),
                });
            }
        }
        Ok(Board {
            tracks,
            stop: AtomicBool::new(false),
            violations: AtomicU64::new(0),
            told: Mutex::new(Vec::new()),
        })
    }

    /// Arms every CQ for the first time, before the first post.
    pub fn arm_all(&self) -> Result<()> {
        self.tracks.iter().try_for_each(Track::arm)
    }

    /// The track of an event's CQ.
    pub fn of(&self, cq: &Cq) -> Option<&Track> {
        self.tracks.get(cq.cookie())
    }

    /// Records a violation.
    pub fn wrong(&self, what: impl FnOnce() -> String) {
        self.violations.fetch_add(1, Ordering::Relaxed);
        let mut told = self.told.lock();
        if told.len() < TOLD {
            told.push(what());
        }
    }

    /// The first violations, in words.
    pub fn told(&self) -> Vec<String> {
        self.told.lock().clone()
    }

    /// A completion was polled. The queue returns completions one at a time and in order, to any
    /// thread. So a number other than the next shows a lost, doubled or misplaced completion.
    pub fn polled(&self, track: &Track, completion: &Completion) {
        let expected = track.polled.fetch_add(1, Ordering::AcqRel);
        if completion.wr_id != expected {
            self.wrong(|| {
                format!(
                    "{}: completion {} came in the place of {expected}",
                    track.name(),
                    completion.wr_id
                )
            });
        }
    }

    /// The sum of a counter over all matching CQs.
    pub fn sum(
        &self,
        figure: impl Fn(&Track) -> &AtomicU64,
        matches: impl Fn(&Track) -> bool,
    ) -> u64 {
        self.tracks.iter().filter(|t| matches(t)).map(|t| figure(t).load(Ordering::Acquire)).sum()
    }
}
