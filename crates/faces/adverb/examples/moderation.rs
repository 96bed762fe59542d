//! One event for many completions: after a number of completions, or after a time.
use adverb::testing::pair;
use adverb::{Notify, Result};
use std::time::Duration;

/// Runs the example.
pub fn main() -> Result<()> {
    let (a, b) = pair()?;
    for id in 0..21 {
        b.qp.recv(()).id(id).post()?;
    }
    // One event for four completions.
    b.cq.moderate(4, Duration::ZERO)?;
    b.cq.notify_persistent(Notify::Next)?;
    for _ in 0..20 {
        a.qp.send(()).signaled(false).post()?;
    }
    for _ in 0..5 {
        drop(b.channel.next_event()?);
    }
    assert_eq!(b.cq.drain().count(), 20);
    assert!(b.channel.try_event().is_none());
    // One event for 100 completions, or 2 ms after the first: no completion waits longer.
    b.cq.moderate(100, Duration::from_millis(2))?;
    a.qp.send(()).signaled(false).post()?;
    drop(b.channel.next_event()?);
    assert_eq!(b.cq.drain().count(), 1);
    b.cq.disarm();
    Ok(())
}
