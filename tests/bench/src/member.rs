//! Processes with many queue pairs, controlled by orders. An order is a line of text, and so is the
//! answer.

use std::collections::VecDeque;
use std::fmt::Display;
use std::io::BufRead;
use std::str::FromStr;
use std::time::{Duration, Instant};

use adverb_device::engine::wr::Remote;

use crate::Result;
use crate::crowd::{Crowd, Event};
use crate::pair::{self, Other};
use crate::series::Series;

/// Round trips, or writes, timed together: long enough for the clock.
const BATCH: usize = 64;
/// The first word of an answer about a failure.
const FAILED: &str = "failed:";

/// A member, seen from the process that gives the orders. Dropping this value kills the process.
pub struct Member {
    other: Other,
}

/// Numbers as the words of a line.
#[must_use]
pub fn line_of<T: Display>(numbers: &[T]) -> String {
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

/// The numbers of a line.
///
/// # Errors
/// A word other than a number.
pub fn numbers<T: FromStr>(line: &str) -> Result<Vec<T>> {
    let number = |w: &str| w.parse().map_err(|_| format!("{w:?} is no number"));
    line.split_whitespace().map(number).collect()
}

impl Member {
    /// Starts a member on a processor of its own, or unpinned.
    ///
    /// # Errors
    /// The process cannot be started.
    pub fn start(cpu: Option<usize>) -> Result<Self> {
        Ok(Self { other: pair::talk(cpu, &[])? })
    }

    /// The member's process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.other.pid()
    }

    /// Gives an order; a call of [`Member::answer`] must follow.
    ///
    /// # Errors
    /// The process has ended.
    pub fn order(&mut self, order: &str) -> Result<()> {
        self.other.say(order)
    }

    /// The answer to the last order.
    ///
    /// # Errors
    /// The failure of the order, or the end of the process.
    pub fn answer(&mut self) -> Result<String> {
        let line = self.other.line()?;
        let (first, rest) = line.split_once(' ').unwrap_or((&line, ""));
        match first {
            "ok" => Ok(rest.to_string()),
            FAILED => Err(format!("process {}: {rest}", self.pid())),
            _ => Err(format!("process {} has gone: {line:?}", self.pid())),
        }
    }

    /// Gives an order and returns the answer.
    ///
    /// # Errors
    /// As [`Member::answer`].
    pub fn ask(&mut self, order: &str) -> Result<String> {
        self.order(order)?;
        self.answer()
    }
}

/// Gives the same order to all members and returns the answers.
///
/// # Errors
/// All failures, because a failure in one process may only be the result of a failure in another.
pub fn ask_all(members: &mut [Member], order: &str) -> Result<Vec<String>> {
    members.iter_mut().try_for_each(|m| m.order(order))?;
    let (mut answers, mut failures) = (Vec::new(), Vec::new());
    for member in members {
        match member.answer() {
            Ok(answer) => answers.push(answer),
            Err(why) => failures.push(why),
        }
    }
    if failures.is_empty() { Ok(answers) } else { Err(failures.join("; ")) }
}

/// Runs a member until the end of its standard input, which carries the orders. `args` are the
/// arguments after [`pair::CHILD`].
///
/// # Errors
/// The process cannot be pinned, or its input cannot be read.
pub fn live(args: &[String]) -> Result<()> {
    match args {
        [cpu] if cpu == pair::ANY => {}
        [cpu] => pair::pin(cpu.parse().map_err(|e| format!("{cpu}: {e}"))?)?,
        _ => return Err(format!("no such child: {args:?}")),
    }
    let mut obedient = Obedient::default();
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|e| format!("orders: {e}"))?;
        let (order, rest) = line.split_once(' ').unwrap_or((&line, ""));
        match obedient.obey(order, rest) {
            Ok(answer) => println!("ok {answer}"),
            Err(why) => println!("{FAILED} {order}: {}", why.replace('\n', " ")),
        }
    }
    Ok(())
}

/// The state of a member in the member's process.
#[derive(Default)]
struct Obedient {
    crowd: Option<Crowd>,
    /// The other end's words, open for writes.
    area: Option<Remote>,
}

