//! Many queue pairs between two processes on different processors.
//!
//! | figure | meaning |
//! |---|---|
//! | `pair_qp_pss_0`, `_1`; `pair_qp_rss_0`, `_1` | bytes of a queue pair in either process: the growth of its memory since the first queue pair, divided by the number of queue pairs; each has queues of 16 requests, two receives posted, and has carried messages |
//! | `pair_cq_pss` | a queue pair's share of the one CQ: room for three completions |
//! | `pair_first_pss` | bytes of the first queue pair and its messages, in both processes together |
//! | `pair_connect` | seconds to make and connect all but the first queue pair, both ends at once |
//! | `pair_send_N`, `pair_write_N` | seconds: half a round trip of a SEND, or a WRITE until its completion, over N queue pairs in turn |
//! | `pair_send_ratio_N`, `pair_write_ratio_N` | the ratio of these figures to the same figure of one queue pair, the median over the rounds |

use std::collections::BTreeMap;

use adverb_bench::Result;
use adverb_bench::member::{Member, ask_all, numbers};
use adverb_bench::pair::Cpus;
use adverb_bench::series::Samples;

use crate::{memory, timed};

const BYTES: usize = 8;
/// Messages over every queue pair before the first measurement.
const WARM: u64 = 4;
/// Limit of outstanding requests of a process. On the wire path this many fit into the socket
/// buffers.
const WINDOW: usize = 64;

type Ends = [Member; 2];

pub fn measure(qps: usize, short: bool) -> Result<()> {
    let cpus = Cpus::allowed()?;
    let mut ends = [Member::start(Some(cpus.here))?, Member::start(Some(cpus.there))?];
    ask_all(&mut ends, &format!("open {qps} {BYTES}"))?;
    let open = memory(&ends)?;
    ask_all(&mut ends, "cq")?;
    let with_cq = memory(&ends)?;
    connect(&mut ends, 1)?;
    exchange(&mut ends, 1)?;
    let with_one = memory(&ends)?;
    let ((), connecting) = timed(|| connect(&mut ends, qps - 1))?;
    exchange(&mut ends, qps as u64)?;
    let with_all = memory(&ends)?;

    println!("pair_qps {qps} 1");
    println!("pair_connect {connecting:e} s");
    let grown = |n: usize| with_all[n].since(with_one[n]);
    for n in 0..ends.len() {
        println!("pair_qp_pss_{n} {:e} B", grown(n).pss as f64 / (qps - 1) as f64);
        println!("pair_qp_rss_{n} {:e} B", grown(n).rss as f64 / (qps - 1) as f64);
    }
    println!("pair_cq_pss {:e} B", with_cq[0].since(open[0]).pss as f64 / qps as f64);
    println!("pair_first_pss {} B", (0..2).map(|n| with_one[n].since(with_cq[n]).pss).sum::<u64>());
    latencies(&mut ends, qps, short)
}

fn connect(ends: &mut Ends, count: usize) -> Result<()> {
    let made = ask_all(ends, &format!("make {count}"))?;
    for (end, peers) in ends.iter_mut().zip(made.iter().rev()) {
        end.order(&format!("connect {peers}"))?;
    }
    ends.iter_mut().try_for_each(|end| end.answer().map(drop))
}

/// Sends messages over all queue pairs, in both directions.
fn exchange(ends: &mut Ends, qps: u64) -> Result<()> {
    let received = ask_all(ends, &format!("exchange {WARM} {WINDOW}"))?;
    let all = (WARM * qps).to_string();
    if received.iter().any(|n| *n != all) {
        return Err(format!("{received:?} messages came, not {all} each way"));
    }
    Ok(())
}

fn latencies(ends: &mut Ends, qps: usize, short: bool) -> Result<()> {
    let area = ends[1].ask("area")?;
    ends[0].ask(&format!("reach {area}"))?;
    let counts: Vec<usize> =
        [1, 100, 1000, 10_000].into_iter().filter(|c| *c < qps).chain([qps]).collect();
    let (rounds, ms) = if short { (3, 100) } else { (5, 500) };
    let mut samples = Samples::new(rounds);
    for round in 0..rounds {
        for &count in &counts {
            samples.add(("send", count), round, send(ends, count, ms)?);
            samples.add(("write", count), round, write(ends, count, ms)?);
        }
    }
    written(ends)?;
    for kind in ["send", "write"] {
        for &count in &counts {
            let (key, one) = ((kind, count), [(kind, 1)]);
            let figures: BTreeMap<&str, _> =
                [("", samples.series(&key)), ("_ratio", samples.ratio(&key, &one, f64::min))]
                    .into();
            for (what, series) in figures {
                let median = series.ok_or("nothing was measured")?.median;
                println!(
                    "pair_{kind}{what}_{count} {median:e} {}",
                    if what.is_empty() { "s" } else { "1" }
                );
            }
        }
    }
    Ok(())
}

/// Half a round trip. The other end must have answered every message.
fn send(ends: &mut Ends, count: usize, ms: u64) -> Result<f64> {
    ends[1].order("echo")?;
    let pinged = ends[0].ask(&format!("ping {count} {ms}"))?;
    let answered = ends[1].answer()?;
    let (seconds, trips) = figures(&pinged)?;
    if trips != answered {
        return Err(format!("{trips} messages went out, {answered} were answered"));
    }
    Ok(seconds / 2.0)
}

fn write(ends: &mut Ends, count: usize, ms: u64) -> Result<f64> {
    figures(&ends[0].ask(&format!("write {count} {ms}"))?).map(|(seconds, _)| seconds)
}

fn figures(answer: &str) -> Result<(f64, String)> {
    let (seconds, made) = answer.split_once(' ').ok_or_else(|| format!("answer {answer:?}"))?;
    Ok((seconds.parse().map_err(|e| format!("{seconds:?}: {e}"))?, made.to_string()))
}

/// Checks the last word written over each queue pair.
fn written(ends: &mut Ends) -> Result<()> {
    let written: Vec<u64> = numbers(&ends[0].ask("written")?)?;
    let found: Vec<u64> = numbers(&ends[1].ask("found")?)?;
    match written.iter().zip(&found).position(|(w, f)| w != f) {
        None if written.len() == found.len() => Ok(()),
        at => Err(format!(
            "of {} words written and {} found, the one at {at:?} differs",
            written.len(),
            found.len()
        )),
    }
}
