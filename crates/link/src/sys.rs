//! The system calls of the link that need raw structures: message headers with ancillary data,
//! reuseport programs, abstract socket names. Nothing here knows RoCE.
//!
//! What is called under locks goes by `syscall`, as the C library's functions of the same names are
//! cancellation points: a thread that `pthread_cancel` ends in one leaves the locks held for ever.
#![allow(unsafe_code)]

mod cancel;
mod ending;
mod group;
mod local;
pub(crate) mod netlink;
mod packet;

pub use cancel::{Uncancelled, wait_readable};
pub(crate) use ending::close_foreign;
pub use ending::end_connection;
pub(crate) use group::{join_group, multicast_interface, no_groups};
pub(crate) use local::{
    EVENTS, Local, accept, any_of, break_off, connect, is_local_stream, listen, message_socket, peer,
    recv_local, send_byte, send_local, stream_pair, take_bytes, take_no_more, unwatch, wait_any, watch,
    watch_for,
};
pub(crate) use packet::{packet_socket, recv_frame, send_frame};

use std::io;
use std::mem::{self, MaybeUninit, offset_of, size_of};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

use libc::{c_int, c_void, socklen_t};

pub(crate) const SOL_UDP: c_int = 17;
pub(crate) const UDP_SEGMENT: c_int = 103;
pub(crate) const UDP_GRO: c_int = 104;
pub(crate) const UDP_NO_CHECK6_RX: c_int = 102;
/// `SK_MEMINFO_DROPS` and the number of words `SO_MEMINFO` gives (linux/sock_diag.h).
const SK_MEMINFO_DROPS: usize = 8;
const SK_MEMINFO_VARS: usize = 9;
/// Largest datagram UDP can carry, rounded up: the size of a receive buffer.
pub(crate) const DATAGRAM: usize = 65536;
/// Most datagrams a `recvmmsg` takes.
pub(crate) const MAX_DATAGRAMS: usize = 16;

/// How many descriptors a link can hold.
pub(crate) const FD_LIMIT: usize = 2048;

/// All descriptors of a link, readable without a lock, so that the child of a fork can close them
/// from a signal-safe context whatever the parent's threads held.
pub(crate) struct FdTable {
    fds: [AtomicI32; FD_LIMIT],
    /// What each was when it came: a program that closes all descriptors may have put its own under
    /// the number since.
    ids: [AtomicU64; FD_LIMIT],
}

impl FdTable {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(FdTable {
            fds: [const { AtomicI32::new(-1) }; FD_LIMIT],
            ids: [const { AtomicU64::new(0) }; FD_LIMIT],
        })
    }

    /// Takes the descriptor over; closes it when there is no room.
    fn adopt(self: &Arc<Self>, fd: RawFd) -> io::Result<Fd> {
        self.adopt_as(fd, false)
    }

    /// The same for a socket in which others may leave descriptors.
    fn adopt_connection(self: &Arc<Self>, fd: RawFd) -> io::Result<Fd> {
        self.adopt_as(fd, true)
    }

    fn adopt_as(self: &Arc<Self>, fd: RawFd, connects: bool) -> io::Result<Fd> {
        for (index, entry) in self.fds.iter().enumerate() {
            if entry.compare_exchange(-1, fd, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                self.ids[index].store(identity(fd), Ordering::Release);
                return Ok(Fd { table: self.clone(), index, connects });
            }
        }
        if connects {
            // SAFETY: the caller gave it up.
            end_connection(unsafe { OwnedFd::from_raw_fd(fd) });
        } else {
            close(fd);
        }
        Err(io::Error::from_raw_os_error(libc::E2BIG))
    }

    /// Closes everything. Async-signal-safe: atomics, fstat(2) and close(2) only.
    pub(crate) fn close_all(&self) {
        (0..FD_LIMIT).for_each(|index| self.close(index));
    }

    /// Closes one, unless the program has done so.
    fn close(&self, index: usize) {
        if let Some(fd) = self.take(index) {
            close(fd);
        }
    }

    /// Takes one out, unless the program has closed it.
    fn take(&self, index: usize) -> Option<RawFd> {
        let fd = self.fds[index].swap(-1, Ordering::AcqRel);
        (fd >= 0 && identity(fd) == self.ids[index].load(Ordering::Acquire)).then_some(fd)
    }
}

