//! Two processes of one host use shared memory in one run and the network in another. The same
//! operations must give the same results, statuses and causes.
//!
//! Each case runs once on each path, in two processes of this program. One process runs the case,
//! and the other executes its orders.
#[path = "../common/mod.rs"]
mod common;
mod ended;
mod errors;
mod faulty;
mod moments;
mod one_sided;
mod order;
mod private;
mod rig;
mod talk;
mod two_sided;
mod without;

use libtest_mimic::{Arguments, Failed, Trial};
use std::process::{Command, ExitCode};
use std::time::Duration;
use talk::{CASE, Pair, ROLE};

/// The time limit of a case on one path, long enough for a busy machine.
const HANG_LIMIT: Duration = Duration::from_secs(300);

/// A case: its function and its paths.
#[derive(Clone, Copy)]
pub struct Case {
    pub name: &'static str,
    pub run: fn(&mut Pair),
    /// Run the case over the network as well. The observations must be equal.
    pub both: bool,
    /// Environment variables of the processes.
    pub env: &'static [(&'static str, &'static str)],
    /// Run the processes without the right to access the memory of other processes.
    pub bare: bool,
}

/// Lists cases for both paths by the names of their functions.
macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        pub const CASES: &[$crate::Case] = &[
            $($crate::Case { name: stringify!($name), run: $name, both: true, env: &[], bare: false }),*
        ];
    };
}
pub(crate) use cases;

/// A case for the local path only.
pub const fn local(name: &'static str, run: fn(&mut Pair)) -> Case {
    Case { name, run, both: false, env: &[], bare: false }
}

fn main() -> ExitCode {
    let cases: Vec<Case> = [
        two_sided::CASES,
        one_sided::CASES,
        order::CASES,
        private::CASES,
        moments::CASES,
        errors::CASES,
        ended::CASES,
        without::CASES,
        faulty::CASES,
    ]
    .concat();
    match std::env::var(ROLE).as_deref() {
        Ok("target") => {
            log();
            without::hide();
            talk::obey();
            return ExitCode::SUCCESS;
        }
        // The program that a process executes in the test with `exec`.
        Ok("other") => {
            println!("another program");
            let _ = std::io::stdin().lines().next();
            return ExitCode::SUCCESS;
        }
        Ok("meet") => {
            log();
            ended::meet();
            return ExitCode::SUCCESS;
        }
        Ok("case") => {
            log();
            let name = std::env::var(CASE).expect("a case");
            let case = cases.iter().find(|case| case.name == name).expect("a case of this name");
            without::hide();
            let mut pair = Pair::new();
            (case.run)(&mut pair);
            pair.finish().iter().for_each(|line| println!("{line}"));
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    let args = Arguments::from_args();
    let trials = cases.into_iter().map(|case| Trial::test(case.name, move || both(case))).collect();
    libtest_mimic::run(&args, trials).exit_code()
}

fn both(case: Case) -> Result<(), Failed> {
    let local = play(case, "local")?;
    if !case.both {
        return Ok(());
    }
    let wire = play(case, "wire")?;
    if local == wire {
        return Ok(());
    }
    let differ = local.lines().zip(wire.lines()).find(|(l, w)| l != w);
    Err(format!("the paths differ: {differ:?}\nlocal:\n{local}\nwire:\n{wire}").into())
}

/// Runs a case on a path and returns its observations.
fn play(case: Case, path: &str) -> Result<String, Failed> {
    let me = std::env::current_exe()?;
    // Only root has the capability that is removed here. The removal from the bounding set keeps an
    // executed program from getting the capability back.
    let mut command = if case.bare && nix::unistd::geteuid().is_root() {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"]).arg(me);
        command
    } else {
        Command::new(me)
    };
    command
        .env(ROLE, "case")
        .env(CASE, case.name)
        .env("ADVERB_PATH", path)
        .env("RUST_BACKTRACE", "0");
    let (status, [said, logged]) =
        common::child::output(command.envs(case.env.iter().copied()), HANG_LIMIT);
    match status {
        Some(status) if status.success() => Ok(said),
        Some(status) => Err(format!("{path}: {status}\n{said}{logged}").into()),
        None => Err(format!("{path}: it hangs\n{said}{logged}").into()),
    }
}

/// Writes the log to standard error.
fn log() {
    struct Stderr;
    impl log::Log for Stderr {
        fn enabled(&self, _: &log::Metadata<'_>) -> bool {
            true
        }
        fn log(&self, record: &log::Record<'_>) {
            let (level, pid) = (record.level().as_str().to_lowercase(), std::process::id());
            without::heard(record);
            eprintln!("{pid} {level}: {}", record.args());
        }
        fn flush(&self) {}
    }
    log::set_logger(&Stderr).expect("the first");
    log::set_max_level(log::LevelFilter::Info);
}
