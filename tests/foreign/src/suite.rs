//! Suites of named cases in one test binary: which of them run, on which path, and a closing line
//! for each suite.

use std::process::{ExitCode, Output};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Completion, Trial};

use crate::{Verdict, alone};

/// What the copy of the binary for [`Suite::aside`] runs.
const ASIDE: &str = "suites aside";
/// A case of at least this length is named after its suite.
const SLOW: Duration = Duration::from_secs(5);
/// Options of the test harness with a value in the next argument.
const WITH_VALUE: [&str; 6] =
    ["--test-threads", "--logfile", "--skip", "--color", "--format", "-Z"];

/// Whether the short selection is requested (`ADVERB_FOREIGN_SHORT` set and not empty).
pub fn short() -> bool {
    std::env::var_os("ADVERB_FOREIGN_SHORT").is_some_and(|v| !v.is_empty())
}

/// Chooses a value by the length of the run.
pub fn by_length<T>(full: T, short_run: T) -> T {
    if short() { short_run } else { full }
}

/// The path of packets for the whole run, if `ADVERB_PATH` sets one.
fn path_of_run() -> Option<String> {
    std::env::var("ADVERB_PATH").ok().filter(|path| !path.is_empty())
}

/// A named case.
pub struct Case {
    name: String,
    run: Box<dyn FnOnce() -> Result<Completion, String> + Send>,
    ignored: bool,
    once: bool,
}

/// A case with the path of the run.
pub fn case(name: impl Into<String>, run: impl FnOnce() -> Verdict + Send + 'static) -> Case {
    case_or_skip(name, move || run().map(|()| Completion::Completed))
}

/// Like [`case`], for a case that finds out itself whether the machine can run it.
pub fn case_or_skip(
    name: impl Into<String>,
    run: impl FnOnce() -> Result<Completion, String> + Send + 'static,
) -> Case {
    Case { name: name.into(), run: Box::new(run), ignored: false, once: false }
}

impl Case {
    /// The path of packets does not change the result, or the case sets the path itself. So a run
    /// with `ADVERB_PATH` leaves out the case.
    #[must_use]
    pub fn once(mut self) -> Self {
        self.once = true;
        self
    }

    /// Ignores the case if the machine cannot run it.
    #[must_use]
    pub fn ignored_if(mut self, ignored: bool) -> Self {
        self.ignored = ignored;
        self
    }

    fn trial(self, name: String, times: &Times) -> Trial {
        let (times, own_name, run) = (Arc::clone(times), name.clone(), self.run);
        let timed = move || {
            let since = Instant::now();
            let result = run();
            let mut times = times.lock().unwrap_or_else(|e| e.into_inner());
            times.push((since.elapsed(), own_name));
            Ok(result?)
        };
        Trial::ignorable_test(name, timed).with_ignored_flag(self.ignored)
    }
}

/// Suite and rest of a name.
fn split(name: &str) -> (&str, &str) {
    name.split_once('/').unwrap_or((name, ""))
}

/// How long each case took.
type Times = Arc<Mutex<Vec<(Duration, String)>>>;

/// Cases under a common name.
#[derive(Clone, Copy)]
pub struct Suite {
    name: &'static str,
    cases: fn() -> Vec<Case>,
    once: bool,
    alone: bool,
    aside: bool,
    before: fn() -> Verdict,
    after: fn(),
}

impl Suite {
    /// A suite. Its cases run one after the other: most programs spin, and on a small machine two
    /// pairs of them would take each other's processors.
    #[must_use]
    pub const fn new(name: &'static str, cases: fn() -> Vec<Case>) -> Self {
        Self {
            name,
            cases,
            once: false,
            alone: false,
            aside: false,
            before: || Ok(()),
            after: || (),
        }
    }

    /// All cases are [`Case::once`].
    #[must_use]
    pub const fn once(mut self) -> Self {
        self.once = true;
        self
    }

    /// Runs in new namespaces, because the cases look at the whole machine or use fixed ports.
    #[must_use]
    pub const fn alone(mut self) -> Self {
        self.alone = true;
        self
    }

    /// Runs in new namespaces while other suites run, because the cases wait most of the time. All
    /// such suites run one after the other.
    #[must_use]
    pub const fn aside(mut self) -> Self {
        self.aside = true;
        self
    }

    /// Calls a function before the first case, in the namespaces of the machine.
    #[must_use]
    pub const fn before(mut self, before: fn() -> Verdict) -> Self {
        self.before = before;
        self
    }