/// A descriptor owned by a table: closed when dropped, unless the table closed it before.
pub(crate) struct Fd {
    table: Arc<FdTable>,
    index: usize,
    /// Others may leave descriptors in it.
    connects: bool,
}

impl Fd {
    /// The descriptor; -1 after [`FdTable::close_all`], which every call then answers with EBADF.
    pub(crate) fn raw(&self) -> RawFd {
        self.table.fds[self.index].load(Ordering::Relaxed)
    }

    pub(crate) fn borrow(&self) -> Option<BorrowedFd<'_>> {
        let fd = self.raw();
        // SAFETY: the entry owns the descriptor, and it is closed only by dropping `self` or in the
        // child of a fork, where nobody uses the link any more.
        (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
    }
}

impl Drop for Fd {
    fn drop(&mut self) {
        match self.connects {
            // SAFETY: it was this entry's, which forgets it.
            true => self
                .table
                .take(self.index)
                .map_or((), |fd| end_connection(unsafe { OwnedFd::from_raw_fd(fd) })),
            false => self.table.close(self.index),
        }
    }
}

/// What a descriptor is, as far as device and inode say so.
fn identity(fd: RawFd) -> u64 {
    // SAFETY: the kernel writes the structure, of which all zeroes is a value too.
    let about = unsafe {
        let mut about = MaybeUninit::<libc::stat>::zeroed();
        libc::fstat(fd, about.as_mut_ptr());
        about.assume_init()
    };
    about.st_ino ^ about.st_dev.rotate_left(40)
}

fn close(fd: RawFd) {
    // SAFETY: the caller owns the descriptor and forgets it.
    unsafe { libc::syscall(libc::SYS_close, fd) };
}

fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn check_len(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Has a file capabilities, so that the loader ignores the environment of whoever runs it?
#[must_use]
pub fn has_capabilities(path: &std::path::Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let Ok(path) = std::ffi::CString::new(path.as_os_str().as_bytes()) else { return false };
    let name = c"security.capability";
    // SAFETY: two strings; without room for a value the kernel answers how long it is.
    unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), std::ptr::null_mut(), 0) > 0 }
}

/// A descriptor that is readable once the process has ended.
///
/// # Errors
/// No such process, no descriptors, or a kernel older than 5.3.
pub fn process_end(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: plain integers.
    let fd = check_len(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } as isize)?;
    // SAFETY: the kernel has just made it for this process, close-on-exec.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Asks the scheduler to run this thread in slices so short, in nanoseconds: it gets no more of a
/// processor, but when it wakes it goes ahead of threads that spin through longer ones. Linux 6.12;
/// an older kernel takes no notice.
///
/// # Errors
/// The kernel's, if it knows nothing of this or a filter forbids it.
pub fn short_slices(slice: u64) -> io::Result<()> {
    let mut attr = std::mem::MaybeUninit::<libc::sched_attr>::zeroed();
    let size = size_of::<libc::sched_attr>();
    // SAFETY: the kernel writes at most `size` bytes, and all zeroes is a value of the structure
    // too.
    let mut attr = unsafe {
        check(libc::syscall(libc::SYS_sched_getattr, 0, attr.as_mut_ptr(), size, 0) as c_int)?;
        attr.assume_init()
    };
    if attr.sched_policy != libc::SCHED_OTHER as u32 {
        return Ok(());
    }
    attr.sched_runtime = slice;
    // SAFETY: the kernel reads a structure that says its size.
    check(unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) } as c_int).map(drop)
}

/// A variable of the environment by which somebody chooses what this process does; none in a
/// program with more rights than whoever started it (set-user-ID, file capabilities): those rights
/// are not for who has the environment.
#[must_use]
pub fn chosen(name: &str) -> Option<std::ffi::OsString> {
    // SAFETY: asks.
    let privileged = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    if privileged { None } else { std::env::var_os(name) }
}

