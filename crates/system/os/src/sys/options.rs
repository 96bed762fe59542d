//! UDP sockets, socket options, and programs of classic BPF.
use super::{Fd, FdTable, check};
use libc::{c_int, socklen_t};
use std::io;
use std::mem::size_of;
use std::sync::Arc;

/// The word of `SO_MEMINFO` with the number of dropped packets (linux/sock_diag.h).
const SK_MEMINFO_DROPS: usize = 8;
/// The number of words in `SO_MEMINFO`.
const SK_MEMINFO_VARS: usize = 9;

pub fn udp_socket(table: &Arc<FdTable>, v6: bool) -> io::Result<Fd> {
    let family = if v6 { libc::AF_INET6 } else { libc::AF_INET };
    // SAFETY: all arguments are integers.
    let fd = check(unsafe {
        libc::socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0)
    })?;
    table.register(fd)
}

pub fn set_option(fd: &Fd, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
    // SAFETY: `value` lives through the call and has the given length.
    check(unsafe {
        libc::setsockopt(
            fd.raw(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<c_int>() as socklen_t,
        )
    })
    .map(drop)
}

pub fn get_option(fd: &Fd, level: c_int, name: c_int) -> io::Result<c_int> {
    let mut value: c_int = 0;
    let mut len = size_of::<c_int>() as socklen_t;
    // SAFETY: `value` has `len` bytes.
    check(unsafe { libc::getsockopt(fd.raw(), level, name, (&raw mut value).cast(), &mut len) })?;
    Ok(value)
}

/// Requests a buffer of `bytes`, beyond the machine's limit if the process has the privilege.
pub fn grow_buffer(fd: &Fd, force: c_int, plain: c_int, bytes: usize) {
    let bytes = c_int::try_from(bytes).unwrap_or(c_int::MAX / 2);
    if set_option(fd, libc::SOL_SOCKET, force, bytes).is_err() {
        // The kernel reduces the plain request to its limit; nothing to report.
        let _ = set_option(fd, libc::SOL_SOCKET, plain, bytes);
    }
}

/// Datagrams dropped by the kernel at this socket since its creation.
pub fn kernel_drops(fd: &Fd) -> u64 {
    let mut words = [0u32; SK_MEMINFO_VARS];
    let mut len = size_of_val(&words) as socklen_t;
    // SAFETY: `words` has `len` bytes.
    let result = unsafe {
        libc::getsockopt(
            fd.raw(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            words.as_mut_ptr().cast(),
            &mut len,
        )
    };
    if result < 0 { 0 } else { u64::from(words[SK_MEMINFO_DROPS]) }
}

/// One instruction of a classic BPF program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Insn(pub u16, pub u8, pub u8, pub u32);

/// Lets the program choose a socket of `fd`'s reuseport group.
pub fn attach_reuseport(fd: &Fd, program: &[Insn]) -> io::Result<()> {
    attach(fd, libc::SO_ATTACH_REUSEPORT_CBPF, program)
}

/// Lets a socket receive only packets for which the program does not return 0.
pub fn attach_filter(fd: &Fd, program: &[Insn]) -> io::Result<()> {
    attach(fd, libc::SO_ATTACH_FILTER, program)
}

fn attach(fd: &Fd, option: c_int, program: &[Insn]) -> io::Result<()> {
    let mut code: Vec<libc::sock_filter> = program
        .iter()
        .map(|&Insn(code, jt, jf, k)| libc::sock_filter { code, jt, jf, k })
        .collect();
    let len = u16::try_from(code.len()).map_err(|_| io::Error::from_raw_os_error(libc::E2BIG))?;
    let program = libc::sock_fprog { len, filter: code.as_mut_ptr() };
    let (at, size) = ((&raw const program).cast(), size_of::<libc::sock_fprog>() as socklen_t);
    // SAFETY: `program` points to `len` instructions, which live through the call; the kernel
    // checks them.
    check(unsafe { libc::setsockopt(fd.raw(), libc::SOL_SOCKET, option, at, size) }).map(drop)
}
