//! A run of the program, and the verdict.
pub use crate::examination::LOST;
use adverb_check::{Told, ToldCall, Weight};
use adverb_choice::{Choice, ChoiceEntry, RunPath, Site};
use nix::sys::signal::Signal;
use nix::sys::wait::WaitStatus;
use std::collections::HashSet;
use std::fmt;
use std::time::{Duration, Instant};

/// Minimum time without progress before a run counts as silent.
pub const SILENCE: Duration = Duration::from_secs(1);
/// The first run may be without progress for this time.
const SILENCE_OF_FIRST: Duration = Duration::from_secs(5);
/// Minimum of the time limit of a run.
const WHOLE: Duration = Duration::from_secs(8);

/// How long a run may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Limit of the time without a completion or a post.
    pub silence: Duration,
    /// Limit of the whole run, without the time in which a thread waits for a processor.
    pub whole: Duration,
    /// The end of the search. A run that is not over by then is given up, and has no verdict.
    pub until: Option<Instant>,
    /// Does the server keep running after the end of its client? Not known in the first run.
    pub stays: Option<bool>,
    /// The log of the run names all places in words, as in a run without choices.
    pub words: bool,
}

impl Limits {
    /// Limits for the first run, when nothing is known of the program.
    pub fn of_first(time: Duration) -> Self {
        Limits {
            silence: time.min(SILENCE_OF_FIRST),
            whole: time,
            until: None,
            stays: None,
            words: true,
        }
    }

    /// Is the search over, or has a signal asked for its end?
    pub fn are_over(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until) || adverb_survivor::is_interrupted()
    }

    /// Limits derived from the run without any choices.
    pub fn after(first: &Attempt) -> Self {
        Limits {
            silence: first.silence * 4 + SILENCE,
            whole: first.took * 10 + WHOLE,
            until: None,
            stays: Some(first.stayed),
            words: false,
        }
    }
}

/// The command of which a statement is made.
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
    /// The words for this command's command line.
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    /// The run ended as it should.
    #[default]
    Fine,
    /// The program, or the command that starts the program, could not be run.
    NotStarted(i32),
    /// The time of the hunt was over before the run, or a signal asked for the end of the hunt.
    GivenUp,
    /// The program ended with an exit status other than 0.
    Status(i32),
    /// The program died of a signal.
    Crash(i32),
    /// The program did not end. The text says how this is known.
    Hang(String),
    /// The program ended as it should, but the device reported a mistake.
    Report(String),
}

impl Verdict {
    pub fn is_failure(&self) -> bool {
        !matches!(self, Verdict::Fine | Verdict::NotStarted(_) | Verdict::GivenUp)
    }

    /// The verdict together with the reports of the processes: a mistake is a failure even if the
    /// program ends as it should.
    pub fn with(self, reports: &[Told]) -> Self {
        let mistake = reports.first().filter(|told| told.code.weight() == Weight::Mistake);
        match mistake {
            Some(told) if self == Verdict::Fine => Verdict::Report(told.text.clone()),
            _ => self,
        }
    }

    /// The verdict for a command's wait status.
    pub fn of(end: WaitStatus) -> Self {
        match end {
            WaitStatus::Exited(_, 0) => Verdict::Fine,
            WaitStatus::Exited(_, code @ 125..=127) => Verdict::NotStarted(code),
            WaitStatus::Exited(_, code) => Verdict::Status(code),
            WaitStatus::Signaled(_, signal, _) => Verdict::Crash(signal as i32),
            _ => Verdict::Status(-1),
        }
    }

    /// A stable word for readers of results.
    pub fn code(&self) -> &'static str {
        match self {
            Verdict::Fine | Verdict::NotStarted(_) | Verdict::GivenUp => "none",
            Verdict::Status(_) => "status",
            Verdict::Crash(_) => "crash",
            Verdict::Hang(_) => "hang",
            Verdict::Report(_) => "report",
        }
    }
}

/// A place at which the device can choose, as a run met it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Met {
    pub site: Site,
    pub object: u64,
    /// The place in words.
    pub words: String,
}

/// The output of one command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    pub who: Who,
    pub text: String,
}