pub(crate) fn effective_uid() -> u32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::geteuid() }
}

pub(crate) fn udp_socket(table: &Arc<FdTable>, v6: bool) -> io::Result<Fd> {
    let family = if v6 { libc::AF_INET6 } else { libc::AF_INET };
    // SAFETY: plain integers.
    let fd = check(unsafe {
        libc::socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0)
    })?;
    table.adopt(fd)
}

pub(crate) fn set_option(fd: &Fd, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
    // SAFETY: `value` lives through the call and the length is its own.
    check(unsafe {
        libc::setsockopt(fd.raw(), level, name, (&raw const value).cast(), size_of::<c_int>() as socklen_t)
    })
    .map(drop)
}

pub(crate) fn get_option(fd: &Fd, level: c_int, name: c_int) -> io::Result<c_int> {
    let mut value: c_int = 0;
    let mut len = size_of::<c_int>() as socklen_t;
    // SAFETY: `value` has `len` bytes.
    check(unsafe { libc::getsockopt(fd.raw(), level, name, (&raw mut value).cast(), &mut len) })?;
    Ok(value)
}

/// Datagrams the kernel dropped at this socket since it was made.
pub(crate) fn kernel_drops(fd: &Fd) -> u64 {
    let mut words = [0u32; SK_MEMINFO_VARS];
    let mut len = size_of_val(&words) as socklen_t;
    // SAFETY: `words` has `len` bytes.
    let result = unsafe {
        libc::getsockopt(fd.raw(), libc::SOL_SOCKET, libc::SO_MEMINFO, words.as_mut_ptr().cast(), &mut len)
    };
    if result < 0 { 0 } else { u64::from(words[SK_MEMINFO_DROPS]) }
}

/// One instruction of a classic BPF program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Insn(pub(crate) u16, pub(crate) u8, pub(crate) u8, pub(crate) u32);

/// Makes the program choose the socket of the reuseport group `fd` belongs to.
pub(crate) fn attach_reuseport(fd: &Fd, program: &[Insn]) -> io::Result<()> {
    attach(fd, libc::SO_ATTACH_REUSEPORT_CBPF, program)
}

/// Has a socket take what the program does not answer with 0.
pub(crate) fn attach_filter(fd: &Fd, program: &[Insn]) -> io::Result<()> {
    attach(fd, libc::SO_ATTACH_FILTER, program)
}

fn attach(fd: &Fd, option: c_int, program: &[Insn]) -> io::Result<()> {
    let mut code: Vec<libc::sock_filter> =
        program.iter().map(|&Insn(code, jt, jf, k)| libc::sock_filter { code, jt, jf, k }).collect();
    let len = u16::try_from(code.len()).map_err(|_| io::Error::from_raw_os_error(libc::E2BIG))?;
    let program = libc::sock_fprog { len, filter: code.as_mut_ptr() };
    let (at, size) = ((&raw const program).cast(), size_of::<libc::sock_fprog>() as socklen_t);
    // SAFETY: `program` points to `len` instructions that live through the call; the kernel checks
    // them.
    check(unsafe { libc::setsockopt(fd.raw(), libc::SOL_SOCKET, option, at, size) }).map(drop)
}

/// A socket address in the kernel's form.
#[derive(Clone, Copy)]
pub(crate) struct RawAddr {
    storage: libc::sockaddr_storage,
    len: socklen_t,
}

impl RawAddr {
    fn empty() -> Self {
        // SAFETY: all zeros is a value of this plain structure (family unspecified).
        let storage = unsafe { mem::zeroed() };
        RawAddr { storage, len: 0 }
    }

