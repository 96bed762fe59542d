//! Decides when the run is over, and whether everything was right.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use adverb_device::{CompChannel, Errno};

use super::stream::Stream;
use super::track::{Board, Track, Traffic};

/// No event and no completion for this time while some are due: a loss.
const STUCK: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(20);

/// Stops the producers after `count` events. Then waits until the producers have ended and all
/// posted requests were polled. `false`: this never happened.
pub fn watch(board: &Board, count: u64, producing: &AtomicBool, ended: impl Fn() -> bool) -> bool {
    let (mut last, mut since) = ((0, 0), Instant::now());
    loop {
        std::thread::sleep(LOOK);
        let events = board.sum(|t| &t.events, |_| true);
        let polled = board.sum(|t| &t.polled, |_| true);
        if events >= count {
            producing.store(false, Ordering::Relaxed);
        }
        if (events, polled) != last {
            (last, since) = ((events, polled), Instant::now());
        } else if ended() && polled == board.sum(|t| &t.posted, |_| true) {
            return true;
        } else if since.elapsed() > STUCK {
            for track in &board.tracks {
                missing(board, track);
            }
            return false;
        }
    }
}

fn missing(board: &Board, track: &Track) {
    let (posted, polled) =
        (track.posted.load(Ordering::Acquire), track.polled.load(Ordering::Acquire));
    if posted != polled {
        board.wrong(|| {
            let waiting = track.cq.len();
            format!(
                "{}: lost: {posted} posted, {polled} polled, {waiting} in the queue",
                track.name()
            )
        });
    }
}

/// Reads the remaining events: at most one for a racing CQ, when a poll took the completion first
/// (CQN-8).
pub fn quiet(board: &Board, channels: &[Arc<CompChannel>], patience: Duration) {
    let mut left = vec![0; board.tracks.len()];
    for channel in channels {
        loop {
            match channel.next_event(Some(Instant::now() + patience)) {
                Ok(cq) => {
                    cq.ack_events(1);
                    let Some(track) = board.of(&cq) else { continue };
                    track.events.fetch_add(1, Ordering::Relaxed);
                    left[track.index] += 1;
                    if track.lockstep || left[track.index] > 1 {
                        board.wrong(|| format!("{}: an event too many at the end", track.name()));
                    }
                }
                Err(Errno::ETIMEDOUT | Errno::EAGAIN) => break,
                Err(e) => {
                    board.wrong(|| format!("get event: {e}"));
                    break;
                }
            }
        }
    }
    for track in &board.tracks {
        missing(board, track);
        let [posted, polled, arms, events] =
            [&track.posted, &track.polled, &track.arms, &track.events]
                .map(|figure| figure.load(Ordering::Acquire));
        if track.lockstep && (events != polled || arms != events + 1) {
            board.wrong(|| {
                format!("{}: {arms} arms, {events} events, {polled} completions", track.name())
            });
        }
        if events > polled || events > arms || !track.cq.is_empty() {
            board.wrong(|| {
                format!(
                    "{}: {arms} arms, {events} events, {posted} posted, {polled} polled",
                    track.name()
                )
            });
        }
    }
}

/// Destroys everything. No CQ may wait for an acknowledgement any more.
pub fn destroyed(board: &Arc<Board>, streams: Vec<Stream>, channels: &[Arc<CompChannel>]) {
    let (done, is_done) = std::sync::mpsc::channel();
    let all = board.clone();
    std::thread::spawn(move || {
        for stream in streams {
            stream.destroy(&all);
        }
        for track in &all.tracks {
            if let Err(e) = track.cq.destroy() {
                all.wrong(|| format!("{}: destroy: {e}", track.name()));
            }
        }
        let _ = done.send(());
    });
    if is_done.recv_timeout(STUCK).is_err() {
        board.wrong(|| "destroying a CQ waits for acknowledgements that were given".to_string());
        return;
    }
    for channel in channels {
        if let Err(e) = channel.destroy() {
            board.wrong(|| format!("channel: destroy: {e}"));
        }
    }
}

/// Prints figures and verdict; `true` without violations.
pub fn report(board: &Board, count: u64, took: Duration) -> bool {
    let events = board.sum(|t| &t.events, |_| true);
    let of = |traffic| board.sum(|t| &t.polled, |t| t.traffic == traffic);
    let polled = board.sum(|t| &t.polled, |_| true);
    let violations = board.violations.load(Ordering::Acquire);
    println!(
        "{events} events of {} CQs read by 4 threads in {:.1} s; {} arms",
        board.tracks.len(),
        took.as_secs_f64(),
        board.sum(|t| &t.arms, |_| true)
    );
    println!(
        "{polled} completions polled: {} sends and {} receives over the wire path, {} binds, {} flushed requests",
        of(Traffic::Send),
        of(Traffic::Recv),
        of(Traffic::Bind),
        of(Traffic::Flush)
    );
    for line in board.told() {
        println!("WRONG {line}");
    }
    println!("armed_events {events} 1");
    println!("armed_rate {:e} 1/s", events as f64 / took.as_secs_f64());
    println!("armed_wire {} 1", of(Traffic::Send) + of(Traffic::Recv));
    println!("armed_wrong {violations} 1");
    let good = violations == 0 && events >= count;
    println!(
        "{}",
        if good { "ok: nothing lost, nothing duplicated, nothing out of order" } else { "FAILED" }
    );
    good
}
