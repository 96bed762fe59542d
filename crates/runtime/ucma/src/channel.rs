//! An open file of `/dev/infiniband/rdma_cm`.
use crate::live::{Live, Opened, Token};
use crate::request::{Caller, FileId, Request};
use adverb_device::mad::Wait;
use adverb_device::waits::Kind;
use adverb_device::{Descriptor, Error};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, OnceLock};

/// An open file. [`Channel::perform`] takes requests. The descriptor is readable exactly while an
/// event waits. The file belongs to the opening process: in the child of a fork every call returns
/// EIO.
pub struct Channel {
    live: Arc<Live>,
    opened: Arc<Opened>,
}

impl Channel {
    /// Opens the file with flags of `open`; `O_NONBLOCK` and `O_CLOEXEC` have an effect.
    /// [`Channel::of_fd`] finds the file by its descriptor until [`Channel::close`].
    ///
    /// # Errors
    /// What the device or the kernel refused: descriptors, the port.
    pub fn open(flags: i32) -> Result<Arc<Channel>, Error> {
        let live = Live::get()?;
        let descriptor = Descriptor::new(Kind::MANAGER)?;
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
            // The program closed the old descriptor itself, and the kernel gave its number to the
            // new file. Forgetting the token keeps us from closing that number a second time.
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

    /// The number of this file among the files of the process.
    #[must_use]
    pub fn file(&self) -> FileId {
        self.opened.file
    }

    /// Performs a request. Without `O_NONBLOCK` on the descriptor, [`Request::GetEvent`] waits for
    /// an event and is a cancellation point.
    ///
    /// # Errors
    /// As the kernel returns them; see the crate's documentation. EIO: the file belongs to the
    /// parent of a fork. EBADF: the file has been closed in the meantime.
    pub fn perform(&self, request: &Request<'_>, caller: &mut dyn Caller) -> Result<(), Errno> {
        if self.live.mads.is_stale() {
            return Err(Errno::EIO);
        }
        let mut wait: Option<Wait<'_>> = None;
        loop {
            let done = self.live.command(|world| world.perform(self.opened.file, request, caller));
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
            wait.get_or_insert_with(|| self.live.mads.wait())
                .step(&token.descriptor, || token.any())?;
        }
    }

    fn is_nonblocking(&self) -> bool {
        fcntl(self.opened.token.descriptor.program(), FcntlArg::F_GETFL)
            .is_ok_and(|flags| OFlag::from_bits_retain(flags).contains(OFlag::O_NONBLOCK))
    }

    /// Closes the file and its descriptor. The ids of the file end, and all peers are told.
    pub fn close(&self) {
        // If the program closed the descriptor itself, another file may have its number by now.
        let mut files = self.live.files.write();
        if files.get(&self.raw_fd()).is_some_and(|other| other.file == self.opened.file) {
            files.remove(&self.raw_fd());
        }
        drop(files);
        self.end();
    }

    fn end(&self) {
        if self.live.mads.is_stale() {
            return;
        }
        // A thread that sleeps in `perform` wakes up and finds the file closed.
        adverb_device::Tokens::give(&self.opened.token.descriptor);
        drop(self.live.command(|world| world.close(self.opened.file)));
    }
}

fn sleep_on(descriptor: &Descriptor) -> Result<(), Errno> {
    let own = descriptor.waits().ok_or(Errno::EBADF)?;
    match adverb_os::wait_readable([own, own], None, || {}) {
        Ok(()) => Ok(()),
        Err(e) => match e.raw_os_error().map_or(Errno::EIO, Errno::from_raw) {
            Errno::EINTR if adverb_os::signals_restart() => Ok(()),
            errno => Err(errno),
        },
    }
}

/// The file was closed while a call waited in it. In Linux the kernel keeps the file until the call
/// returns, and no event comes any more, so the call waits until a signal arrives. Programs rely on
/// this: `rping` closes the channel while a thread waits in it, and the thread takes an error for a
/// failure of the whole run.
fn outlive() -> Errno {
    static NEVER: OnceLock<Option<Descriptor>> = OnceLock::new();
    let Some(never) = NEVER.get_or_init(|| Descriptor::new(Kind::empty()).ok()) else {
        return Errno::EBADF;
    };
    loop {
        if let Err(errno) = sleep_on(never) {
            return errno;
        }
    }
}
