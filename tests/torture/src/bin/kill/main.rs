//! Kills processes one after the other during their traffic with a survivor, and checks the
//! survivor.
//!
//! `kill [--rounds N] [--seed N]`. In each round a new process connects to this process over
//! several queue pairs. Both send, write, read and perform atomics in each other's memory as fast
//! as they can. Some threads poll, and some sleep. At a moment determined by the seed the other
//! process is killed (SIGKILL). This process has to notice, to get one completion for each request,
//! and to find every result right. No byte outside the peer's targets may change. The survivor also
//! keeps exchanging messages with a witness process that lives all the while. At the end nothing
//! may be left of the dead processes. The same seed gives the same moments, but not the same
//! scheduling.
#![forbid(unsafe_code)]

mod area;
mod end;
mod left;
mod traffic;
mod witness;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use adverb_bench::Result;
use adverb_bench::pair;
use adverb_bench::world::World;
use adverb_foreign::alone::be_alone;
use adverb_torture::Dice;
use clap::Parser;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use end::RoundObjects;
use left::Own;
use traffic::Tally;
use witness::Witness;

/// A refusal of the device or the system, in words.
fn failed<E: std::fmt::Display>(what: &str) -> impl Fn(E) -> String + '_ {
    move |e| format!("{what}: {e}")
}

/// Output of a process after the connection.
const RUNNING: &str = "running";

/// Rounds until the survivor's own resources should no longer grow.
const WARM: usize = 10;

/// Processes killed in the middle of what they do, one after the other; the one they did it with
/// survives them
#[derive(Parser)]
struct Options {
    /// Processes to kill
    #[arg(long, default_value_t = 20)]
    rounds: usize,
    /// Decides the moments
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> ExitCode {
    let result = match pair::child_args().as_deref() {
        // The first argument is the processor.
        Some(args) => live(args.get(1..).unwrap_or_default()),
        None => {
            let options = Options::parse();
            // The final check counts files and sockets, so no other process of Adverb may add any.
            be_alone();
            survive(options.rounds, options.seed)
        }
    };
    pair::ended("kill", result)
}

/// Runs a child process: a process to be killed, or the witness.
fn live(args: &[String]) -> Result<()> {
    match args {
        [role] if role == "witness" => witness::live(),
        [seed] => {
            let world = World::open(4096)?;
            let end = RoundObjects::new(&world, seed.parse().map_err(|e| format!("{seed}: {e}"))?)?;
            println!("{}", end.line());
            let mut line = String::new();
            std::io::stdin().read_line(&mut line).map_err(|e| format!("no orders: {e}"))?;
            // Ends when it is killed, or with its parent.
            end.run(&world, &line, || println!("{RUNNING}")).map(drop)
        }
        _ => Err(format!("no such child: {args:?}")),
    }
}

/// Result of a round.
#[derive(Default)]
struct Round {
    tally: Tally,
    /// There was traffic, or an attempt at traffic.
    begun: bool,
    /// The socket of the other process.
    socket: Option<u64>,
}

fn round(world: &World, dice: &mut Dice) -> Result<Round> {
    let (mine, theirs, patience) = (dice.roll(u64::MAX), dice.roll(u64::MAX), moment(dice));
    let end = RoundObjects::new(world, mine)?;
    let mut other = pair::talk(None, &[theirs.to_string()])?;
    // Now and then the other process is killed during the set-up.
    let early = dice.roll(8) == 0;
    let line = if early { String::new() } else { other.line()? };
    let mut done = Round::default();
    if let Some(qpn) = line.split(' ').nth(3).and_then(|n| n.parse().ok()) {
        done.socket = left::socket_of(qpn)?;
        other.say(&end.line())?;
        done.begun = true;
    }
    let connecting = dice.roll(4) == 0;
    let killer = std::thread::spawn(move || {
        if !early && !connecting && other.line()? != RUNNING {
            return Err("the other process ended by itself".to_string());
        }
        std::thread::sleep(patience);
        let pid = Pid::from_raw(other.pid().cast_signed());
        kill(pid, Signal::SIGKILL).map_err(|e| format!("kill {pid}: {e}"))?;
        match other.end() {
            Err(e) if e.contains("signal: 9") => Ok(()),
            ended => Err(format!("the other process ended otherwise: {ended:?}")),
        }
    });
    let mut peer = 0;
    if done.begun {
        let who;
        (who, done.tally) = end.run(world, &line, || ())?;
        peer = who.id;
    }
    killer.join().map_err(|_| "the killer panicked")??;
    end.end(peer)?;
    Ok(done)
}

/// Delay of the kill: at once, or later.
fn moment(dice: &mut Dice) -> Duration {
    let most = [500, 10_000, 150_000][dice.roll(3) as usize];
    Duration::from_micros(dice.roll(most))
}

fn survive(rounds: usize, seed: u64) -> Result<()> {
    let (start, files) = (Instant::now(), left::files());
    let world = World::open(4096)?;
    let mut witness = Witness::new()?;
    let mut dice = Dice(seed);
    let (mut sum, mut begun, mut warm, mut dead) = (Tally::default(), 0, None, Vec::new());
    for n in 0..rounds {
        let said = |what: &str, e| format!("seed {seed}, round {n}: {what}{e}");
        let done = round(&world, &mut dice).map_err(|e| said("", e))?;
        sum += done.tally;
        begun += usize::from(done.begun);
        dead.extend(done.socket);
        witness.exchange(n as u64).map_err(|e| said("the witness: ", e))?;
        if n + 1 == WARM.min(rounds) {
            warm = Some(Own::settled(None)?);
        }
    }
    left::gone(&dead)?;
    if let Some(file) = left::files().difference(&files).next() {
        return Err(format!("/dev/shm/{file} is left"));
    }
    if let Some(warm) = warm {
        let now = Own::settled(Some(warm.descriptors()))?;
        println!("after {} rounds: {warm}\nafter {rounds} rounds: {now}", WARM.min(rounds));
        now.compare(warm, rounds)?;
    }
    println!(
        "killed: {rounds} processes (seed {seed}), {begun} of them in mid-traffic; {} results right; of the survivor's queue \
         pairs {} failed at once, {} by time-out; {:.0} s",
        sum.good,
        sum.gone,
        sum.silent,
        start.elapsed().as_secs_f64()
    );
    Ok(())
}
