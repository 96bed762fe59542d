//! Bells between two processes of a host, and how one sees the other's end.
//!
//! Each process makes a pair of sockets for each other one, keeps one end and gives the other. A
//! byte through it wakes; its end says that the giver is gone: the process, or the program in it,
//! as `exec` closes it too. A pair has one holder, so nobody breaks it for another. And a socket
//! waits for nothing if a call says so, where a flag of a file that two processes share is the
//! other's to change: a full `eventfd` without `O_NONBLOCK` would hold its writer for ever (TRU-3).
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::sync::Arc;

use adverb_os::SocketErrors;
use adverb_os::sys::{self, EVENTS, Fd, FdTable, Transit};

/// All bells of a process, and one descriptor that is readable while one of them is, or a watched
/// process has ended.
pub struct Bells {
    table: Arc<FdTable>,
    any: Fd,
    errors: Arc<SocketErrors>,
}

/// A bell that another process rings.
pub struct Bell {
    ours: Fd,
    theirs: Fd,
}

/// What came of looking at a [`Bell`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rung {
    /// Nothing.
    No,
    /// It was rung.
    Yes,
    /// Whoever has the other end broke it.
    Broken,
}

/// Another process's bell.
pub struct Rope(Fd);

/// A descriptor that belongs to a peer: its memory, or its end. Dropping the value closes the
/// descriptor, and so does [`Bells::close_after_fork`] in the child of a fork.
pub struct PeerFd(Option<Fd>);

/// Descriptors of [`Bells`] at most: five for each of some 1600 peers.
const ROOM: usize = 8192;

impl Bells {
    /// None yet. `errors` notes looks at them that fail.
    ///
    /// # Errors
    /// No descriptors.
    pub fn new(errors: Arc<SocketErrors>) -> io::Result<Self> {
        let table = FdTable::with_room(ROOM);
        Ok(Bells { any: sys::any_of(&table)?, table, errors })
    }

    /// One more.
    ///
    /// # Errors
    /// No descriptors.
    pub fn make(&self) -> io::Result<Bell> {
        let (ours, theirs) = sys::stream_pair(&self.table)?;
        Ok(Bell { ours, theirs })
    }

    /// The bell that another process gave.
    ///
    /// # Errors
    /// The descriptor is of something else, on which a call may wait for another process. Or the
    /// table of descriptors is full.
    pub fn rope(&self, fd: OwnedFd) -> io::Result<Rope> {
        if sys::is_local_stream(fd.as_fd()) {
            return Ok(Rope(self.table.register(fd.into_raw_fd())?));
        }
        let found = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).unwrap_or_default();
        Err(io::Error::other(format!("its bell is {}, where an AF_UNIX stream belongs", found.display())))
    }

    /// Takes a descriptor over, so that no child of a fork keeps it.
    ///
    /// # Errors
    /// The table of descriptors is full.
    pub fn keep(&self, fd: OwnedFd) -> io::Result<PeerFd> {
        Ok(PeerFd(Some(self.table.register(fd.into_raw_fd())?)))
    }

    /// Readable while something that is watched is. `None` in the child of a fork.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.any.borrow()
    }

    /// Has a bell watched, the end of its peer's, and what else is readable when the peer has
    /// ended; all by one token.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn watch(&self, bell: &Bell, rope: &Rope, end: Option<BorrowedFd<'_>>, token: u64) -> io::Result<()> {
        sys::watch(&self.any, &bell.ours, token)?;
        // What a peer writes there is not for this process: only its end is looked for.
        sys::watch_for(self.any.own(), rope.0.own(), 0, token)?;
        end.map_or(Ok(()), |end| sys::watch_for(self.any.own(), end.as_raw_fd(), libc::EPOLLIN, token))
    }

    /// The reverse. The bell breaks, so that its peer sees that nobody hears it any more.
    pub fn forget(&self, bell: &Bell, rope: &Rope, end: Option<BorrowedFd<'_>>) {
        sys::break_off(&bell.ours);
        for fd in [Some(bell.ours.own()), Some(rope.0.own()), end.map(|end| end.as_raw_fd())] {
            fd.into_iter().for_each(|fd| sys::unwatch(self.any.own(), fd));
        }
    }

    /// What was watched as a peer's end is watched no more. Closing the descriptor is not enough: a
    /// child of a fork may have it, too, for a moment.
    pub fn unwatch(&self, end: BorrowedFd<'_>) {
        sys::unwatch(self.any.own(), end.as_raw_fd());
    }

    /// The tokens of some that are readable now. Those that were left out come first the next time.
    pub fn ready(&self, tokens: &mut [u64; EVENTS]) -> usize {
        sys::wait_any(&self.any, tokens).unwrap_or_else(|error| {
            self.errors.note("look at the bells of this host", &error);
            0
        })
    }

    /// Closes them all, for the child of a fork, which must not keep its parent alive in the eyes
    /// of others. Only `close` is called.
    pub fn close_after_fork(&self) {
        self.table.close_all();
    }
}

impl Bell {
    /// What the other process is given. It is the same whenever it is given again.
    pub fn to_give(&self) -> Option<BorrowedFd<'_>> {
        self.theirs.borrow()
    }

    /// Ends, by `POLLHUP`, when its ringer breaks it. `None` in the child of a fork.
    pub fn as_end(&self) -> Option<BorrowedFd<'_>> {
        self.ours.borrow()
    }

    /// Was it rung? Takes that away, as far as it goes at a time.
    pub fn take(&self) -> Rung {
        match sys::take_bytes(&self.ours) {
            None => Rung::No,
            Some(0) => Rung::Broken,
            Some(_) => Rung::Yes,
        }
    }
}

