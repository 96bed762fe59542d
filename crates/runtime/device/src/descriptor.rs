//! The descriptor of an event queue, as programs see it: a pipe with a byte for each event.
//!
//! Files of uverbs are readable while an event waits and never writable; an `eventfd` always says
//! that it can be written to. Programs get the read end, so `poll`, `select` and `epoll`, level and
//! edge, answer as for uverbs, and `O_ASYNC` sends its signal. The flags they set are theirs alone:
//! the device gives and takes at a descriptor of its own, which never blocks.
mod spare;

use crate::event_list::Tokens;
use adverb_os::OwnFd;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, open};
use nix::sys::stat::Mode;
use nix::unistd::pipe2;
use spare::Spare;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Room for more than 4096 events at any time; a program with thousands of channels stays within
/// what the kernel lets a user have in pipes.
const ROOM: i32 = 8192;

/// Tokens as bytes in a pipe. All but [`Descriptor::program`] is called under the queue's lock.
#[derive(Debug)]
pub struct Descriptor {
    /// The program's.
    program: OwnFd,
    /// Ours, to write to. As a rule it is open for reading, too: then nobody is sent SIGPIPE, even
    /// if the program has closed its own.
    own: OwnFd,
    /// To read from, where `own` cannot be. It blocks or not as the program wants it.
    second: Option<OwnFd>,
    /// Events that the pipe has no room for. They are the first to be taken, so it is empty only if
    /// there is none.
    owed: AtomicUsize,
}

impl Descriptor {
    /// Without a token. What the program gets blocks and is closed on exec.
    ///
    /// # Errors
    /// No descriptors.
    pub fn new() -> nix::Result<Self> {
        Descriptor::of_spare().map_or_else(|| Descriptor::of(open_both), Ok)
    }

    /// Makes the pipe of a later descriptor, if one is missing: for a thread that waits. `false`:
    /// there is nothing to make.
    pub(crate) fn prepare() -> bool {
        spare::prepare(|| {
            let Descriptor { program, own, second, .. } = Descriptor::of(open_both)?;
            // Without `/proc` two descriptors would have to be kept.
            if second.is_some() {
                return Err(Errno::ENOENT);
            }
            let reads = program.get().ok_or(Errno::EBADF)?.try_clone_to_owned();
            Ok(Spare { reads: OwnFd::aside(reads.map_err(errno)?), own })
        })
    }

    /// One whose pipe was made in advance.
    fn of_spare() -> Option<Self> {
        let Spare { reads, own } = spare::take()?;
        let program = reads.get()?.try_clone_to_owned().ok()?;
        Some(Descriptor { program: program.into(), own, second: None, owed: AtomicUsize::new(0) })
    }

    /// `both` opens a pipe again, for reading and writing; where it cannot, as without `/proc`, two
    /// descriptors serve.
    fn of(both: impl FnOnce(&OwnedFd) -> nix::Result<OwnedFd>) -> nix::Result<Self> {
        let (program, writes) = pipe2(OFlag::O_CLOEXEC)?;
        let (own, second) = match both(&program) {
            Ok(own) => (own, None),
            Err(_) => {
                fcntl(&writes, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
                let reads = program.try_clone();
                (writes, Some(reads.map_err(errno)?))
            }
        };
        // Only what the user's pipes may hold together grows if this fails.
        let _ = fcntl(&own, FcntlArg::F_SETPIPE_SZ(ROOM));
        let (program, own, second) = (program.into(), OwnFd::aside(own), second.map(OwnFd::aside));
        let new = Descriptor { program, own, second, owed: AtomicUsize::new(0) };
        // The pipe keeps the page of its first byte: to give one takes no memory from now on, and
        // cannot fail.
        new.give();
        new.take();
        Ok(new)
    }

    /// What the program has.
    #[must_use]
    pub fn program(&self) -> BorrowedFd<'_> {
        self.program.unchecked()
    }

    /// The inode number of the pipe: duplicates of the program's descriptor have the same.
    #[must_use]
    pub fn inode(&self) -> Option<u64> {
        nix::sys::stat::fstat(self.own.get()?).ok().map(|found| found.st_ino)
    }

    /// What a thread of ours waits on, whatever the program did to its own; `None` if the program
    /// has closed it.
    #[must_use]
    pub fn waits(&self) -> Option<BorrowedFd<'_>> {
        self.second.as_ref().unwrap_or(&self.own).get_lately()
    }
}

