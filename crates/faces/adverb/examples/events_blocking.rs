//! The event loop of `ibv_get_cq_event(3)`: wait, acknowledge, arm, poll until empty.
use adverb::testing::pair;
use adverb::{Notify, Result};

/// The number of messages.
const MESSAGES: u64 = 100;

/// Runs the example.
pub fn main() -> Result<()> {
    let (a, b) = pair()?;
    for id in 0..MESSAGES {
        b.qp.recv(()).id(id).post()?;
    }
    // Arm before the first completion can come.
    b.cq.notify(Notify::Next)?;
    let sender = std::thread::spawn(move || -> Result<()> {
        for _ in 0..MESSAGES {
            a.qp.send(()).post()?;
            a.completion()?;
        }
        Ok(())
    });
    let mut received = 0;
    while received < MESSAGES {
        // Sleeps until an event comes.
        let event = b.channel.next_event()?;
        let cq = event.cq().clone();
        // Dropping the event acknowledges it.
        drop(event);
        // Arm first, then poll until empty: a completion between the two makes a new event.
        cq.notify(Notify::Next)?;
        for completion in cq.drain() {
            assert_eq!(completion?.ok()?.wr_id(), received);
            received += 1;
        }
    }
    sender.join().expect("the sender did not panic")?;
    Ok(())
}