    pub(crate) fn inet(addr: &SocketAddr) -> Self {
        let mut raw = RawAddr::empty();
        match addr {
            SocketAddr::V4(v4) => {
                let sin = libc::sockaddr_in {
                    sin_family: libc::AF_INET as _,
                    sin_port: v4.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                    sin_zero: [0; 8],
                };
                // SAFETY: sockaddr_storage is larger and at least as aligned as every socket
                // address.
                unsafe { (&raw mut raw.storage).cast::<libc::sockaddr_in>().write(sin) };
                raw.len = size_of::<libc::sockaddr_in>() as socklen_t;
            }
            SocketAddr::V6(v6) => {
                let sin6 = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as _,
                    sin6_port: v6.port().to_be(),
                    sin6_flowinfo: 0,
                    sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                    sin6_scope_id: v6.scope_id(),
                };
                // SAFETY: as above.
                unsafe { (&raw mut raw.storage).cast::<libc::sockaddr_in6>().write(sin6) };
                raw.len = size_of::<libc::sockaddr_in6>() as socklen_t;
            }
        }
        raw
    }

    /// The abstract `AF_UNIX` name; cut to what a name can hold.
    pub(crate) fn abstract_name(name: &str) -> Self {
        let mut raw = RawAddr::empty();
        // SAFETY: all zeros is a value of this plain structure.
        let mut sun: libc::sockaddr_un = unsafe { mem::zeroed() };
        sun.sun_family = libc::AF_UNIX as _;
        let bytes = &name.as_bytes()[..name.len().min(sun.sun_path.len() - 1)];
        for (to, from) in sun.sun_path[1..].iter_mut().zip(bytes) {
            *to = *from as libc::c_char;
        }
        // SAFETY: sockaddr_storage is larger and at least as aligned as every socket address.
        unsafe { (&raw mut raw.storage).cast::<libc::sockaddr_un>().write(sun) };
        raw.len = (offset_of!(libc::sockaddr_un, sun_path) + 1 + bytes.len()) as socklen_t;
        raw
    }

    fn to_inet(self) -> Option<SocketAddr> {
        match c_int::from(self.storage.ss_family) {
            libc::AF_INET => {
                // SAFETY: the family says which structure it is, and storage is large enough.
                let sin = unsafe { (&raw const self.storage).cast::<libc::sockaddr_in>().read() };
                let ip = Ipv4Addr::from(sin.sin_addr.s_addr.to_ne_bytes());
                Some(SocketAddrV4::new(ip, u16::from_be(sin.sin_port)).into())
            }
            libc::AF_INET6 => {
                // SAFETY: as above.
                let sin6 = unsafe { (&raw const self.storage).cast::<libc::sockaddr_in6>().read() };
                let ip = Ipv6Addr::from(sin6.sin6_addr.s6_addr);
                Some(SocketAddrV6::new(ip, u16::from_be(sin6.sin6_port), 0, sin6.sin6_scope_id).into())
            }
            _ => None,
        }
    }

    fn as_mut_ptr(&mut self) -> *mut c_void {
        (&raw mut self.storage).cast()
    }
}

pub(crate) fn bind(fd: &Fd, addr: &RawAddr) -> io::Result<()> {
    // SAFETY: `addr` holds `len` bytes of an address.
    check(unsafe { libc::bind(fd.raw(), (&raw const addr.storage).cast(), addr.len) }).map(drop)
}

/// The port an IP socket is bound to.
pub(crate) fn local_port(fd: &Fd) -> io::Result<u16> {
    let mut addr = RawAddr::empty();
    let mut len = size_of::<libc::sockaddr_storage>() as socklen_t;
    // SAFETY: the storage has `len` bytes.
    check(unsafe { libc::getsockname(fd.raw(), addr.as_mut_ptr().cast(), &mut len) })?;
    addr.to_inet().map(|addr| addr.port()).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Waits until one of the descriptors (at most 64) has one of the events, or a signal comes; gives
/// back which.
pub(crate) fn poll(fds: &[RawFd], events: i16, wait: Duration) -> io::Result<u64> {
    let mut polls = [libc::pollfd { fd: -1, events, revents: 0 }; 64];
    let count = fds.len().min(64);
    for (poll, &fd) in polls.iter_mut().zip(fds) {
        poll.fd = fd;
    }
    match poll_raw(&mut polls[..count], wait) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(0),
        result => result?,
    };
    Ok(polls[..count].iter().enumerate().fold(0, |set, (i, p)| set | u64::from(p.revents != 0) << i))
}

