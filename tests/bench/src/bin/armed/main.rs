//! Armed notifications by the million, each accounted for.
//!
//! `armed [--count N]` reads N completion events (ten million unless told otherwise) of 64 CQs over
//! four channels in four threads, prints how it went, and ends with status 1 if anything was lost,
//! duplicated or out of order.
//!
//! **What is exercised.** Every completion is made by the device from a posted request, in three
//! ways ([`stream`]): a quarter of the CQs carries SENDs between two queue pairs over the wire path
//! (real packets on UDP port 4791), the others local operations, which are quicker: binds of a
//! memory window, which succeed, and requests flushed by a queue pair in ERR, which fail. Half of
//! the CQs run in *lockstep* (one completion an arm, the next posted when the CQ was armed and
//! drained again, so that events and completions must be equal in number), half *racing* (up to
//! eight completions under way, added while the CQ is armed and polled). Arms are for the next, a
//! solicited and a failed completion in turn where the traffic fires them. The consumers follow
//! *get → acknowledge → arm → poll until empty*; one sleeps in the get-event call of a channel of
//! its own, one in an epoll over two channels, two share a channel ([`consumer`]).
//!
//! **What is judged.** Each request has a number that must be polled next in its CQ: nothing lost,
//! doubled or out of order. A lost wake-up leaves completions in an armed CQ for ever: no progress
//! for ten seconds is a loss, and the queues concerned are named. A doubled event shows in lockstep
//! as an event without a completion, elsewhere as events that outnumber arms or completions, or as
//! an event with none polled before or after it. In the end every queue must be empty and
//! destroying it must not wait, so every event read was acknowledged exactly once.
#![forbid(unsafe_code)]

mod consumer;
mod judge;
mod stream;
mod track;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use adverb_bench::Result;
use adverb_bench::world::World;
use adverb_device::CompChannel;
use clap::Parser;
use consumer::Consumer;
use track::{Board, Traffic};

/// Armed notifications by the million, each accounted for
#[derive(Parser)]
struct Options {
    /// Events to be read
    #[arg(long, default_value_t = 10_000_000)]
    count: u64,
}

const CHANNELS: usize = 4;
/// CQs of one channel: of each kind of traffic, half in lockstep.
const OF_A_CHANNEL: [Traffic; 16] = [
    Traffic::Send,
    Traffic::Send,
    Traffic::Recv,
    Traffic::Recv,
    Traffic::Bind,
    Traffic::Bind,
    Traffic::Bind,
    Traffic::Bind,
    Traffic::Bind,
    Traffic::Bind,
    Traffic::Flush,
    Traffic::Flush,
    Traffic::Flush,
    Traffic::Flush,
    Traffic::Flush,
    Traffic::Flush,
];
/// Threads that post; consumers are four others.
const PRODUCERS: usize = 2;

fn main() -> ExitCode {
    match run(Options::parse().count) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("armed: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Makes everything, runs until so many events were read and all that was posted is polled, and
/// judges.
fn run(count: u64) -> Result<bool> {
    let world = World::open(4096)?;
    let channels = (0..CHANNELS)
        .map(|_| CompChannel::new(&world.context).map_err(|e| format!("channel: {e}")))
        .collect::<Result<Vec<_>>>()?;
    let board = Arc::new(Board::new(&world, &channels, &OF_A_CHANNEL)?);
    let streams = stream::streams(&world, &board)?;
    board.arm_all()?;
    let producing = AtomicBool::new(true);
    let start = Instant::now();
    let streams = std::thread::scope(|scope| {
        for consumer in Consumer::four(&channels, &board) {
            scope.spawn(move || consumer.run());
        }
        let (producing, board) = (&producing, &board);
        let post = |part| scope.spawn(move || stream::produce(part, producing, board));
        let producers: Vec<_> = stream::parts(streams, PRODUCERS).into_iter().map(post).collect();
        if !judge::watch(board, count, producing, || producers.iter().all(|p| p.is_finished())) {
            // Some thread may never come back.
            judge::report(board, count, start.elapsed());
            std::process::exit(1);
        }
        board.stop.store(true, Ordering::SeqCst);
        producers.into_iter().filter_map(|p| p.join().ok()).flatten().collect::<Vec<_>>()
    });
    let took = start.elapsed();
    judge::quiet(&board, &channels, Duration::from_millis(50));
    judge::destroyed(&board, streams, &channels);
    Ok(judge::report(&board, count, took))
}
