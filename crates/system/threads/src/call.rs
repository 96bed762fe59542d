//! System calls that wait, as shown in a line of `/proc/PID/task/TID/syscall`.
use nix::libc::{self, c_long};
use std::time::Duration;

/// Flag of a futex operation: no other process uses the word.
const PRIVATE: u64 = libc::FUTEX_PRIVATE_FLAG as u64;

/// The content of a line of `/proc/PID/task/TID/syscall`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// The thread runs, or waits for a processor.
    Running,
    /// The thread is blocked outside of a system call, such as in a page fault.
    Outside,
    /// The thread is blocked in a system call.
    Blocked(Call),
}

/// A system call with its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The number of the call.
    pub number: c_long,
    arguments: [u64; 6],
    /// The thread's stack pointer and program counter.
    pub registers: [u64; 2],
    /// The call of the program for which the thread is in this call.
    in_place_of: Option<ReplacedCall>,
}

/// The program's call, in place of which a thread sleeps in a `ppoll` of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplacedCall {
    /// The number of the call.
    pub number: c_long,
    /// The `epoll` set for which the call waits.
    pub set: Option<i32>,
    /// How long the call waits. `None`: until its event comes.
    pub limit: Option<Duration>,
}

impl ReplacedCall {
    /// The kernel's name of the call. `None` for a call that does not wait.
    #[must_use]
    pub fn name(&self) -> Option<&'static str> {
        let call = Call { number: self.number, ..Call::ppoll([0; 2], *self) };
        Some(Call { in_place_of: None, ..call }.wait()?.name)
    }
}

/// A system call that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The kernel's name of the call.
    pub name: &'static str,
    /// What the call waits for.
    pub on: On,
    /// How long the call waits.
    pub limit: Limit,
}

/// What a system call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// Bytes of a descriptor.
    Read(i32),
    /// Descriptors in an array of `pollfd`.
    Poll {
        /// Address of the array.
        array: u64,
        /// Entries in the array.
        entries: u64,
    },
    /// Descriptors in a set of `select`.
    Select {
        /// Address of the set of descriptors to read from.
        set: u64,
        /// Only descriptors below this number count.
        below: u64,
    },
    /// Descriptors that an `epoll` watches.
    Epoll(i32),
    /// A signal.
    Signal,
    /// A word of memory.
    Futex {
        /// Only threads of this process can wake the thread.
        private: bool,
        /// The value of the word. For `pthread_join`: the number of the thread to join.
        value: u32,
    },
    /// Requests of an `io_uring`, which the call does not name.
    Uring,
    /// An object that is never a completion channel.
    Else,
}

/// How long a system call waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Until the call's event comes.
    Endless,
    /// For this time.
    For(Duration),
    /// For the `timespec` at this address.
    Timespec(u64),
    /// For the `timeval` at this address.
    Timeval(u64),
}

impl Limit {
    fn milliseconds(argument: u64) -> Limit {
        // The kernel takes an `int`; a negative value means no limit.
        u32::try_from((argument as u32).cast_signed())
            .map_or(Limit::Endless, |ms| Limit::For(Duration::from_millis(ms.into())))
    }
    fn timespec(address: u64) -> Limit {
        if address == 0 { Limit::Endless } else { Limit::Timespec(address) }
    }
    fn timeval(address: u64) -> Limit {
        if address == 0 { Limit::Endless } else { Limit::Timeval(address) }
    }

    /// The limit in 16 bytes of memory. `None` for a value that the kernel refuses.
    #[must_use]
    pub fn of_memory(self, bytes: [u8; 16]) -> Option<Duration> {
        let word =
            |at: usize| i64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let (seconds, rest) = (u64::try_from(word(0)).ok()?, u32::try_from(word(8)).ok()?);
        let nanos = if matches!(self, Limit::Timeval(_)) { rest.checked_mul(1000)? } else { rest };
        Some(Duration::new(seconds, nanos.min(999_999_999)))
    }
}

