//! A persistent arm: each completion makes an event until the program disarms the queue.
use adverb::testing::pair;
use adverb::{Notify, Result};

/// Runs the example.
pub fn main() -> Result<()> {
    let (a, b) = pair()?;
    b.cq.notify_persistent(Notify::Next)?;
    for id in 0..5 {
        b.qp.recv(()).id(id).post()?;
        a.qp.send(()).signaled(false).post()?;
        // The loop needs no arm.
        let event = b.channel.next_event()?;
        assert_eq!(event.cq().poll_one()?.map(|c| c.wr_id()), Some(id));
    }
    b.cq.disarm();
    b.qp.recv(()).post()?;
    a.qp.send(()).signaled(false).post()?;
    b.completion()?;
    assert!(b.channel.try_event().is_none());
    Ok(())
}
