//! Which descriptors of the process give events of the device, by their numbers: the descriptors of
//! channels, and `epoll` sets that watch such a descriptor.
//!
//! A wait asks this table before it sleeps (`crate::objects::waits`). A wrong answer costs time
//! and nothing else: the kernel says which descriptors are ready, and the background thread drives
//! the device when no waiting thread does. So the table may be late. A number that is not known yet
//! is looked up in `/proc`, once. Calls of the C library that close, duplicate or change
//! descriptors keep the table true.
use crate::ranks;
use adverb_os::Uncancelled;
use adverb_sync::Ranked;
use adverb_threads::call::Watched;
use bitflags::bitflags;
use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::{SigSet, SigmaskHow};
use std::fs::{metadata, read_link, read_to_string};
use std::os::fd::RawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Descriptors with higher numbers are not known.
const MOST: usize = 1 << 16;
/// An `epoll` may watch another `epoll`, and so on. The kernel allows a chain of five.
const DEPTH: usize = 5;

/// Longest wait for the lock of [`PIPES`], which the child of a fork may find held for ever.
const PATIENCE: Duration = Duration::from_millis(20);

bitflags! {
    /// What is known of a descriptor. Nothing: not looked up yet.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Kind: u8 {
        /// No events of the device.
        const FOREIGN = 1;
        /// Events of completion channels.
        const COMPLETIONS = 2;
        /// Events of the connection manager.
        const MANAGER = 4;
        /// A completion channel was removed from this set, which may have been the last.
        const LESS_COMPLETIONS = 8;
        /// The same for the connection manager.
        const LESS_MANAGER = 16;
    }
}

impl Kind {
    /// The events of the device.
    const EVENTS: Kind = Kind::COMPLETIONS.union(Kind::MANAGER);
    /// What was removed from a set.
    const LESS: Kind = Kind::LESS_COMPLETIONS.union(Kind::LESS_MANAGER);

    /// What is left in doubt by the removal of these events.
    fn less(self) -> Kind {
        Kind::from_bits_retain(self.intersection(Kind::EVENTS).bits() << 2)
    }

    fn is_certain(self) -> bool {
        !self.is_empty() && !self.intersects(Kind::LESS)
    }
}

static KINDS: [AtomicU8; MOST] = [const { AtomicU8::new(0) }; MOST];
/// One more than the highest number known so far.
static END: AtomicUsize = AtomicUsize::new(0);
/// Changes with each descriptor that becomes one of the device's. What was looked up before is no
/// longer certain.
static EPOCH: AtomicU64 = AtomicU64::new(0);
/// The pipes of channels by inode number. The lock is only tried: a signal handler or the child of
/// a fork may ask while another thread holds it.
static PIPES: Ranked<Vec<(u64, Kind)>, ranks::ChannelPipes> = Ranked::new(Vec::new());

fn get(fd: RawFd) -> Kind {
    let entry = usize::try_from(fd).ok().and_then(|fd| KINDS.get(fd));
    entry.map_or(Kind::FOREIGN, |kind| Kind::from_bits_retain(kind.load(Ordering::Relaxed)))
}