/// Reads a line of `/proc/PID/task/TID/syscall`. `None` for a text in another format. Allocates
/// nothing, as the child of a fork may read such a line.
#[must_use]
pub fn parse(line: &str) -> Option<Line> {
    let mut words = line.split_whitespace();
    let number = match words.next()? {
        "running" => return Some(Line::Running),
        "-1" => return Some(Line::Outside),
        number => number.parse().ok()?,
    };
    let mut numbers = [0; 8];
    for word in &mut numbers {
        *word = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
    }
    let [a, b, c, d, e, f, registers @ ..] = numbers;
    Some(Line::Blocked(Call {
        number,
        arguments: [a, b, c, d, e, f],
        registers,
        in_place_of: None,
    }))
}

impl Call {
    /// A `ppoll` of this array (address and entries) that stands for another call.
    pub(crate) fn ppoll([array, entries]: [u64; 2], call: ReplacedCall) -> Call {
        Call {
            number: libc::SYS_ppoll,
            arguments: [array, entries, 0, 0, 0, 0],
            registers: [0; 2],
            in_place_of: Some(call),
        }
    }

    /// The same call with these registers.
    pub(crate) fn at(self, registers: [u64; 2]) -> Call {
        Call { registers, ..self }
    }

    /// The first argument.
    #[must_use]
    pub fn first_argument(&self) -> u64 {
        self.arguments[0]
    }

    /// The event for which the call waits. `None` for a call that works, such as a write to a disk.
    #[must_use]
    pub fn wait(&self) -> Option<Wait> {
        if let Some(call) = self.in_place_of {
            let own = Call { in_place_of: None, ..*self }.wait()?;
            let limit = call.limit.map_or(Limit::Endless, Limit::For);
            return Some(Wait {
                name: call.name()?,
                on: call.set.map_or(own.on, On::Epoll),
                limit,
            });
        }
        let a = self.arguments;
        let fd = a[0] as i32;
        let poll = On::Poll { array: a[0], entries: a[1] };
        let select = On::Select { below: a[0], set: a[1] };
        let (name, on, limit) = match self.number {
            libc::SYS_read => ("read", On::Read(fd), Limit::Endless),
            libc::SYS_readv => ("readv", On::Read(fd), Limit::Endless),
            libc::SYS_ppoll => ("ppoll", poll, Limit::timespec(a[2])),
            libc::SYS_pselect6 => ("pselect6", select, Limit::timespec(a[4])),
            libc::SYS_epoll_pwait => ("epoll_pwait", On::Epoll(fd), Limit::milliseconds(a[3])),
            libc::SYS_epoll_pwait2 => ("epoll_pwait2", On::Epoll(fd), Limit::timespec(a[3])),
            libc::SYS_rt_sigtimedwait => ("rt_sigtimedwait", On::Signal, Limit::timespec(a[2])),
            libc::SYS_rt_sigsuspend => ("rt_sigsuspend", On::Signal, Limit::Endless),
            libc::SYS_futex => (
                "futex",
                On::Futex { private: a[1] & PRIVATE != 0, value: a[2] as u32 },
                Limit::timespec(a[3]),
            ),
            libc::SYS_futex_waitv => ("futex_waitv", On::Else, Limit::timespec(a[3])),
            libc::SYS_io_uring_enter => ("io_uring_enter", On::Uring, Limit::Endless),
            libc::SYS_nanosleep => ("nanosleep", On::Else, Limit::timespec(a[0])),
            libc::SYS_clock_nanosleep => ("clock_nanosleep", On::Else, Limit::timespec(a[2])),
            libc::SYS_recvfrom => ("recvfrom", On::Else, Limit::Endless),
            libc::SYS_recvmsg => ("recvmsg", On::Else, Limit::Endless),
            libc::SYS_accept => ("accept", On::Else, Limit::Endless),
            libc::SYS_accept4 => ("accept4", On::Else, Limit::Endless),
            libc::SYS_wait4 => ("wait4", On::Else, Limit::Endless),
            libc::SYS_waitid => ("waitid", On::Else, Limit::Endless),
            number => self.old_wait(number)?,
        };
        Some(Wait { name, on, limit })
    }

    /// Does the thread sleep until another thread, a process or a signal wakes the thread?
    #[must_use]
    pub fn sleeps_for_ever(&self) -> bool {
        self.wait().is_some_and(|wait| wait.on != On::Uring && wait.limit == Limit::Endless)
    }