    /// Calls a function after the last case.
    #[must_use]
    pub const fn after(mut self, after: fn()) -> Self {
        self.after = after;
        self
    }
}

/// Arguments of the test binary: options, and words that choose cases.
struct Chosen {
    options: Arguments,
    words: Vec<String>,
}

impl Chosen {
    fn of(args: impl IntoIterator<Item = String>) -> Self {
        let mut args = args.into_iter();
        let (mut options, mut words) = (vec![args.next().unwrap_or_default()], Vec::new());
        while let Some(arg) = args.next() {
            if WITH_VALUE.contains(&&*arg) {
                options.push(arg);
                options.extend(args.next());
            } else if arg.starts_with('-') {
                options.push(arg);
            } else {
                words.push(arg);
            }
        }
        Self { options: Arguments::from_iter(options), words }
    }

    /// Whether a word chooses the case. `SUITE` and `SUITE/PART` choose cases of this suite, any
    /// other word chooses cases of all suites with this word in their names.
    fn matches(&self, suites: &[Suite], word: &str, name: &str) -> bool {
        let exact = self.options.exact;
        let ((suite, part), (own_suite, own_name)) = (split(word), split(name));
        match suites.iter().any(|known| known.name == suite) {
            _ if exact => name == word,
            true => own_suite == suite && own_name.contains(part),
            false => name.contains(word),
        }
    }

    /// The chosen cases of a suite, with their full names, and the number of all other cases.
    fn cases(&self, suites: &[Suite], suite: &Suite) -> (Vec<(String, Case)>, usize) {
        let named =
            (suite.cases)().into_iter().map(|case| (format!("{}/{}", suite.name, case.name), case));
        let all: Vec<_> = named.collect();
        let count = all.len();
        let wanted = |name: &String| {
            self.words.is_empty() || self.words.iter().any(|word| self.matches(suites, word, name))
        };
        let chosen: Vec<_> = all.into_iter().filter(|(name, _)| wanted(name)).collect();
        let rest = count - chosen.len();
        (chosen, rest)
    }

    /// The first word without a case.
    fn without_case(&self, suites: &[Suite]) -> Option<&String> {
        let names: Vec<String> = suites
            .iter()
            .flat_map(|suite| {
                (suite.cases)().into_iter().map(|case| format!("{}/{}", suite.name, case.name))
            })
            .collect();
        self.words.iter().find(|word| !names.iter().any(|name| self.matches(suites, word, name)))
    }
}

/// Runs the chosen cases of all suites. The arguments are those of a test binary; each word is
/// `SUITE`, `SUITE/PART` with a part of the names of its cases, or a part of any names.
pub fn main(suites: &[Suite]) -> ExitCode {
    let chosen = Chosen::of(std::env::args());
    if let Some(word) = chosen.without_case(suites) {
        eprintln!("no case has the name {word:?}; --list names all cases");
        return ExitCode::FAILURE;
    }
    // A time limit or Ctrl-C ends the binary without destructors. The guard ends all programs of a
    // case then.
    if !chosen.options.list
        && let Err(e) = adverb_survivor::guard(adverb_survivor::AtEnd::default())
    {
        eprintln!("programs may outlive the tests if a signal ends them: {e}");
    }
    let has_cases = |suite: &&Suite| {
        let (cases, _) = chosen.cases(suites, suite);
        cases.iter().any(|(_, case)| path_of_run().is_none() || !case.once && !suite.once)
    };
    let (aside, others): (Vec<&Suite>, Vec<&Suite>) = suites.iter().partition(|suite| suite.aside);
    let run_all = |list: &[&Suite]| {
        // Every suite runs, whatever happens to the suites before it.
        list.iter().filter(|suite| !run(&chosen, suites, suite)).map(|suite| suite.name).collect()
    };
    let failed: Vec<&str> = match alone::inside().as_deref() {
        Some(ASIDE) => run_all(&aside),
        Some(name) => {
            run_all(&suites.iter().filter(|suite| suite.name == name).collect::<Vec<_>>())
        }
        None if chosen.options.list
            || !aside.iter().any(has_cases)
            || !others.iter().any(has_cases) =>
        {
            run_all(&suites.iter().collect::<Vec<_>>())
        }
        None => match alone::again(ASIDE) {
            Some(mut again) => {
                let again = std::thread::spawn(move || again.output());
                let mut failed = run_all(&others);
                failed.extend((!finished(again.join())).then_some("those aside"));
                failed
            }
            None => run_all(&suites.iter().collect::<Vec<_>>()),
        },
    };
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    if !alone::is_alone() {
        println!("failed suites: {}", failed.join(" "));
    }
    ExitCode::from(101)
}

