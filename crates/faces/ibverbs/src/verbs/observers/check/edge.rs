//! Events left in a descriptor that an edge-triggered `epoll` watches.
//!
//! `/proc` shows in which call a program sleeps. The check looks there only when it may matter: an
//! event was taken, other events were left, and the program has never taken events until none was
//! left. From then on a thread of the library looks periodically, until the program has taken the
//! rest.
//!
//! The check reports only if no thread of the program other than the sleeping thread could take the
//! rest. This is the thread that took the last event. It sleeps in this `epoll` without a time
//! limit.
use super::Check;
use super::examiner::start_thread;
use super::report::callers;
use crate::abi::ibv_comp_channel;
use crate::handles::live;
use adverb_check::{Descriptor, Left, Reads};
use adverb_threads::Task;
use adverb_threads::call::{Limit, Line, On, Wait, Watched};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::fs::OpenOptions;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// A sleeping thread gets this time to take the events it left.
const LEFT_FOR: Duration = Duration::from_millis(500);
/// Period of the looks.
const PACE: Duration = Duration::from_millis(100);

fn is_readable(descriptor: BorrowedFd<'_>) -> bool {
    poll(&mut [PollFd::new(descriptor, PollFlags::POLLIN)], PollTimeout::ZERO)
        .is_ok_and(|ready| ready > 0)
}

impl Check {
    /// The program looked for an event in a descriptor, and took an event or failed with an errno.
    pub(super) fn looked(
        &'static self,
        reads: Reads,
        handle: usize,
        descriptor: BorrowedFd<'_>,
        event: Result<(), Errno>,
    ) {
        let Ok(found) = nix::sys::stat::fstat(descriptor) else { return };
        let of = Descriptor { number: descriptor.as_raw_fd(), file: found.st_ino, handle };
        match event {
            Ok(()) => {
                let (left, thread) = (is_readable(descriptor), nix::unistd::gettid().as_raw());
                if self.tell(|ledger| ledger.taken_from(of, reads, left, thread)) {
                    let way = callers();
                    self.tell(|ledger| ledger.taken_by(of, way));
                    self.watch();
                }
            }
            Err(Errno::EAGAIN) => self.tell(|ledger| ledger.found_empty(of, reads)),
            Err(_) => {}
        }
    }

    /// Makes sure that a thread watches the events left.
    fn watch(&'static self) {
        if self.watches.swap(true, Ordering::SeqCst) {
            return;
        }
        if !start_thread(|| self.look_after()) {
            self.watches.store(false, Ordering::SeqCst);
        }
    }

    fn look_after(&self) {
        let mut asleep: Vec<(Left, i32, Instant)> = Vec::new();
        loop {
            std::thread::sleep(PACE);
            let all = self.tell(|ledger| ledger.left());
            if all.is_empty() {
                self.watches.store(false, Ordering::SeqCst);
                // Events left since then belong to a new thread, or to this thread.
                if self.tell(|ledger| ledger.left().is_empty())
                    || self.watches.swap(true, Ordering::SeqCst)
                {
                    return;
                }
            }
            asleep.retain(|(left, _, _)| all.contains(left));
            for left in all {
                self.look_at(left, &mut asleep);
            }
        }
    }

    fn look_at(&self, left: Left, asleep: &mut Vec<(Left, i32, Instant)>) {
        let before = asleep.iter().position(|(of, _, _)| *of == left);
        match (still_left(left.of), before) {
            (None, _) => self.tell(|ledger| ledger.descriptor_closed(left.of)),
            (Some(still), before) => {
                match (sleeps_at_edge(left).filter(|_| still && matters(left)), before) {
                    (Some(epoll), None) => asleep.push((left, epoll, Instant::now())),
                    (Some(epoll), Some(at)) if asleep[at].1 != epoll => {
                        asleep[at] = (left, epoll, Instant::now())
                    }
                    (Some(epoll), Some(at)) if asleep[at].2.elapsed() >= LEFT_FOR => {
                        self.tell(|ledger| ledger.overslept(left, epoll));
                    }
                    (Some(_), Some(_)) | (None, None) => {}
                    (None, Some(at)) => drop(asleep.swap_remove(at)),
                }
            }
        }
    }
}

