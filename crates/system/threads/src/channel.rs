//! The threads of this process that wait for a completion channel.
use super::call::{Call, Limit, Line, On, Wait, Watched, polled, selected};
use super::task::Task;
use nix::errno::Errno;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::getpid;
use std::io::{ErrorKind, IoSliceMut};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

/// An `epoll` may watch another `epoll`, and so on. The kernel allows a chain of five.
const DEPTH: usize = 5;
/// The most entries read from a `pollfd` array, and the most descriptors of a set.
const MOST: u64 = 1 << 16;
/// A shorter wait counts as a pause between two polls. The same time is waited where the kernel
/// does not show what a thread waits for.
pub const PAUSE: Duration = Duration::from_secs(1);

/// The activity of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// The thread runs, or sleeps for a time.
    Works,
    /// The thread waits without a limit: for another thread of this process (`true`), or for
    /// something else that is not the channel.
    Rests(bool),
    /// The thread waits for an event of the channel; `pause`: for less than [`PAUSE`].
    Waits {
        /// For less than [`PAUSE`].
        pause: bool,
    },
    /// The kernel does not show what the thread does.
    Hidden,
}

/// A thread, its activity and its call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// The thread's number (`gettid`).
    pub id: i32,
    /// The thread's name.
    pub name: String,
    /// The thread's activity.
    pub doing: Doing,
    /// The system call.
    pub call: String,
}

/// The channel that a thread may wait for.
#[derive(Clone, Debug)]
pub struct Channel {
    /// The pipe's inode number. A program may have duplicates of the descriptor under other
    /// numbers.
    pub inode: u64,
    /// The channel sends a signal (`O_ASYNC`).
    pub signals: bool,
    /// Threads inside a get-event call of the channel.
    pub getting: Vec<i32>,
}

/// The activity of a thread of this process. `None` if the thread has ended. `others`: the living
/// threads.
#[must_use]
pub fn look(id: i32, channel: &Channel, others: &[i32]) -> Option<Thread> {
    let getting = channel.getting.contains(&id);
    let task = Task::own(id);
    let line = match task.drives() {
        Some(call) => Ok(Line::Blocked(call)),
        None => task.line(),
    };
    let (doing, call) = match line {
        Ok(Line::Running | Line::Outside) => (Doing::Works, String::new()),
        Ok(Line::Blocked(call)) => blocked(call, channel, others),
        // ESRCH: the thread is just ending.
        Err(e) if e.raw_os_error() == Some(Errno::ESRCH as i32) => return None,
        Err(e) if e.kind() == ErrorKind::NotFound && has_ended(task) => return None,
        Err(_) => (Doing::Hidden, String::new()),
    };
    let (doing, call) = match doing {
        Doing::Waits { .. } if getting => (doing, "ibv_get_cq_event".to_owned()),
        // Packets wake the thread, and the thread sleeps again.
        _ if getting => (Doing::Waits { pause: true }, "ibv_get_cq_event".to_owned()),
        _ => (doing, call),
    };
    let name = task.status().map_or_else(String::new, |status| status.name);
    Some(Thread { id, name, doing, call })
}

/// The kernel lists threads, and not this thread.
fn has_ended(task: Task) -> bool {
    let exists = |path: String| std::fs::exists(path).unwrap_or(false);
    exists(Task::own(getpid().as_raw()).call_path().to_string()) && !exists(task.to_string())
}

/// The activity of a thread that is blocked in a system call, and the call in words.
fn blocked(call: Call, channel: &Channel, others: &[i32]) -> (Doing, String) {
    let Some(wait) = call.wait() else { return (Doing::Works, String::new()) };
    match wait.on {
        On::Uring => return (Doing::Hidden, wait.name.to_owned()),
        On::Signal if channel.signals => return waits(wait, wait.name.to_owned()),
        _ => {}
    }
    match waits_for(wait.on, channel) {
        Ok(Some(fd)) => waits(wait, format!("{}({fd})", wait.name)),
        // The call's memory no longer exists, so the thread has left the call.
        Err(Errno::EFAULT) => (Doing::Works, String::new()),
        Err(_) => (Doing::Hidden, wait.name.to_owned()),
        Ok(None) if wait.limit != Limit::Endless => (Doing::Works, wait.name.to_owned()),
        Ok(None) => {
            let own = match wait.on {
                // `pthread_join` waits for a word that contains the number of the other thread.
                On::Futex { private, value } => private || others.contains(&value.cast_signed()),
                _ => false,
            };
            (Doing::Rests(own), wait.name.to_owned())
        }
    }
}

