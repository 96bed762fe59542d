//! The descriptor of an event queue for programs: a pipe that contains one byte for each event.
//!
//! Files of uverbs are readable while an event waits, and never writable. An `eventfd` always
//! reports that it is writable. Programs get the read end of the pipe. So `poll`, `select` and
//! `epoll`, level- and edge-triggered, answer as for uverbs, and `O_ASYNC` sends its signal. The
//! program's flags affect only the program's descriptor: the device gives and takes bytes at its
//! own descriptor, which never blocks.
pub mod kinds;
mod spare;

use crate::event_list::Tokens;
use adverb_os::OwnFd;
use kinds::{Kind, Known};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, open};
use nix::sys::stat::Mode;
use nix::unistd::pipe2;
use spare::Spare;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Room for more than 4096 events at any time. A program with thousands of channels stays within
/// the kernel's limit for pipes of a user.
const ROOM: i32 = 8192;

/// Tokens given so far by the descriptors of this process.
static GIVEN: AtomicU64 = AtomicU64::new(0);

/// The number of tokens given so far.
pub(crate) fn given() -> u64 {
    GIVEN.load(Ordering::Relaxed)
}

/// Tokens as bytes in a pipe. All functions except [`Descriptor::program`] are called under the
/// queue's lock.
#[derive(Debug)]
pub struct Descriptor {
    /// The program's descriptor.
    program: OwnFd,
    /// The device's descriptor for writing. Usually it is open for reading too, so that no SIGPIPE
    /// is sent even if the program has closed its own descriptor.
    own: OwnFd,
    /// For reading, if `own` is write-only. This descriptor shares the program's blocking mode.
    second: Option<OwnFd>,
    /// Events for which the pipe has no room. They are taken first, so the pipe is empty only if
    /// there is no event.
    owed: AtomicUsize,
    /// Waits of the program know the descriptor.
    known: Option<Known>,
}

impl Descriptor {
    /// A descriptor without a token. The program's descriptor blocks and is closed on exec. Waits
    /// for events of this kind drive the device.
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn new(kind: Kind) -> nix::Result<Self> {
        let mut new = Descriptor::of_spare().map_or_else(|| Descriptor::of(open_both), Ok)?;
        let inode = new.inode().filter(|_| !kind.is_empty());
        new.known = inode.map(|inode| Known::new(new.program.number(), inode, kind));
        Ok(new)
    }

    /// Makes the pipe of a later descriptor, if a pipe is missing. For a thread that waits.
    /// `false`: no pipe is missing.
    pub(crate) fn prepare() -> bool {
        spare::prepare(|| {
            let Descriptor { program, own, second, .. } = Descriptor::of(open_both)?;
            // Without `/proc` a spare would need two descriptors of the device.
            if second.is_some() {
                return Err(Errno::ENOENT);
            }
            let reads = program.get().ok_or(Errno::EBADF)?.try_clone_to_owned();
            Ok(Spare { reads: OwnFd::aside(reads.map_err(errno)?), own })
        })
    }

    /// A descriptor with a pipe made in advance.
    fn of_spare() -> Option<Self> {
        let Spare { reads, own } = spare::take()?;
        let program = reads.get()?.try_clone_to_owned().ok()?;
        Some(Descriptor {
            program: program.into(),
            own,
            second: None,
            owed: AtomicUsize::new(0),
            known: None,
        })
    }

    /// `both` opens a pipe again, for reading and writing. If this fails, as without `/proc`, two
    /// descriptors are used.
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
        // If this fails, the user's pipes only use up more of the kernel's limit.
        let _ = fcntl(&own, FcntlArg::F_SETPIPE_SZ(ROOM));
        let (program, own, second) = (program.into(), OwnFd::aside(own), second.map(OwnFd::aside));
        let new = Descriptor { program, own, second, owed: AtomicUsize::new(0), known: None };
        // The pipe keeps the page of its first byte. So giving a byte needs no memory from now on
        // and cannot fail.
        new.give();
        new.take();
        Ok(new)
    }

    /// The program's descriptor.
    #[must_use]
    pub fn program(&self) -> BorrowedFd<'_> {
        self.program.unchecked()
    }

    /// The inode number of the pipe. Duplicates of the program's descriptor have the same number.
    #[must_use]
    pub fn inode(&self) -> Option<u64> {
        nix::sys::stat::fstat(self.own.get()?).ok().map(|found| found.st_ino)
    }

    /// The descriptor on which a thread of the library waits, independent of the program's changes
    /// to its own descriptor. `None` if the program has closed it.
    #[must_use]
    pub fn waits(&self) -> Option<BorrowedFd<'_>> {
        self.second.as_ref().unwrap_or(&self.own).get_lately()
    }
}

/// Opens the pipe again, for reading and writing.
fn open_both(reads: &OwnedFd) -> nix::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", reads.as_raw_fd());
    open(path.as_str(), OFlag::O_RDWR | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC, Mode::empty())
}

fn errno(e: std::io::Error) -> Errno {
    Errno::from_raw(e.raw_os_error().unwrap_or_default())
}

impl Tokens for Descriptor {
    fn give(&self) {
        GIVEN.fetch_add(1, Ordering::Relaxed);
        // A program that has closed all its descriptors may have its own file under this number by
        // now.
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
mod tests;
