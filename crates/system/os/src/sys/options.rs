//! UDP sockets, socket options, and programs of classic BPF.
use super::raw::{get_value, set_value, socket};
use super::{Fd, FdTable};
use libc::c_int;
use std::io;
use std::sync::Arc;

pub fn udp_socket(table: &Arc<FdTable>, v6: bool) -> io::Result<Fd> {
    let family = if v6 { libc::AF_INET6 } else { libc::AF_INET };
    table.register(socket(family, libc::SOCK_DGRAM, 0)?)
}

pub fn set_option(fd: &Fd, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
    set_value(fd.raw(), level, name, &value)
}

pub fn get_option(fd: &Fd, level: c_int, name: c_int) -> io::Result<c_int> {
    get_value(fd.raw(), level, name, 0)
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
    const DROPS: usize = libc::SK_MEMINFO_DROPS as usize;
    // The number of drops is the last word.
    let words = [0u32; DROPS + 1];
    get_value(fd.raw(), libc::SOL_SOCKET, libc::SO_MEMINFO, words)
        .map_or(0, |words| words[DROPS].into())
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
    let filter = |&Insn(code, jt, jf, k): &Insn| libc::sock_filter { code, jt, jf, k };
    let mut code: Vec<_> = program.iter().map(filter).collect();
    let len = u16::try_from(code.len()).map_err(|_| io::Error::from_raw_os_error(libc::E2BIG))?;
    let program = libc::sock_fprog { len, filter: code.as_mut_ptr() };
    // `program` points to `len` instructions, which live through the call; the kernel checks them.
    set_value(fd.raw(), libc::SOL_SOCKET, option, &program)
}
