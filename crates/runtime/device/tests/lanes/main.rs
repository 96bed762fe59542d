//! Two processes of one host, over shared memory and over the network: the same operations with the
//! same results, statuses and reasons.
//!
//! Each case runs once on either path, in two processes that are this program again: one plays the
//! case, the other does as it says.
mod errors;
mod gone;
mod moments;
mod one_sided;
mod order;
mod private;
mod rig;
mod talk;
mod two_sided;
mod weather;
mod without;

use libtest_mimic::{Arguments, Failed, Trial};
use std::io::Read;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use talk::{CASE, Pair, ROLE};

/// How long a case may take on one path, on a machine that has other things to do.
const HANG_LIMIT: Duration = Duration::from_secs(300);

/// A case: what it does, and on which paths.
#[derive(Clone, Copy)]
pub struct Case {
    pub name: &'static str,
    pub run: fn(&mut Pair),
    /// Also over the network, with the same to be seen.
    pub both: bool,
    /// Variables of the processes.
    pub env: &'static [(&'static str, &'static str)],
    /// Without the right to look into other processes.
    pub bare: bool,
}

/// Cases on both paths, by the names of their functions.
macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        pub const CASES: &[$crate::Case] = &[
            $($crate::Case { name: stringify!($name), run: $name, both: true, env: &[], bare: false }),*
        ];
    };
}
pub(crate) use cases;

/// A case on the local path alone.
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
        gone::CASES,
        without::CASES,
        weather::CASES,
    ]
    .concat();
    match std::env::var(ROLE).as_deref() {
        Ok("target") => {
            log();
            without::hide();
            talk::obey();
            return ExitCode::SUCCESS;
        }
        // What a process executes when it wants no device any more.
        Ok("other") => {
            println!("another program");
            let _ = std::io::stdin().lines().next();
            return ExitCode::SUCCESS;
        }
        Ok("meet") => {
            log();
            gone::meet();
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

/// Plays a case on a path; what it has seen.
fn play(case: Case, path: &str) -> Result<String, Failed> {
    let me = std::env::current_exe()?;
    // Only root has a right to lose; it is not given back to what is executed.
    let mut command = if case.bare && nix::unistd::geteuid().is_root() {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"]).arg(me);
        command
    } else {
        Command::new(me)
    };
    command.env(ROLE, "case").env(CASE, case.name).env("ADVERB_PATH", path).env("RUST_BACKTRACE", "0");
    command.envs(case.env.iter().copied()).stdin(Stdio::null());
    let (mut errors, writer) = std::io::pipe()?;
    let mut child = command.stdout(Stdio::piped()).stderr(writer).spawn()?;
    drop(command);
    let mut out = child.stdout.take().expect("a pipe");
    let said = std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = out.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    });
    let logged = std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = errors.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    });
    let end = Instant::now() + HANG_LIMIT;
    let status = loop {
        match child.try_wait()? {
            Some(status) => break Some(status),
            None if Instant::now() > end => {
                child.kill()?;
                child.wait()?;
                break None;
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    let (said, logged) = (said.join().expect("a reader"), logged.join().expect("a reader"));
    match status {
        Some(status) if status.success() => Ok(said),
        Some(status) => Err(format!("{path}: {status}\n{said}{logged}").into()),
        None => Err(format!("{path}: it hangs\n{said}{logged}").into()),
    }
}

/// Sends what is logged to standard error.
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