/// Opens the pipe once more, for reading and writing.
fn open_both(reads: &OwnedFd) -> nix::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", reads.as_raw_fd());
    open(path.as_str(), OFlag::O_RDWR | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC, Mode::empty())
}

fn errno(e: std::io::Error) -> Errno {
    Errno::from_raw(e.raw_os_error().unwrap_or_default())
}

impl Tokens for Descriptor {
    fn give(&self) {
        // A program that has closed all its descriptors may have a file of its own there by now.
        if self.own.get_lately().is_some_and(|fd| !adverb_os::add_byte(fd)) {
            self.owed.fetch_add(1, Ordering::Relaxed);
        }
    }
    fn take(&self) {
        let owed = self.owed.load(Ordering::Relaxed);
        if owed > 0 {
            self.owed.store(owed - 1, Ordering::Relaxed);
        } else if let Some(fd) = self.waits() {
            adverb_os::take_byte(fd, self.second.is_some());
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    fn says(d: &Descriptor) -> PollFlags {
        let asked = PollFlags::POLLIN | PollFlags::POLLOUT | PollFlags::POLLPRI;
        let mut fds = [PollFd::new(d.program(), asked)];
        poll(&mut fds, PollTimeout::ZERO).unwrap();
        fds[0].revents().unwrap()
    }

    fn both_kinds() -> [Descriptor; 2] {
        [Descriptor::new().unwrap(), Descriptor::of(|_| Err(Errno::ENOENT)).unwrap()]
    }

    #[test]
    fn a_pipe_made_in_advance_is_like_any_other() {
        let first = Descriptor::new().unwrap();
        // Other tests may take the pipe. Whoever finds none wants one more.
        let spare = loop {
            if let Some(spare) = Descriptor::of_spare() {
                break spare;
            }
            Descriptor::prepare();
        };
        assert_ne!(first.inode(), spare.inode());
        assert_eq!(says(&spare), PollFlags::empty());
        spare.give();
        assert_eq!((says(&spare), says(&first)), (PollFlags::POLLIN, PollFlags::empty()));
        spare.take();
        assert_eq!(says(&spare), PollFlags::empty());
        let flags = |arg| fcntl(spare.program(), arg).unwrap();
        assert_eq!(flags(FcntlArg::F_GETFL) & OFlag::O_NONBLOCK.bits(), 0, "it blocks");
        assert_eq!(flags(FcntlArg::F_GETFD), nix::fcntl::FdFlag::FD_CLOEXEC.bits());
    }

    #[test]
    fn chn_2_it_is_readable_while_there_is_a_token_and_never_writable() {
        let [usual, other] = both_kinds();
        assert!(usual.second.is_none(), "the machine has /proc");
        for d in [usual, other] {
            assert_eq!(says(&d), PollFlags::empty());
            d.give();
            d.give();
            assert_eq!(says(&d), PollFlags::POLLIN);
            d.take();
            assert_eq!(says(&d), PollFlags::POLLIN);
            d.take();
            assert_eq!(says(&d), PollFlags::empty());
            // A program that reads it takes no event, and nothing waits for what it took.
            d.give();
            nix::unistd::read(d.program(), &mut [0; 8]).unwrap();
            d.take();
            assert_eq!(says(&d), PollFlags::empty());
        }
    }

    #[test]
    fn chn_2_more_tokens_than_the_pipe_has_room_for_are_kept() {
        for d in both_kinds() {
            let all = 3 * ROOM as usize;
            (0..all).for_each(|_| d.give());
            assert!(d.owed.load(Ordering::Relaxed) > 0, "this is about a full pipe");
            for left in (0..all).rev() {
                assert_eq!(says(&d), PollFlags::POLLIN, "{left}");
                d.take();
            }
            assert_eq!(says(&d), PollFlags::empty());
        }
    }

    /// Were there no reader but the program, the kernel would send SIGPIPE, which ends the process.
    #[test]
    fn a_program_that_closes_its_descriptor_ends_nothing() {
        for mut d in both_kinds() {
            d.program = nix::unistd::pipe2(OFlag::O_CLOEXEC).unwrap().0.into();
            d.give();
            d.take();
            assert_eq!(d.owed.load(Ordering::Relaxed), 0);
        }
    }
}
