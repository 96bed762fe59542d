//! A thread of the program that waits for an event of the connection manager serves queue pair 1
//! meanwhile.
use super::MadInterface;
use crate::descriptor::Descriptor;
use nix::errno::Errno;
use std::time::Instant;

/// A wait, from the first look for an event to the event.
#[derive(Debug)]
pub struct Wait<'a> {
    mads: &'a MadInterface,
    began: Instant,
    slept: bool,
}

impl MadInterface {
    /// A thread begins to wait for an event that MADs cause. The thread holds no lock.
    #[must_use]
    pub fn wait(&self) -> Wait<'_> {
        Wait { mads: self, began: Instant::now(), slept: false }
    }
}

impl Wait<'_> {
    /// Looks for MADs for a while, until `arrived`. Then sleeps until a MAD comes from a process of
    /// this host, or `event` is readable. This is a cancellation point. `arrived` may be wrong: the
    /// caller looks for its event, and calls again if there is none.
    ///
    /// # Errors
    /// EBADF: the program has closed the descriptor. EINTR after a signal, unless its handler
    /// restarts system calls. ENOMEM.
    pub fn step(&mut self, event: &Descriptor, arrived: impl Fn() -> bool) -> Result<(), Errno> {
        let node = &self.mads.node;
        let until = Instant::now() + node.mads.spin.length(node.policy.costs());
        loop {
            node.look_for_mads();
            if arrived() {
                return Ok(());
            }
            // The peer is busy, so this thread has time.
            if Descriptor::prepare() {
                continue;
            }
            if Instant::now() >= until {
                break;
            }
            std::hint::spin_loop();
        }
        let own = event.waits().ok_or(Errno::EBADF)?;
        self.slept = true;
        match adverb_os::wait_readable([own, node.mads_fd().unwrap_or(own)], None, || {}) {
            Ok(()) => Ok(()),
            Err(e) => match e.raw_os_error().map_or(Errno::EIO, Errno::from_raw) {
                Errno::EINTR if adverb_os::signals_restart() => Ok(()),
                errno => Err(errno),
            },
        }
    }

    /// The event has come.
    pub fn over(self) {
        let node = &self.mads.node;
        node.mads.spin.learn(self.began.elapsed(), self.slept, node.policy.costs());
    }
}