/// `poll` that is no cancellation point.
fn poll_raw(polls: &mut [libc::pollfd], wait: Duration) -> io::Result<usize> {
    let mut wait = timespec(wait);
    // SAFETY: the entries and the time are writable and live through the call; no signal mask.
    check_len(unsafe {
        libc::syscall(
            libc::SYS_ppoll,
            polls.as_mut_ptr(),
            polls.len(),
            &raw mut wait,
            ptr::null::<libc::sigset_t>(),
            0usize,
        )
    } as isize)
}

fn timespec(time: Duration) -> libc::timespec {
    let tv_sec = time.as_secs().try_into().unwrap_or(libc::time_t::MAX);
    libc::timespec { tv_sec, tv_nsec: time.subsec_nanos().into() }
}

/// Adds one to the count of an `eventfd`; no cancellation point.
pub fn add_token(fd: BorrowedFd<'_>) {
    let one = 1u64;
    // SAFETY: eight bytes to read. It cannot fail: the count stays far below 2^64.
    unsafe { libc::syscall(libc::SYS_write, fd.as_raw_fd(), &raw const one, size_of::<u64>()) };
}

/// Adds a byte to a pipe that is written without blocking; `false`: there is no room. No
/// cancellation point.
#[must_use]
pub fn add_byte(fd: BorrowedFd<'_>) -> bool {
    let byte = 0u8;
    // SAFETY: one byte to read.
    unsafe { libc::syscall(libc::SYS_write, fd.as_raw_fd(), &raw const byte, 1usize) == 1 }
}

/// Takes a byte from a pipe, if one is in it; no cancellation point. `blocks`: a read of an empty
/// one would block.
pub fn take_byte(fd: BorrowedFd<'_>, blocks: bool) {
    let mut polls = [libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 }];
    if !blocks || matches!(poll_raw(&mut polls, Duration::ZERO), Ok(1)) {
        let mut byte = 0u8;
        // SAFETY: one byte to write.
        unsafe { libc::syscall(libc::SYS_read, fd.as_raw_fd(), &raw mut byte, 1usize) };
    }
}

/// Does the program ask for calls that a signal interrupts to be started again, of every handler it
/// has? Not those of faults, which interrupt no call and which runtimes install for themselves.
#[must_use]
pub fn signals_restart() -> bool {
    const FAULTS: [c_int; 6] =
        [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGSYS];
    let mut handlers = (1..=64).filter(|signal| !FAULTS.contains(signal)).filter_map(|signal| {
        let mut now = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: the action is only asked for, and all zeros is one too; the C library refuses its
        // own signals.
        let now = unsafe {
            check(libc::sigaction(signal, ptr::null(), now.as_mut_ptr())).ok()?;
            now.assume_init()
        };
        let is_handler = now.sa_sigaction != libc::SIG_DFL && now.sa_sigaction != libc::SIG_IGN;
        is_handler.then_some(now.sa_flags & libc::SA_RESTART != 0)
    });
    // Without any, the one that interrupted is gone already.
    handlers.next().is_some_and(|first| first && handlers.all(|restarts| restarts))
}

/// Room for ancillary data, aligned as `cmsghdr` wants it.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; 128]);

/// Ancillary data of a datagram to send.
#[derive(Clone, Copy, Default)]
pub(crate) struct SendOptions {
    /// Segment size of a GSO run; 0 for a single datagram.
    pub(crate) segment: u16,
    /// Traffic class; 0 leaves the socket's.
    pub(crate) traffic_class: u8,
    /// TTL or hop limit; 0 leaves the socket's.
    pub(crate) hop_limit: u8,
}

struct ControlWriter<'a> {
    header: &'a mut libc::msghdr,
    used: usize,
}