/// A run that has ended.
#[derive(Clone, Debug, Default)]
pub struct Attempt {
    pub verdict: Verdict,
    /// The command that the verdict is about.
    pub who: Who,
    pub sites: Vec<Met>,
    /// The choices that were made, in this order.
    pub made: Vec<ChoiceEntry>,
    pub path: RunPath,
    pub outputs: Vec<Output>,
    /// Reports of the processes, the most telling first.
    pub reports: Vec<Told>,
    /// The last calls of the processes before a failure.
    pub picture: Vec<ToldCall>,
    pub took: Duration,
    /// The longest time without a completion or a post.
    pub silence: Duration,
    /// The server kept running after the end of its client.
    pub stayed: bool,
    /// What happened after a lost message of UC or UD. This is no failure.
    pub after_loss: Option<String>,
}

/// Signals that show a mistake, whatever happened before.
const FAULTS: [Signal; 4] = [Signal::SIGSEGV, Signal::SIGBUS, Signal::SIGFPE, Signal::SIGILL];
/// A shell ends with this status plus the number of the signal that ended its command.
const OF_SIGNAL: i32 = 128;

impl Attempt {
    /// After some choices ([`Choice::may_end`]) a right program may end with a failure, and its
    /// peer may wait without end. Then only a fault, a lost wake-up, or the hang of the only
    /// process, `hangs_alone`, is a failure. A lost message explains any hang.
    pub fn excused(mut self, hangs_alone: bool) -> Self {
        let has_fault = |signal: i32| FAULTS.iter().any(|fault| *fault as i32 == signal);
        let is_lost = self.made.iter().any(|entry| entry.choice == Choice::Lose);
        let is_excused = match self.verdict {
            _ if !self.made.iter().any(|entry| entry.choice.may_end()) => false,
            Verdict::Status(status) => !has_fault(status - OF_SIGNAL),
            Verdict::Crash(signal) => !has_fault(signal),
            Verdict::Hang(_) => self.lost().is_none() && (is_lost || !hangs_alone),
            _ => false,
        };
        if is_excused {
            // What is left at such an end is no risk.
            self.reports.retain(|told| told.code.weight() == Weight::Mistake);
            self.after_loss = is_lost.then(|| self.what());
            self.verdict = Verdict::Fine;
        }
        self
    }

    /// The verdict as a sentence.
    pub fn what(&self) -> String {
        let who = self.who;
        match &self.verdict {
            Verdict::Fine => format!("{who} ends as expected"),
            Verdict::GivenUp => format!("{who} has not ended in time"),
            Verdict::NotStarted(status) => format!("{who} cannot be run (status {status})"),
            Verdict::Status(status) => format!("{who} ends with status {status}"),
            Verdict::Crash(signal) => match Signal::try_from(*signal) {
                Ok(name) => format!("{who} is killed by {name}"),
                Err(_) => format!("{who} is killed by signal {signal}"),
            },
            Verdict::Hang(why) if who == Who::Both => format!("{who} hang: {why}"),
            Verdict::Hang(why) => format!("{who} hangs: {why}"),
            Verdict::Report(text) => format!("{who} continues, by luck: {text}"),
        }
    }

    /// The device's report of a lost wake-up, and the command that printed the report.
    pub fn lost(&self) -> Option<(Who, &str)> {
        lost(&self.outputs)
    }
}

/// The device's report of a lost wake-up, and the command that printed the report.
pub fn lost(outputs: &[Output]) -> Option<(Who, &str)> {
    outputs.iter().find_map(|output| {
        let line = output.text.lines().find_map(|line| line.find(LOST).map(|at| &line[at..]));
        line.map(|line| (output.who, line))
    })
}

/// Parses the device's log: the places met, the choices made, and the number of visits of each
/// place, as a binary logarithm. The log tells no more of the run.
pub fn parse(log: &str) -> Attempt {
    let (mut run, mut known) = (Attempt::default(), HashSet::new());
    for line in log.lines() {
        let (kind, rest) = line.split_once(' ').unwrap_or_default();
        if kind == "made" {
            run.made.extend(rest.parse::<ChoiceEntry>());
            continue;
        }
        let mut words = rest.splitn(3, ' ');
        let site = words.next().and_then(|s| s.parse::<Site>().ok());
        let number = words.next().and_then(|n| n.parse::<u64>().ok());
        let (Some(site), Some(number)) = (site, number) else { continue };
        let visits = run.path.visits.entry(site.clone()).or_default();
        if kind == "count" {
            *visits = (*visits).max(number as u32);
        } else if kind == "site" && known.insert((site.clone(), number)) {
            let words = words.next().unwrap_or(&site.place).to_owned();
            run.sites.push(Met { site, object: number, words });
        }
    }
    run
}
