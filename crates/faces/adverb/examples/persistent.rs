//! An arm that stays: every completion makes an event until it is taken back.
use adverb::testing::pair;
use adverb::{Notify, Result};

/// Runs it.
pub fn main() -> Result<()> {
    let (a, b) = pair()?;
    b.cq.notify_persistent(Notify::Next)?;
    for id in 0..5 {
        b.qp.recv(()).id(id).post()?;
        a.qp.send(()).signaled(false).post()?;
        // No arming in the loop.
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