impl Obedient {
    fn obey(&mut self, order: &str, rest: &str) -> Result<String> {
        let mut words: VecDeque<u64> = numbers(rest)?.into();
        let mut next = || words.pop_front().ok_or_else(|| "a number is missing".to_string());
        if order == "open" {
            self.crowd = Some(Crowd::open(next()? as usize, next()? as usize)?);
            return Ok(String::new());
        }
        let crowd = self.crowd.as_mut().ok_or("nothing is open")?;
        match order {
            "cq" => crowd.make_cq().map(|()| String::new()),
            "make" => crowd.make(next()? as usize).map(|numbers| line_of(&numbers)),
            "connect" => crowd.connect(&numbers(rest)?).map(|()| String::new()),
            "exchange" => crowd.exchange(next()?, next()? as usize).map(|n| n.to_string()),
            "sleep" => crowd.sleep(Duration::from_millis(next()?)).map(|n| n.to_string()),
            "echo" => echo(crowd).map(|n| n.to_string()),
            "ping" => ping(crowd, next()? as usize, Duration::from_millis(next()?)),
            "area" => Ok(line_of(&[crowd.area().va, crowd.area().rkey.into()])),
            "reach" => {
                let (va, rkey) = (next()?, next()?);
                self.area =
                    Some(Remote { va, rkey: rkey.try_into().map_err(|e| format!("{rkey}: {e}"))? });
                Ok(String::new())
            }
            "write" => {
                let area = self.area.ok_or("the other end's area is unknown")?;
                write(crowd, area, next()? as usize, Duration::from_millis(next()?))
            }
            "written" => Ok(line_of(&crowd.written())),
            "found" => crowd.found().map(|found| line_of(&found)),
            _ => Err("no such order".to_string()),
        }
    }
}

/// Answers every message over the queue pair of its arrival, until the signal to stop. Returns the
/// number of answers.
fn echo(crowd: &mut Crowd) -> Result<u64> {
    let mut answered = 0;
    loop {
        match crowd.event()? {
            Event::Received(n) => {
                crowd.send(n)?;
                answered += 1;
            }
            Event::Completed(_) => {}
            Event::Stopped => return crowd.settle().map(|()| answered),
        }
    }
}

/// The median of batches of `one`, over `count` queue pairs in turn, each at least once. The answer
/// also has the number of calls.
fn timed(count: usize, time: Duration, mut one: impl FnMut(usize) -> Result<()>) -> Result<String> {
    let (mut batches, mut made) = (Vec::new(), 0usize);
    let mut start = Instant::now();
    let end = start + time;
    while start < end || made < count {
        for _ in 0..BATCH {
            one(made % count)?;
            made += 1;
        }
        let stop = Instant::now();
        batches.push((stop - start).as_secs_f64() / BATCH as f64);
        start = stop;
    }
    let median = Series::of(batches.into_iter()).map_or(f64::NAN, |s| s.median);
    Ok(format!("{median:e} {made}"))
}

/// Seconds of a round trip, and the number of round trips.
fn ping(crowd: &mut Crowd, count: usize, time: Duration) -> Result<String> {
    let trips = timed(count.min(crowd.len()), time, |n| {
        crowd.send(n)?;
        loop {
            match crowd.event()? {
                Event::Received(from) if from == n => return Ok(()),
                Event::Completed(_) => {}
                other => return Err(format!("{other:?} as the answer over {n}")),
            }
        }
    })?;
    crowd.settle()?;
    crowd.send_stop()?;
    crowd.settle()?;
    Ok(trips)
}

/// Seconds of a write from post to completion, and the number of writes.
fn write(crowd: &mut Crowd, area: Remote, count: usize, time: Duration) -> Result<String> {
    timed(count.min(crowd.len()), time, |n| {
        crowd.write(n, area)?;
        match crowd.event()? {
            Event::Completed(done) if done == n => Ok(()),
            other => Err(format!("{other:?} while writing over {n}")),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_carry_numbers() {
        assert_eq!(numbers::<u32>(&line_of(&[7u32, 8])), Ok(vec![7, 8]));
        assert!(numbers::<u32>("7 x").is_err());
        assert_eq!(numbers::<u32>(""), Ok(vec![]));
    }

    #[test]
    fn batches_are_of_every_queue_pair_in_turn() {
        let mut seen = [0u32; 100];
        let said = timed(100, Duration::ZERO, |n| {
            seen[n] += 1;
            Ok(())
        });
        let made = said.unwrap().split_once(' ').unwrap().1.parse::<u32>().unwrap();
        assert!(
            seen.iter().all(|s| *s >= 1) && seen.iter().sum::<u32>() == made,
            "{made} {seen:?}"
        );
        assert!(timed(1, Duration::ZERO, |_| Err("why".to_string())).is_err());
    }
}