impl ControlWriter<'_> {
    /// Appends one item. `T` is plain data.
    fn put<T: Copy>(&mut self, level: c_int, kind: c_int, value: T) {
        // SAFETY: arithmetic on a length only.
        let space = unsafe { libc::CMSG_SPACE(size_of::<T>() as u32) } as usize;
        assert!(self.used + space <= size_of::<Control>());
        // SAFETY: msg_control points to a `Control` and the item ends within it (asserted); it is
        // aligned because the buffer is and CMSG_SPACE keeps the alignment.
        unsafe {
            let item = self.header.msg_control.cast::<u8>().add(self.used).cast::<libc::cmsghdr>();
            (*item).cmsg_level = level;
            (*item).cmsg_type = kind;
            (*item).cmsg_len = libc::CMSG_LEN(size_of::<T>() as u32) as _;
            libc::CMSG_DATA(item).cast::<T>().write_unaligned(value);
        }
        self.used += space;
        self.header.msg_controllen = self.used as _;
    }
}

/// `sendmsg` that does not wait.
///
/// # Safety
/// The header's name, parts and ancillary data are readable.
unsafe fn send_message(fd: &Fd, header: &libc::msghdr) -> isize {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the caller's promise; the kernel's header is laid out as the C library's.
    unsafe { libc::syscall(libc::SYS_sendmsg, fd.raw(), &raw const *header, flags) as isize }
}

/// `recvmsg` that does not wait.
///
/// # Safety
/// The header's name, parts and ancillary data are writable and of the lengths it says.
unsafe fn receive_message(fd: &Fd, header: &mut libc::msghdr, flags: c_int) -> isize {
    // SAFETY: as above.
    unsafe {
        libc::syscall(libc::SYS_recvmsg, fd.raw(), &raw mut *header, flags | libc::MSG_DONTWAIT) as isize
    }
}

/// Sends one datagram or one GSO run to `to`.
pub(crate) fn send(fd: &Fd, v6: bool, to: &RawAddr, bytes: &[u8], options: SendOptions) -> io::Result<usize> {
    let mut control = Control([0; 128]);
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: all zeros is an empty message header.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_name = (&raw const to.storage).cast_mut().cast();
    header.msg_namelen = to.len;
    header.msg_iov = &mut part;
    header.msg_iovlen = 1;
    header.msg_control = (&raw mut control).cast();
    let mut items = ControlWriter { header: &mut header, used: 0 };
    if options.segment != 0 {
        items.put(SOL_UDP, UDP_SEGMENT, options.segment);
    }
    if options.traffic_class != 0 {
        let (level, kind) =
            if v6 { (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) } else { (libc::IPPROTO_IP, libc::IP_TOS) };
        items.put(level, kind, c_int::from(options.traffic_class));
    }
    if options.hop_limit != 0 {
        let (level, kind) =
            if v6 { (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) } else { (libc::IPPROTO_IP, libc::IP_TTL) };
        items.put(level, kind, c_int::from(options.hop_limit));
    }
    if items.used == 0 {
        header.msg_control = ptr::null_mut();
    }
    // SAFETY: name, the one part and the ancillary data live through the call; the kernel only
    // reads them.
    check_len(unsafe { send_message(fd, &header) })
}

/// Walks the ancillary data of a received message.
fn for_each_control(header: &libc::msghdr, mut f: impl FnMut(c_int, c_int, &[u8])) {
    // SAFETY: the header was filled by a successful receive call, so its control buffer holds
    // well-formed items, and CMSG_NXTHDR stays inside msg_controllen.
    unsafe {
        let mut item = libc::CMSG_FIRSTHDR(header);
        while !item.is_null() {
            let head = (libc::CMSG_DATA(item) as usize) - item as usize;
            let len = ((*item).cmsg_len as usize).saturating_sub(head);
            f((*item).cmsg_level, (*item).cmsg_type, std::slice::from_raw_parts(libc::CMSG_DATA(item), len));
            item = libc::CMSG_NXTHDR(header, item);
        }
    }
}

fn first_int(data: &[u8]) -> c_int {
    match *data {
        [a, b, c, d, ..] => c_int::from_ne_bytes([a, b, c, d]),
        [a, ..] => c_int::from(a),
        [] => 0,
    }
}

/// What came with a datagram.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Received {
    pub(crate) src: SocketAddr,
    pub(crate) len: usize,
    /// Segment size when the kernel joined packets, `len` otherwise; never 0.
    pub(crate) stride: usize,
    pub(crate) truncated: bool,
    pub(crate) traffic_class: u8,
    pub(crate) hop_limit: u8,
}

