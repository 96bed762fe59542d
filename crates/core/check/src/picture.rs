//! The picture of a failure: the last calls of each thread and on each queue.
//!
//! Repeated calls with the same result are one entry, so a thread that polls keeps its earlier
//! calls.
use crate::{CodeAddress, Source};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::hash::Hash;
use std::str::FromStr;

/// Calls kept of each thread, and on each queue.
const KEPT: usize = 10;
/// Most threads, and most queues, of which calls are kept.
const MOST: usize = 64;

/// The result of a wait for an event that did not come begins with these words. The limit of the
/// wait follows.
pub const NOTHING_WITHIN: &str = "nothing within ";

/// A call of the program, or a choice of a hunt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastCall {
    /// The end of the call: nanoseconds of the machine's monotonic clock.
    pub at: u64,
    /// The number of the thread (`gettid`).
    pub thread: i32,
    /// The queue, if the call has one.
    pub queue: Option<Source>,
    /// The name of the call.
    pub call: Cow<'static, str>,
    /// The place of the call; 0 if unknown.
    pub place: CodeAddress,
    /// The result in words.
    pub result: Cow<'static, str>,
    /// How often the thread made this call in a row, with this result.
    pub times: u64,
}

impl PastCall {
    fn is_like(&self, other: &PastCall) -> bool {
        (self.queue, self.place) == (other.queue, other.place)
            && self.call == other.call
            && self.result == other.result
    }
}

/// The last calls of each thread and on each queue, by number.
#[derive(Debug, Default)]
pub(crate) struct Picture {
    made: u64,
    /// With the number of lists that have the call.
    calls: BTreeMap<u64, (PastCall, u8)>,
    threads: HashMap<i32, VecDeque<u64>>,
    queues: HashMap<Source, VecDeque<u64>>,
}

impl Picture {
    pub(crate) fn add(&mut self, call: PastCall) {
        let last = self.threads.get(&call.thread).and_then(|of| of.back());
        if let Some((last, _)) = last.and_then(|n| self.calls.get_mut(n))
            && last.is_like(&call)
        {
            last.at = call.at;
            last.times += call.times;
            return;
        }
        self.made += 1;
        let mut lists = 1;
        let mut removed = push(&mut self.threads, call.thread, self.made);
        if let Some(queue) = call.queue {
            lists += 1;
            removed.extend(push(&mut self.queues, queue, self.made));
        }
        self.calls.insert(self.made, (call, lists));
        for n in removed {
            if let Some((_, lists)) = self.calls.get_mut(&n) {
                *lists -= 1;
                if *lists == 0 {
                    self.calls.remove(&n);
                }
            }
        }
    }

    /// In the order of time.
    pub(crate) fn all(&self) -> Vec<PastCall> {
        let mut all: Vec<_> = self.calls.values().map(|(call, _)| call.clone()).collect();
        all.sort_by_key(|call| call.at);
        all
    }

    /// The last call of all threads, if it was a wait that found nothing.
    pub(crate) fn wait_over(&self) -> Option<&PastCall> {
        let last = self.calls.values().map(|(call, _)| call).max_by_key(|call| call.at)?;
        Some(last).filter(|call| call.result.starts_with(NOTHING_WITHIN))
    }

    /// The last call of a thread.
    pub(crate) fn last(&self, thread: i32) -> Option<&PastCall> {
        let last = self.threads.get(&thread)?.back()?;
        self.calls.get(last).map(|(call, _)| call)
    }
}

/// Adds a number to a list. Returns the numbers that leave the lists.
fn push<K: Copy + Eq + Hash>(
    lists: &mut HashMap<K, VecDeque<u64>>,
    key: K,
    new: u64,
) -> VecDeque<u64> {
    let list = lists.entry(key).or_default();
    list.push_back(new);
    if list.len() > KEPT {
        return list.pop_front().into_iter().collect();
    }
    if lists.len() <= MOST {
        return VecDeque::new();
    }
    let oldest = lists.iter().min_by_key(|(_, list)| list.back()).map(|(key, _)| *key);
    oldest.and_then(|key| lists.remove(&key)).unwrap_or_default()
}

/// A call of a process as a line of text, for a process that collects the calls of several
/// processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToldCall {
    /// Process id.
    pub process: u32,
    /// As in [`PastCall`].
    pub at: u64,
    /// See `at`.
    pub times: u64,
    /// The thread, in words.
    pub thread: String,
    /// The queue, in words; empty for none.
    pub queue: String,
    /// The name of the call.
    pub call: String,
    /// The place as text.
    pub place: String,
    /// The result in words.
    pub result: String,
}

/// The first word of the line.
const FIRST: &str = "call";

/// One line, with fields separated by tabs.
impl fmt::Display for ToldCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{FIRST}\t{}\t{}\t{}", self.process, self.at, self.times)?;
        [&self.thread, &self.queue, &self.call, &self.place, &self.result]
            .into_iter()
            .try_for_each(|text| write!(f, "\t{}", text.replace(char::is_control, " ")))
    }
}

impl FromStr for ToldCall {
    type Err = ();
    fn from_str(line: &str) -> Result<Self, ()> {
        let mut words = line.split('\t');
        let mut next = || words.next().ok_or(());
        if next()? != FIRST {
            return Err(());
        }
        Ok(ToldCall {
            process: next()?.parse().map_err(drop)?,
            at: next()?.parse().map_err(drop)?,
            times: next()?.parse().map_err(drop)?,
            thread: next()?.to_owned(),
            queue: next()?.to_owned(),
            call: next()?.to_owned(),
            place: next()?.to_owned(),
            result: next()?.to_owned(),
        })
    }
}
