//! Armed notifications by the million, each accounted for.
//!
//! `armed [--count N]` reads N completion events (default: ten million) of 64 CQs over four
//! channels in four threads, and prints the result. The exit status is 1 if a completion or event
//! was lost, duplicated or out of order.
//!
//! **Traffic.** The device makes every completion from a posted request, in three ways
//! ([`stream`]). A quarter of the CQs carries SENDs between two queue pairs over the wire path:
//! real packets on UDP port 4791. The other CQs carry local operations, which are quicker: binds of
//! a memory window, which succeed, and requests flushed by a queue pair in ERR, which fail. Half of
//! the CQs run in *lockstep*: one completion for each arm, and the next request is posted when the
//! CQ was armed and drained again. So the numbers of events and completions must be equal. The
//! other half is *racing*: up to eight completions are outstanding, and are added while the CQ is
//! armed and polled. Arms are for the next, a solicited and a failed completion in turn, as far as
//! the traffic fires them. The consumers follow *get → acknowledge → arm → poll until empty*. One
//! consumer sleeps in the get-event call of its own channel, one in an epoll over two channels, and
//! two share a channel ([`consumer`]).
//!
//! **Checks.** Each request has a number, and the numbers must be polled in order in their CQ:
//! nothing lost, doubled or out of order. A lost wake-up leaves completions in an armed CQ forever.
//! So no progress for ten seconds counts as a loss, and the queues concerned are named. A doubled
//! event shows in lockstep as an event without a completion. Elsewhere it shows as more events than
//! arms or completions, or as an event with no completion polled before or after. At the end every
//! queue must be empty. Destroying a queue must not wait, which shows that every event was
//! acknowledged exactly once.
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
/// Traffic of the CQs of one channel. Half of each kind runs in lockstep.
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
/// Threads that post, beside four consumers.
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

/// Runs until `count` events were read and all posted requests are polled, and then judges.
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
            // Some threads may never come back.
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
