//! The second event loop of `ibv_get_cq_event(3)`: the program polls the channel's descriptor
//! together with other descriptors.
use adverb::testing::pair;
use adverb::{Error, Notify, Result};
use nix::poll::{PollFd, PollFlags, poll};
use std::os::fd::AsFd;

/// Runs the example.
pub fn main() -> Result<()> {
    let (a, b) = pair()?;
    for id in 0..10 {
        b.qp.recv(()).id(id).post()?;
    }
    b.channel.set_nonblocking(true)?;
    // No event waits yet, so the call returns at once.
    assert!(matches!(b.channel.next_event(), Err(Error::WouldBlock)));
    b.cq.notify(Notify::Next)?;
    for _ in 0..10 {
        a.qp.send(()).signaled(false).post()?;
    }
    let mut received = 0;
    while received < 10 {
        let mut fds = [PollFd::new(b.channel.as_fd(), PollFlags::POLLIN)];
        let ready = poll(&mut fds, 20_000u16).expect("poll");
        assert_eq!(ready, 1, "readable exactly while an event waits");
        let event = b.channel.next_event()?;
        event.cq().notify(Notify::Next)?;
        received += event.cq().drain().count();
    }
    assert_eq!(received, 10);
    Ok(())
}