/// Prints the output of the suites that ran aside. Returns whether all of them passed.
fn finished(output: std::thread::Result<std::io::Result<Output>>) -> bool {
    let Ok(Ok(output)) = output else {
        println!("the suites aside did not run: {output:?}");
        return false;
    };
    for stream in [&output.stdout, &output.stderr] {
        print!("{}", String::from_utf8_lossy(stream));
    }
    output.status.success()
}

/// Runs the chosen cases of a suite. Returns whether all of them passed.
fn run(chosen: &Chosen, suites: &[Suite], suite: &Suite) -> bool {
    let (mut cases, mut rest) = chosen.cases(suites, suite);
    let mut options = chosen.options.clone();
    if options.list {
        list(&options, cases);
        return true;
    }
    if cases.is_empty() {
        return true;
    }
    if let Some(path) = path_of_run() {
        let before = cases.len();
        cases.retain(|(_, case)| !case.once && !suite.once);
        rest += before - cases.len();
        if cases.is_empty() {
            println!("suite {}: not run: no case depends on ADVERB_PATH={path}", suite.name);
            return true;
        }
    }
    if !alone::is_alone() {
        if let Err(why) = (suite.before)() {
            println!("suite {}: FAILED before its first case: {why}", suite.name);
            return false;
        }
        if (suite.alone || suite.aside)
            && let Some(mut again) = alone::again(suite.name)
        {
            return again.status().is_ok_and(|status| status.success());
        }
    }
    let (since, times) = (Instant::now(), Times::default());
    let trials = cases.into_iter().map(|(name, case)| case.trial(name, &times)).collect();
    options.test_threads.get_or_insert(1);
    let conclusion = libtest_mimic::run(&options, trials);
    (suite.after)();
    println!(
        "suite {}: {} passed, {} failed, {} ignored, {} filtered out ({} run, {} s)",
        suite.name,
        conclusion.num_passed,
        conclusion.num_failed,
        conclusion.num_ignored,
        conclusion.num_filtered_out + rest as u64,
        if short() { "short" } else { "full" },
        since.elapsed().as_secs()
    );
    let mut times = times.lock().unwrap_or_else(|e| e.into_inner());
    times.sort();
    for (time, name) in times.iter().rev().take_while(|(time, _)| *time >= SLOW) {
        println!("slow: {name}: {:.1} s", time.as_secs_f64());
    }
    !conclusion.has_failed()
}

fn list(options: &Arguments, cases: Vec<(String, Case)>) {
    let trials =
        cases.into_iter().map(|(name, case)| case.trial(name, &Times::default())).collect();
    let _ = libtest_mimic::run(options, trials);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(of: &[&str]) -> Vec<Case> {
        of.iter().map(|name| case(*name, || Ok(()))).collect()
    }

    fn chosen(line: &str) -> Vec<String> {
        let suites = [
            Suite::new("ports", || names(&["SYS-5/follows", "taken"])),
            Suite::new("pairs", || names(&["ports/several", "SYS-5/one"])),
        ];
        let chosen = Chosen::of(line.split(' ').map(str::to_string));
        suites
            .iter()
            .flat_map(|suite| chosen.cases(&suites, suite).0)
            .map(|(name, _)| name)
            .collect()
    }

    #[test]
    fn words_choose_suites_and_parts_of_names() {
        assert_eq!(chosen("me").len(), 4);
        assert_eq!(chosen("me ports"), ["ports/SYS-5/follows", "ports/taken"]);
        assert_eq!(chosen("me ports/t --test-threads 2"), ["ports/taken"]);
        assert_eq!(chosen("me SYS-5"), ["ports/SYS-5/follows", "pairs/SYS-5/one"]);
        assert_eq!(chosen("me pairs/one"), ["pairs/SYS-5/one"]);
        assert_eq!(chosen("me ports/taken several"), ["ports/taken", "pairs/ports/several"]);
        assert_eq!(chosen("me --exact ports/taken"), ["ports/taken"]);
        assert_eq!(chosen("me --exact ports").len(), 0);
        assert_eq!(chosen("me nothing").len(), 0);
    }

    #[test]
    fn a_word_without_a_case_is_found() {
        let suites = [Suite::new("ports", || names(&["taken"]))];
        let without = |line: &str| {
            let chosen = Chosen::of(line.split(' ').map(str::to_string));
            chosen.without_case(&suites).cloned()
        };
        assert_eq!(without("me ports tak"), None);
        assert_eq!(without("me ports prots").as_deref(), Some("prots"));
    }
}
