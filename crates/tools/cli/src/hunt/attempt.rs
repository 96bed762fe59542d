//! One run of the program, and how it ended.
use adverb_choice::{Entry, Site};
use nix::sys::signal::Signal;
use nix::sys::wait::WaitStatus;
use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

/// Nothing has to move for so long before it counts.
const SILENCE: Duration = Duration::from_secs(1);
/// At least so long may a run take.
const WHOLE: Duration = Duration::from_secs(8);
/// Said by the device when completions lie in a queue that no event will speak of (EXT-4).
const LOST: &str = "lost wake-up: ";

/// How long a run may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Without a completion or a post.
    pub silence: Duration,
    /// In all.
    pub whole: Duration,
    /// Does the server stay when its client has ended? Not known in the first run.
    pub stays: Option<bool>,
}

impl Limits {
    /// Of a program of which nothing is known.
    pub fn of_first(time: Duration) -> Self {
        Limits { silence: time, whole: time, stays: None }
    }

    /// By how it ran when nothing was chosen.
    pub fn after(first: &Attempt) -> Self {
        Limits {
            silence: first.silence * 4 + SILENCE,
            whole: first.took * 10 + WHOLE,
            stays: Some(first.stayed),
        }
    }
}

/// Whom something is said of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Who {
    /// The only command.
    #[default]
    Program,
    /// The first of a pair.
    Server,
    /// The second of a pair.
    Client,
    /// Both of a pair.
    Both,
}

impl Who {
    /// What was asked for it to run.
    pub fn command(self) -> &'static str {
        match self {
            Who::Server => "the server's command",
            Who::Client => "the client's command",
            _ => "the command",
        }
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Who::Program => "the program",
            Who::Server => "the server",
            Who::Client => "the client",
            Who::Both => "the server and the client",
        })
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As it should.
    Fine,
    /// The program, or what was to start it, could not be run.
    NotStarted(i32),
    /// With another exit status than 0.
    Status(i32),
    /// By a signal.
    Crash(i32),
    /// Not at all, and why that is known.
    Hang(String),
    /// As it should, but the device has reported a mistake.
    Report(String),
}

impl Verdict {
    pub fn is_failure(&self) -> bool {
        !matches!(self, Verdict::Fine | Verdict::NotStarted(_))
    }

    /// By how a command ended.
    pub fn of(end: WaitStatus) -> Self {
        match end {
            WaitStatus::Exited(_, 0) => Verdict::Fine,
            WaitStatus::Exited(_, code @ 125..=127) => Verdict::NotStarted(code),
            WaitStatus::Exited(_, code) => Verdict::Status(code),
            WaitStatus::Signaled(_, signal, _) => Verdict::Crash(signal as i32),
            _ => Verdict::Status(-1),
        }
    }

    /// A word that stays, for what reads results.
    pub fn code(&self) -> &'static str {
        match self {
            Verdict::Fine | Verdict::NotStarted(_) => "none",
            Verdict::Status(_) => "status",
            Verdict::Crash(_) => "crash",
            Verdict::Hang(_) => "hang",
            Verdict::Report(_) => "report",
        }
    }
}

/// A place at which there is a choice, as a run met it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Met {
    pub site: Site,
    pub object: u64,
    /// The place in words.
    pub words: String,
}

/// What one of the commands wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    pub who: Who,
    pub text: String,
}

/// A run that has ended.
#[derive(Clone, Debug)]
pub struct Attempt {
    pub verdict: Verdict,
    /// Whose verdict it is.
    pub who: Who,
    pub sites: Vec<Met>,
    /// What was chosen, in this order.
    pub made: Vec<Entry>,
    pub outputs: Vec<Output>,
    pub took: Duration,
    /// The longest time without a completion or a post.
    pub silence: Duration,
    /// The server did not end with its client.
    pub stayed: bool,
}

impl Attempt {
    /// The verdict as a sentence.
    pub fn what(&self) -> String {
        let who = self.who;
        match &self.verdict {
            Verdict::Fine => format!("{who} ends as it should"),
            Verdict::NotStarted(status) => format!("{who} cannot be run (status {status})"),
            Verdict::Status(status) => format!("{who} ends with status {status}"),
            Verdict::Crash(signal) => match Signal::try_from(*signal) {
                Ok(name) => format!("{who} dies of {name}"),
                Err(_) => format!("{who} dies of signal {signal}"),
            },
            Verdict::Hang(why) if who == Who::Both => format!("{who} hang: {why}"),
            Verdict::Hang(why) => format!("{who} hangs: {why}"),
            Verdict::Report(text) => format!("{who} goes on, by luck: {text}"),
        }
    }

    /// Whose output has the device's report of a lost wake-up, and the report.
    pub fn lost(&self) -> Option<(Who, &str)> {
        lost(&self.outputs)
    }
}

/// Whose output has the device's report of a lost wake-up, and the report.
pub fn lost(outputs: &[Output]) -> Option<(Who, &str)> {
    outputs.iter().find_map(|output| {
        let line = output.text.lines().find_map(|line| line.find(LOST).map(|at| &line[at..]));
        line.map(|line| (output.who, line))
    })
}

/// What the device wrote: the places met, and what was chosen.
pub fn parse(log: &str) -> (Vec<Met>, Vec<Entry>) {
    let (mut sites, mut made) = (Vec::new(), Vec::new());
    let mut known = HashMap::new();
    for line in log.lines() {
        match line.split_once(' ') {
            Some(("made", entry)) => made.extend(entry.parse::<Entry>()),
            Some(("site", rest)) => {
                let mut words = rest.splitn(3, ' ');
                let site = words.next().and_then(|s| s.parse::<Site>().ok());
                let object = words.next().and_then(|n| n.parse::<u64>().ok());
                let (Some(site), Some(object)) = (site, object) else { continue };
                if known.insert((site.clone(), object), ()).is_none() {
                    let words = words.next().unwrap_or(&site.place).to_owned();
                    sites.push(Met { site, object, words });
                }
            }
            _ => {}
        }
    }
    (sites, made)
}