    /// The address of the word, if the call is an operation on a futex.
    #[must_use]
    pub fn futex(&self) -> Option<u64> {
        (self.number == libc::SYS_futex).then_some(self.arguments[0])
    }

    /// Calls that do not exist on newer processors.
    #[cfg(target_arch = "x86_64")]
    fn old_wait(&self, number: c_long) -> Option<(&'static str, On, Limit)> {
        let a = self.arguments;
        Some(match number {
            libc::SYS_poll => {
                ("poll", On::Poll { array: a[0], entries: a[1] }, Limit::milliseconds(a[2]))
            }
            libc::SYS_select => {
                ("select", On::Select { below: a[0], set: a[1] }, Limit::timeval(a[4]))
            }
            libc::SYS_epoll_wait => {
                ("epoll_wait", On::Epoll(a[0] as i32), Limit::milliseconds(a[3]))
            }
            libc::SYS_pause => ("pause", On::Signal, Limit::Endless),
            _ => return None,
        })
    }
    #[cfg(not(target_arch = "x86_64"))]
    fn old_wait(&self, _: c_long) -> Option<(&'static str, On, Limit)> {
        None
    }
}

/// Does an array of `pollfd` ask whether any of these descriptors is readable? Answers the first.
pub fn polled(array: &[u8], mut is_ours: impl FnMut(i32) -> bool) -> Option<i32> {
    let entry = |bytes: &[u8]| {
        let fd = i32::from_ne_bytes(bytes[..4].try_into().expect("four bytes"));
        let events = i16::from_ne_bytes(bytes[4..6].try_into().expect("two bytes"));
        (fd, i32::from(events))
    };
    let reads = i32::from(libc::POLLIN | libc::POLLRDNORM);
    let asked =
        array.chunks_exact(8).map(entry).filter(|(fd, events)| *fd >= 0 && events & reads != 0);
    asked.map(|(fd, _)| fd).find(|fd| is_ours(*fd))
}

/// Does a set of `select` contain any of these descriptors? Answers the first.
pub fn selected(set: &[u8], below: u64, mut is_ours: impl FnMut(i32) -> bool) -> Option<i32> {
    let most = below.min(set.len() as u64 * 8) as usize;
    // The set is an array of `long`. The lowest bit is the lowest descriptor.
    let bit = |n: usize| {
        let byte = if cfg!(target_endian = "little") { n / 8 } else { (n / 8) ^ 7 };
        set[byte] >> (n % 8) & 1 == 1
    };
    (0..most).filter(|n| bit(*n)).map(|n| n as i32).find(|fd| is_ours(*fd))
}

/// A descriptor watched by an `epoll`, as shown in a line of `/proc/PID/fdinfo/EPFD`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watched {
    /// Number of the descriptor when it was added.
    pub fd: i32,
    /// The requested events.
    pub events: u32,
    /// Inode number of the file, on kernels that show it.
    pub inode: Option<u64>,
}

impl Watched {
    /// Reads a line. `None` for lines about other things.
    #[must_use]
    pub fn parse(line: &str) -> Option<Watched> {
        let mut words = line.split_whitespace();
        let mut watched = Watched { fd: -1, events: 0, inode: None };
        if words.next()? != "tfd:" {
            return None;
        }
        watched.fd = words.next()?.parse().ok()?;
        while let Some(word) = words.next() {
            if word == "events:" {
                watched.events = u32::from_str_radix(words.next()?, 16).ok()?;
            } else if let Some(inode) = word.strip_prefix("ino:") {
                watched.inode = Some(u64::from_str_radix(inode, 16).ok()?);
            }
        }
        Some(watched)
    }

    /// Does the `epoll` report when the descriptor is readable? After an event `EPOLLONESHOT`
    /// clears this until the program asks again.
    #[must_use]
    pub fn reads(&self) -> bool {
        self.events & (libc::EPOLLIN | libc::EPOLLRDNORM).cast_unsigned() != 0
    }

    /// Does the `epoll` report each edge, again and again?
    #[must_use]
    pub fn is_at_edge(&self) -> bool {
        let has = |bit: i32| self.events & bit.cast_unsigned() != 0;
        has(libc::EPOLLIN) && has(libc::EPOLLET) && !has(libc::EPOLLONESHOT)
    }
}