fn set(fd: RawFd, kind: Kind) {
    let Some(entry) = usize::try_from(fd).ok().and_then(|fd| KINDS.get(fd)) else { return };
    let before = entry.swap(kind.bits(), Ordering::SeqCst);
    END.fetch_max(fd as usize + 1, Ordering::Relaxed);
    if !kind.difference(Kind::from_bits_retain(before)).intersects(Kind::EVENTS) {
        return;
    }
    EPOCH.fetch_add(1, Ordering::SeqCst);
    // A set that watches this descriptor is no longer foreign.
    for entry in &KINDS[..END.load(Ordering::Relaxed)] {
        let foreign = Kind::FOREIGN.bits();
        let _ = entry.compare_exchange(foreign, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// The descriptor of a channel is known while this value lives.
#[derive(Debug)]
pub(super) struct Known {
    fd: RawFd,
    inode: u64,
}

impl Known {
    pub(super) fn new(fd: RawFd, inode: u64, kind: Kind) -> Self {
        if let Some(mut pipes) = PIPES.try_lock_for(PATIENCE) {
            pipes.push((inode, kind));
        }
        set(fd, kind);
        Known { fd, inode }
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        if let Some(mut pipes) = PIPES.try_lock_for(PATIENCE) {
            pipes.retain(|(found, _)| *found != self.inode);
        }
        closed(self.fd);
    }
}

/// The events that the descriptor gives. Keeps `errno`.
#[must_use]
pub fn of(fd: RawFd) -> Kind {
    let known = get(fd);
    if known.is_certain() { known } else { look_up(fd, DEPTH) }.intersection(Kind::EVENTS)
}

/// Signals are blocked meanwhile: a handler that leaves by `longjmp` would leave a lock held.
#[cold]
fn look_up(fd: RawFd, depth: usize) -> Kind {
    let errno = Errno::last();
    let _uncancelled = Uncancelled::throughout();
    let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK);
    let (epoch, before) = (EPOCH.load(Ordering::SeqCst), get(fd));
    let found = by_file(fd, depth);
    if let Some(kind) = found {
        note(fd, before, kind.union(Kind::FOREIGN), epoch);
    }
    let _ = mask.map(|mask| mask.thread_set_mask());
    errno.set();
    found.unwrap_or(Kind::FOREIGN)
}

/// Enters what was looked up, unless another thread has entered something meanwhile.
fn note(fd: RawFd, before: Kind, kind: Kind, epoch: u64) {
    let Some(entry) = usize::try_from(fd).ok().and_then(|fd| KINDS.get(fd)) else { return };
    END.fetch_max(fd as usize + 1, Ordering::Relaxed);
    let change = |from: u8, to: u8| {
        let _ = entry.compare_exchange(from, to, Ordering::SeqCst, Ordering::Relaxed);
    };
    change(before.bits(), kind.bits());
    if EPOCH.load(Ordering::SeqCst) != epoch {
        change(kind.bits(), 0);
    }
}

/// `None`: not known at this moment.
fn by_file(fd: RawFd, depth: usize) -> Option<Kind> {
    let file = metadata(format!("/proc/self/fd/{fd}")).ok()?;
    if file.file_type().is_fifo() {
        return of_pipe(file.ino());
    }
    let is_set = || {
        read_link(format!("/proc/self/fd/{fd}"))
            .is_ok_and(|link| link.as_os_str() == "anon_inode:[eventpoll]")
    };
    if file.file_type().is_socket() || depth == 0 || !is_set() {
        return Some(Kind::FOREIGN);
    }
    let text = read_to_string(format!("/proc/self/fdinfo/{fd}")).ok()?;
    let mut all = Kind::FOREIGN;
    for watched in text.lines().filter_map(Watched::parse) {
        // The program may have closed the number that it added, and kept a duplicate.
        let of_pipe = watched.inode.and_then(of_pipe).unwrap_or(Kind::FOREIGN);
        all |= of_pipe;
        all |= match get(watched.fd) {
            kind if kind.is_certain() => kind,
            _ => look_up(watched.fd, depth - 1),
        };
    }
    Some(all)
}

fn of_pipe(inode: u64) -> Option<Kind> {
    let pipes = PIPES.try_lock()?;
    let found = pipes.iter().find(|(pipe, _)| *pipe == inode);
    Some(found.map_or(Kind::FOREIGN, |(_, kind)| *kind))
}

/// The program has closed this number, or something else has it now.
pub fn closed(fd: RawFd) {
    if get(fd) != Kind::empty() {
        set(fd, Kind::empty());
    }
}

/// The program has duplicated a descriptor.
pub fn copied(from: RawFd, to: RawFd) {
    set(to, get(from));
}

/// The program has changed a set by `epoll_ctl`. Some programs remove and add their channels with
/// every message, and a removal alone is looked into at the next wait.
pub fn controlled(epoll: RawFd, how: i32, fd: RawFd) {
    let events = of(fd);
    if events.is_empty() {
        return;
    }
    let known = get(epoll);
    match how {
        libc::EPOLL_CTL_DEL if known.is_empty() => {}
        libc::EPOLL_CTL_DEL => set(epoll, known | events.less()),
        _ => set(epoll, known.difference(events.less()) | Kind::FOREIGN | events),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
    use std::os::fd::AsRawFd;

    /// A program that removes and adds its channels with every message costs no look-up: neither of
    /// its set, nor of foreign descriptors.
    #[test]
    fn a_channel_removed_and_added_again_is_not_looked_up() {
        let (read, _write) = nix::unistd::pipe().unwrap();
        let inode = metadata(format!("/proc/self/fd/{}", read.as_raw_fd())).unwrap().ino();
        let _known = Known::new(read.as_raw_fd(), inode, Kind::COMPLETIONS);
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).unwrap();
        let (set, fd) = (epoll.0.as_raw_fd(), read.as_raw_fd());
        assert_eq!(of(set), Kind::empty());
        let add = || epoll.add(&read, EpollEvent::new(EpollFlags::EPOLLIN, 0)).unwrap();
        add();
        controlled(set, libc::EPOLL_CTL_ADD, fd);
        assert_eq!(of(set), Kind::COMPLETIONS);
        for _ in 0..3 {
            epoll.delete(&read).unwrap();
            controlled(set, libc::EPOLL_CTL_DEL, fd);
            // Nothing becomes new for the other descriptors by the next addition.
            assert!(get(set).contains(Kind::COMPLETIONS) && !get(set).is_certain());
            add();
            controlled(set, libc::EPOLL_CTL_ADD, fd);
            assert!(get(set).is_certain());
        }
        epoll.delete(&read).unwrap();
        controlled(set, libc::EPOLL_CTL_DEL, fd);
        assert_eq!(of(set), Kind::empty(), "the last channel has left");
        assert!(get(set).is_certain());
    }
}