/// Completion events matter only while completions lie in a queue of the channel. A program may
/// take an event for any of its queues, and poll them all.
fn matters(left: Left) -> bool {
    match left.reads {
        Reads::Completions => {
            live(left.of.handle as *mut ibv_comp_channel).is_ok_and(|obj| obj.holds_completions())
        }
        Reads::Asynchronous => true,
    }
}

/// Do events wait in a descriptor? `None` if the descriptor of this file no longer exists. Looks
/// through the library's own descriptor, because the program may close its descriptor at any time.
fn still_left(of: Descriptor) -> Option<bool> {
    let path = format!("/proc/self/fd/{}", of.number);
    // The number may belong to any file now, and opening this file may have an effect.
    if std::fs::metadata(&path).ok()?.ino() != of.file {
        return None;
    }
    let own = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).ok()?;
    (own.metadata().ok()?.ino() == of.file).then(|| is_readable(own.as_fd()))
}

/// The `epoll` in which the thread that took the last event sleeps, if this `epoll` watches the
/// descriptor for edges.
fn sleeps_at_edge(left: Left) -> Option<i32> {
    let epoll = endless_epoll(Task::own(left.thread).line().ok()?)?;
    let watched = std::fs::read_to_string(format!("/proc/self/fdinfo/{epoll}")).ok()?;
    watched.lines().any(|line| is_at_edge(line, left.of.file)).then_some(epoll)
}

/// The descriptor of an `epoll_wait` without a time limit, if a thread sleeps there.
fn endless_epoll(line: Line) -> Option<i32> {
    let Line::Blocked(call) = line else { return None };
    match call.wait()? {
        Wait { on: On::Epoll(epoll), limit: Limit::Endless, .. } => Some(epoll),
        _ => None,
    }
}

/// Does a line of an `epoll`'s `/proc/PID/fdinfo` say that the `epoll` watches this file for edges?
/// A program with `EPOLLONESHOT` asks for each event anew, and is told then.
fn is_at_edge(line: &str, file: u64) -> bool {
    Watched::parse(line).is_some_and(|watched| watched.inode == Some(file) && watched.is_at_edge())
}

#[cfg(test)]
mod tests {
    use super::*;
    use adverb_threads::call::parse;

    /// CHK-12: only sleep without a limit counts, and only in an `epoll` that reports edges.
    #[test]
    fn an_edge_and_an_endless_sleep_are_known() {
        let line = |number: libc::c_long, limit: &str| {
            format!(
                "{number} 0x5 0x7fe658000ba0 0x3ff {limit} 0x0 0x0 0x7fe6609e4a30 0x7fe661126f36\n"
            )
        };
        for (number, limit, epoll) in [
            (libc::SYS_epoll_pwait, "0xffffffff", Some(5)),
            (libc::SYS_epoll_pwait, "0xffffffffffffffff", Some(5)),
            (libc::SYS_epoll_pwait, "0x5dc", None),
            (libc::SYS_epoll_pwait2, "0x0", Some(5)),
            (libc::SYS_epoll_pwait2, "0x7fe660", None),
            (libc::SYS_read, "0xffffffff", None),
        ] {
            let line = parse(&line(number, limit)).unwrap();
            assert_eq!(endless_epoll(line), epoll, "{number} {limit}");
        }
        assert_eq!(endless_epoll(Line::Running), None);
        for (events, ino, expected) in [
            ("80000019", "97133d", true),
            ("19", "97133d", false),
            ("c0000019", "97133d", false),
            ("80000018", "97133d", false),
            ("80000019", "97133e", false),
        ] {
            let line = format!(
                "tfd:        3 events: {events} data:                3  pos:0 ino:{ino} sdev:f"
            );
            assert_eq!(is_at_edge(&line, 0x97133d), expected, "{line}");
        }
        assert!(!is_at_edge("flags:\t02000002", 0));
    }
}
