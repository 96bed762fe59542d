//! An open file of `/dev/infiniband/rdma_cm`.
use crate::live::{Live, Opened, Token};
use crate::request::{Caller, FileId, Request};
use adverb_device::mad::Wait;
use adverb_device::{Descriptor, Error};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, OnceLock};

/// An open file: requests go in by [`Channel::perform`], and its descriptor is readable just while
/// an event waits. It belongs to the process that opened it: in the child of a fork its calls give
/// EIO.
pub struct Channel {
    live: Arc<Live>,
    opened: Arc<Opened>,
}

impl Channel {
    /// Opens the file, with the flags of `open`: `O_NONBLOCK` and `O_CLOEXEC` count. It is found by
    /// its descriptor until [`Channel::close`].
    ///
    /// # Errors
    /// What the device or the kernel refused: descriptors, the port.
    pub fn open(flags: i32) -> Result<Arc<Channel>, Error> {
        let live = Live::get()?;
        let descriptor = Descriptor::new()?;
        let flags = OFlag::from_bits_retain(flags);
        if flags.contains(OFlag::O_NONBLOCK) {
            fcntl(descriptor.program(), FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        }
        if !flags.contains(OFlag::O_CLOEXEC) {
            fcntl(descriptor.program(), FcntlArg::F_SETFD(FdFlag::empty()))?;
        }
        let token = Arc::new(Token::new(descriptor));
        let file = live.world.lock().open(token.clone());
        let opened = Arc::new(Opened { file, token });
        let channel = Channel { live: live.clone(), opened: opened.clone() };
        let old = live.files.write().insert(channel.raw_fd(), opened);
        if let Some(opened) = old {
            // The program closed that one by itself, and its number is this one's now: it must not
            // be closed once more.
            std::mem::forget(opened.token.clone());
            Channel { live, opened }.end();
        }
        Ok(Arc::new(channel))
    }

    /// The open file with this descriptor.
    #[must_use]
    pub fn of_fd(fd: RawFd) -> Option<Arc<Channel>> {
        let live = Live::existing()?;
        let opened = live.files.read().get(&fd).cloned()?;
        Some(Arc::new(Channel { live, opened }))
    }

    /// The program's descriptor.
    #[must_use]
    pub fn raw_fd(&self) -> RawFd {
        self.opened.token.descriptor.program().as_raw_fd()
    }

    /// The file among those of the process.
    #[must_use]
    pub fn file(&self) -> FileId {
        self.opened.file
    }

    /// Performs a request. [`Request::GetEvent`] waits for an event unless the descriptor has
    /// `O_NONBLOCK`, and is a cancellation point then.
    ///
    /// # Errors
    /// As the kernel's: see the crate's documentation. EIO: the file is of the parent of a fork.
    /// EBADF: it has been closed meanwhile.
    pub fn perform(&self, request: &Request<'_>, caller: &mut dyn Caller) -> Result<(), Errno> {
        if self.live.door.is_stale() {
            return Err(Errno::EIO);
        }
        let mut wait: Option<Wait<'_>> = None;
        loop {
            let (done, timeout) = {
                let mut world = self.live.world.lock();
                (world.perform(self.opened.file, request, caller), world.next_timeout())
            };
            self.live.rearm(timeout);
            if wait.is_some() && done == Err(Errno::EBADF) {
                return Err(outlive());
            }
            if done != Err(Errno::EAGAIN) {
                if let Some(wait) = wait {
                    wait.over();
                }
                return done;
            }
            let waits = matches!(request, Request::GetEvent) && !self.is_nonblocking();
            if !waits {
                return done;
            }
            let token = &self.opened.token;
            wait.get_or_insert_with(|| self.live.door.wait()).step(&token.descriptor, || token.any())?;
        }
    }

    fn is_nonblocking(&self) -> bool {
        fcntl(self.opened.token.descriptor.program(), FcntlArg::F_GETFL)
            .is_ok_and(|flags| OFlag::from_bits_retain(flags).contains(OFlag::O_NONBLOCK))
    }

    /// Closes the file and its descriptor: its ids end, and their peers are told.
    pub fn close(&self) {
        // Another file may have the number, if the program closed this one's by itself.
        let mut files = self.live.files.write();
        if files.get(&self.raw_fd()).is_some_and(|other| other.file == self.opened.file) {
            files.remove(&self.raw_fd());
        }
        drop(files);
        self.end();
    }

    fn end(&self) {
        if self.live.door.is_stale() {
            return;
        }
        // Whoever sleeps at it wakes and finds the file closed.
        adverb_device::Tokens::give(&self.opened.token.descriptor);
        let mut world = self.live.world.lock();
        world.close(self.opened.file);
        let timeout = world.next_timeout();
        drop(world);
        self.live.rearm(timeout);
    }
}

fn sleep_on(descriptor: &Descriptor) -> Result<(), Errno> {
    let own = descriptor.waits().ok_or(Errno::EBADF)?;
    match adverb_os::wait_readable([own, own], None) {
        Ok(()) => Ok(()),
        Err(e) => match e.raw_os_error().map_or(Errno::EIO, Errno::from_raw) {
            Errno::EINTR if adverb_os::signals_restart() => Ok(()),
            errno => Err(errno),
        },
    }
}

/// The file was closed while a call waited in it. The kernel keeps the file until such a call
/// returns, and no event comes any more: it waits on until a signal. Programs end that way: `rping`
/// closes the channel under a thread that takes an error for a failure of the whole run.
fn outlive() -> Errno {
    static NEVER: OnceLock<Option<Descriptor>> = OnceLock::new();
    let Some(never) = NEVER.get_or_init(|| Descriptor::new().ok()) else { return Errno::EBADF };
    loop {
        if let Err(errno) = sleep_on(never) {
            return errno;
        }
    }
}