/// The call waits for the channel: for how long?
fn waits(wait: Wait, call: String) -> (Doing, String) {
    let limit = match wait.limit {
        Limit::Endless => None,
        Limit::For(time) => Some(time),
        Limit::Timespec(address) | Limit::Timeval(address) => {
            let mut bytes = [0; 16];
            let read = memory(address, &mut bytes).ok();
            // An unreadable limit counts as a short limit.
            Some(read.and_then(|()| wait.limit.of_memory(bytes)).unwrap_or_default())
        }
    };
    (Doing::Waits { pause: limit.is_some_and(|time| time < PAUSE) }, call)
}

/// The descriptor of the channel, or of an `epoll` that watches the channel, in this call.
fn waits_for(on: On, channel: &Channel) -> nix::Result<Option<i32>> {
    let is_channel = |fd: i32| is_pipe(fd, channel.inode);
    Ok(match on {
        On::Read(fd) => is_channel(fd).then_some(fd),
        On::Poll { array, entries } => {
            let mut bytes = vec![0; entries.min(MOST) as usize * 8];
            memory(array, &mut bytes)?;
            polled(&bytes, is_channel)
        }
        On::Select { set, below } if set != 0 => {
            // The kernel takes the number as an `int`, and reads whole words.
            let below = u64::from(below as u32).min(MOST);
            let mut bytes = vec![0; below.div_ceil(64) as usize * 8];
            memory(set, &mut bytes)?;
            selected(&bytes, below, is_channel)
        }
        On::Epoll(fd) => watches(fd, channel.inode, DEPTH).then_some(fd),
        _ => None,
    })
}

fn link_of(fd: i32) -> Option<String> {
    std::fs::read_link(format!("/proc/self/fd/{fd}")).ok()?.into_os_string().into_string().ok()
}

fn is_pipe(fd: i32, inode: u64) -> bool {
    link_of(fd).is_some_and(|link| link == format!("pipe:[{inode}]"))
}

/// Does an `epoll`, or an `epoll` watched by it, report when the pipe is readable?
fn watches(epoll: i32, inode: u64, depth: usize) -> bool {
    let Ok(text) = std::fs::read_to_string(format!("/proc/self/fdinfo/{epoll}")) else {
        return false;
    };
    let all: Vec<Watched> =
        text.lines().filter_map(Watched::parse).filter(Watched::reads).collect();
    // Another file system may use the same inode number, so the link decides. If the program has
    // closed this descriptor and kept a duplicate, the inode number decides.
    let is_it = |w: &Watched| match w.inode {
        Some(found) => found == inode && link_of(w.fd).is_none_or(|link| !link.starts_with('/')),
        None => is_pipe(w.fd, inode),
    };
    if all.iter().any(is_it) {
        return true;
    }
    if depth <= 1 {
        return false;
    }
    // All descriptors of this kind share an inode.
    let own = std::fs::metadata(format!("/proc/self/fd/{epoll}")).ok().map(|found| found.ino());
    let is_epoll = |w: &&Watched| {
        let likely = own.is_none() || w.inode.is_none() || w.inode == own;
        likely && link_of(w.fd).is_some_and(|link| link == "anon_inode:[eventpoll]")
    };
    all.iter().filter(is_epoll).any(|w| watches(w.fd, inode, depth - 1))
}

/// Copies memory of this process by the kernel, because the memory may go at any moment.
fn memory(address: u64, into: &mut [u8]) -> nix::Result<()> {
    if into.is_empty() {
        return Ok(());
    }
    let len = into.len();
    let base = usize::try_from(address).map_err(|_| Errno::EFAULT)?;
    let read =
        process_vm_readv(getpid(), &mut [IoSliceMut::new(into)], &[RemoteIoVec { base, len }])?;
    if read == len { Ok(()) } else { Err(Errno::EFAULT) }
}