impl Rope {
    /// Rings: one system call, which waits for nothing. One that was not heard yet is rung already.
    pub fn ring(&self) {
        if let Some(fd) = self.0.borrow_lately() {
            sys::send_byte(fd);
        }
    }

    /// Ends when its giver does: `POLLHUP`, which needs no asking for. `None` in the child of a
    /// fork.
    pub fn as_end(&self) -> Option<BorrowedFd<'_>> {
        self.0.borrow()
    }
}

impl PeerFd {
    /// The descriptor. `None` in the child of a fork.
    pub fn borrow(&self) -> Option<BorrowedFd<'_>> {
        self.0.as_ref()?.borrow()
    }
}

impl Drop for PeerFd {
    fn drop(&mut self) {
        let _transit = Transit::begin();
        drop(self.0.take());
    }
}

impl std::fmt::Debug for PeerFd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("PeerFd").field(&self.0.as_ref().map(Fd::raw)).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::{UnixDatagram, UnixStream};

    fn given(bell: &Bell) -> OwnedFd {
        bell.to_give().unwrap().try_clone_to_owned().unwrap()
    }

    #[test]
    fn who_rings_is_heard_once() {
        let bells = Bells::new(Arc::default()).unwrap();
        let (bell, other) = (bells.make().unwrap(), bells.make().unwrap());
        let (rope, other_rope) = (bells.rope(given(&bell)).unwrap(), bells.rope(given(&other)).unwrap());
        bells.watch(&bell, &rope, None, 7).unwrap();
        bells.watch(&other, &other_rope, None, 8).unwrap();
        let mut tokens = [0; EVENTS];
        assert_eq!((bells.ready(&mut tokens), bell.take()), (0, Rung::No));
        rope.ring();
        assert_eq!(bells.ready(&mut tokens), 1);
        assert_eq!((tokens[0], bell.take(), bell.take()), (7, Rung::Yes, Rung::No));
        assert_eq!(bells.ready(&mut tokens), 0);
        other_rope.ring();
        assert_eq!((bells.ready(&mut tokens), tokens[0]), (1, 8));
        bells.forget(&other, &other_rope, None);
        assert_eq!((bells.ready(&mut tokens), other.take()), (0, Rung::Yes));
        assert_eq!(other.take(), Rung::Broken);
    }

    /// TRU-3: a bell that is full, and whose flags say that calls wait, holds nobody.
    #[test]
    fn tru_3_a_full_bell_that_blocks_holds_nobody() {
        let bells = Bells::new(Arc::default()).unwrap();
        let bell = bells.make().unwrap();
        let end = given(&bell);
        let mut writer = UnixStream::from(end.try_clone().unwrap());
        while writer.write(&[1; 4096]).is_ok() {}
        writer.set_nonblocking(false).unwrap();
        let rope = bells.rope(end).unwrap();
        (0..1000).for_each(|_| rope.ring());
        let mut looks = 0;
        while bell.take() == Rung::Yes {
            looks += 1;
            assert!(looks < 1 << 16, "it never ends");
        }
        assert!(looks > 0);
        assert_eq!(bell.take(), Rung::No);
    }

    /// TRU-3: a peer that breaks its bell breaks nobody else's.
    #[test]
    fn tru_3_who_breaks_a_bell_breaks_only_that() {
        let bells = Bells::new(Arc::default()).unwrap();
        let (bell, other) = (bells.make().unwrap(), bells.make().unwrap());
        UnixStream::from(given(&bell)).shutdown(std::net::Shutdown::Both).unwrap();
        assert_eq!((bell.take(), other.take()), (Rung::Broken, Rung::No));
        let rope = bells.rope(given(&other)).unwrap();
        rope.ring();
        assert_eq!(other.take(), Rung::Yes);
    }

    /// TRU-3: sockets whose calls may wait for whoever else has them are no bells.
    #[test]
    fn tru_3_other_descriptors_are_no_bells() {
        let bells = Bells::new(Arc::default()).unwrap();
        let others: [OwnedFd; 4] = [
            std::net::TcpListener::bind("127.0.0.1:0").unwrap().into(),
            UnixDatagram::unbound().unwrap().into(),
            std::io::pipe().unwrap().1.into(),
            std::fs::File::open("/dev/null").unwrap().into(),
        ];
        for fd in others {
            assert!(bells.rope(fd).err().unwrap().to_string().contains("AF_UNIX stream"));
        }
        // The end of the giver is seen.
        let bell = bells.make().unwrap();
        let rope = bells.rope(given(&bell)).unwrap();
        bells.watch(&bells.make().unwrap(), &rope, None, 3).unwrap();
        let mut tokens = [0; EVENTS];
        assert_eq!(bells.ready(&mut tokens), 0);
        drop(bell);
        // A child that another test is starting has a copy for a moment.
        let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
        let mut ready = 0;
        while ready == 0 {
            assert!(std::time::Instant::now() < until, "its end is not seen");
            ready = bells.ready(&mut tokens);
        }
        assert_eq!((ready, tokens[0]), (1, 3));
    }
}