/// Buffers for `recvmmsg`.
pub(crate) struct RecvVec {
    bytes: Vec<u8>,
    names: Vec<RawAddr>,
    controls: Vec<Control>,
}

impl RecvVec {
    pub(crate) fn new(datagrams: usize) -> Self {
        let n = datagrams.clamp(1, MAX_DATAGRAMS);
        RecvVec {
            bytes: vec![0; n * DATAGRAM],
            names: vec![RawAddr::empty(); n],
            controls: vec![Control([0; 128]); n],
        }
    }

    /// The buffer of datagram `i`.
    pub(crate) fn datagram(&self, i: usize, len: usize) -> &[u8] {
        &self.bytes[i * DATAGRAM..][..len.min(DATAGRAM)]
    }

    /// The first datagram's buffer, for a plain receive.
    pub(crate) fn scratch(&mut self) -> &mut [u8] {
        &mut self.bytes[..DATAGRAM]
    }

    /// Receives up to `most` datagrams without waiting, telling what came with each; how many came
    /// and how many would have fitted.
    pub(crate) fn recv(
        &mut self,
        fd: &Fd,
        most: usize,
        metas: &mut [Option<Received>],
    ) -> io::Result<(usize, usize)> {
        let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; MAX_DATAGRAMS];
        let mut parts = [const { MaybeUninit::<libc::iovec>::uninit() }; MAX_DATAGRAMS];
        let n = most.clamp(1, self.names.len()).min(metas.len());
        for (i, chunk) in self.bytes.chunks_exact_mut(DATAGRAM).take(n).enumerate() {
            // SAFETY: all zeros is an empty message header.
            let header = &mut headers[i].write(unsafe { mem::zeroed() }).msg_hdr;
            header.msg_name = self.names[i].as_mut_ptr();
            header.msg_namelen = size_of::<libc::sockaddr_storage>() as socklen_t;
            header.msg_iov =
                parts[i].write(libc::iovec { iov_base: chunk.as_mut_ptr().cast(), iov_len: DATAGRAM });
            header.msg_iovlen = 1;
            header.msg_control = (&raw mut self.controls[i]).cast();
            header.msg_controllen = size_of::<Control>() as _;
        }
        // SAFETY: the loop above wrote the first `n` headers.
        let headers =
            unsafe { std::slice::from_raw_parts_mut(headers.as_mut_ptr().cast::<libc::mmsghdr>(), n) };
        let got = if let [only] = headers {
            // Half the price of recvmmsg, which matters to who spins. SAFETY: the header points to
            // buffers of the stated lengths that live through the call.
            let len = check_len(unsafe { receive_message(fd, &mut only.msg_hdr, 0) })?;
            only.msg_len = len as _;
            1
        } else {
            // SAFETY: the headers point to buffers of the stated lengths that live through the
            // call.
            check_len(unsafe {
                libc::syscall(
                    libc::SYS_recvmmsg,
                    fd.raw(),
                    headers.as_mut_ptr(),
                    n,
                    libc::MSG_DONTWAIT,
                    ptr::null_mut::<libc::timespec>(),
                )
            } as isize)?
        };
        for i in 0..got {
            metas[i] = self.meta(i, &headers[i]);
        }
        Ok((got, n))
    }

    fn meta(&self, i: usize, message: &libc::mmsghdr) -> Option<Received> {
        let len = message.msg_len as usize;
        let mut meta = Received {
            src: self.names[i].to_inet()?,
            len,
            stride: len.max(1),
            truncated: message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
            traffic_class: 0,
            hop_limit: 0,
        };
        for_each_control(&message.msg_hdr, |level, kind, data| match (level, kind) {
            (SOL_UDP, UDP_GRO) => meta.stride = usize::try_from(first_int(data)).unwrap_or(len).max(1),
            (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                meta.traffic_class = first_int(data) as u8;
            }
            (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                meta.hop_limit = first_int(data) as u8;
            }
            _ => {}
        });
        Some(meta)
    }
}
