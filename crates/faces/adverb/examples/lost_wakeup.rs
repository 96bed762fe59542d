//! A lost wake-up, found early: completions that no event will report.
use adverb::testing::pair;
use adverb::{Notify, Result};
use std::time::{Duration, Instant};

/// Runs the example.
pub fn main() -> Result<()> {
    let (a, b) = pair()?;
    b.qp.recv(()).post()?;
    a.qp.send(()).post()?;
    let start = Instant::now();
    while b.cq.is_empty() {
        assert!(start.elapsed() < Duration::from_secs(20));
        std::thread::yield_now();
    }
    // The mistake: arming after the completion and waiting at once. No event will come for it.
    b.cq.notify(Notify::Next)?;
    let report = b.channel.lost_wakeups();
    assert_eq!(report[0].waiting, 1);
    // The report names the queue, the number of completions and the line above.
    println!("{}", report[0].report);
    assert!(report[0].report.contains("lost_wakeup.rs"));
    // The right order: arm, then poll until empty, then wait.
    assert_eq!(b.cq.drain().count(), 1);
    assert!(b.channel.lost_wakeups().is_empty());
    Ok(())
}
