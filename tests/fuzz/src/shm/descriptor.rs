//! Invalid descriptors from a peer.
use crate::input::Input;
use adverb_shm::{Consumer, Published};
use nix::fcntl::{FcntlArg, OFlag, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::Mode;
use std::fs::File;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixDatagram, UnixStream};

/// Bytes of a ring, and of tables.
pub(super) const RING: u64 = 0x4_1000;
pub(super) const TABLES: u64 = 0x50_5000;
/// Bytes of the file with a process's shared pages.
pub(super) const PAGES: u64 = 1 << 62;

/// A descriptor, the facts for the decision about it, and another descriptor that must stay open.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) fd: OwnedFd,
    /// Size in bytes, if the descriptor is a file in memory with pages of the usual size.
    pub(super) memory: Option<u64>,
    pub(super) seals: SealFlag,
    _other: Option<OwnedFd>,
}

fn is_possible(seals: SealFlag) -> SealFlag {
    // Without seals that this kernel may not know, because an unknown seal makes the call fail.
    seals & (SealFlag::all() - SealFlag::F_SEAL_SEAL)
}

/// A file in memory with some size, some seals and some beginning.
fn memory(input: &mut Input<'_>) -> Option<Sent> {
    let huge = input.below(8) == 0;
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let flags = if huge { flags | MFdFlags::MFD_HUGETLB | MFdFlags::MFD_HUGE_2MB } else { flags };
    let file = File::from(memfd_create(c"fuzz", flags).ok()?);
    let near = input.below(8) == 0;
    let size = input.pick(&[RING, TABLES, PAGES, 0, 1, 4096, 2 << 20, 8 << 20]);
    let size = if near { size + u64::from(input.u8()) } else { size };
    file.set_len(size).ok()?;
    let right = [&b"ADVRING\x01"[..], b"ADVTABL\x04"];
    let begin = match input.below(4) {
        0 => input.take(8),
        n => right[n % 2],
    };
    let mut begin = begin.to_vec();
    begin.reverse();
    if !huge && size >= 8 {
        file.write_all_at(&begin, 0).ok()?;
    }
    let size_for_good = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW;
    let for_good = size_for_good | SealFlag::F_SEAL_SEAL;
    let seals = match input.below(6) {
        0 => SealFlag::empty(),
        1 => size_for_good,
        2 => for_good,
        3 => for_good | SealFlag::F_SEAL_FUTURE_WRITE,
        4 => for_good | SealFlag::F_SEAL_WRITE,
        _ => is_possible(SealFlag::from_bits_truncate(i32::from(input.u8()))),
    };
    let seals = fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).map_or(SealFlag::empty(), |_| seals);
    Some(Sent { fd: file.into(), memory: (!huge).then_some(size), seals, _other: None })
}

/// A valid descriptor, opened again with fewer rights or as a mere name (`O_PATH`).
fn opened_again(input: &mut Input<'_>, fd: OwnedFd, memory: u64) -> Option<Sent> {
    let seals = SealFlag::from_bits_truncate(fcntl(&fd, FcntlArg::F_GET_SEALS).ok()?);
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let flags = input.pick(&[OFlag::O_RDONLY, OFlag::O_PATH, OFlag::O_RDWR]);
    let fd = nix::fcntl::open(path.as_str(), flags | OFlag::O_CLOEXEC, Mode::empty()).ok()?;
    Some(Sent { fd, memory: Some(memory), seals, _other: None })
}

/// A descriptor other than a file in memory.
fn other(input: &mut Input<'_>) -> Option<Sent> {
    let mut kept = None;
    let open =
        |path: &str, flags| nix::fcntl::open(path, flags | OFlag::O_CLOEXEC, Mode::empty()).ok();
    let fd: OwnedFd = match input.below(14) {
        0 | 1 => {
            let (read, write) = nix::unistd::pipe().ok()?;
            let (fd, other) = if input.flag() { (read, write) } else { (write, read) };
            kept = Some(other);
            fd
        }
        2 => open("/", OFlag::O_RDONLY)?,
        3 => open("/", OFlag::O_PATH)?,
        4 => open("/dev/zero", OFlag::O_RDWR)?,
        5 => open("/dev/null", OFlag::O_RDWR)?,
        6 => open("/dev/full", OFlag::O_RDWR)?,
        7 => open("/proc/self/mem", OFlag::O_RDONLY)?,
        8 => open("/proc/self/maps", OFlag::O_RDONLY)?,
        9 => {
            let (fd, other) = UnixStream::pair().ok()?;
            kept = Some(other.into());
            fd.into()
        }
        10 => UnixDatagram::unbound().ok()?.into(),
        11 => UdpSocket::bind("127.0.0.1:0").ok()?.into(),
        12 => nix::sys::eventfd::EventFd::new().ok()?.into(),
        _ => open("/proc/self/exe", OFlag::O_RDONLY)?,
    };
    Some(Sent { fd, memory: None, seals: SealFlag::empty(), _other: kept })
}

/// A descriptor of any kind; `None` if the machine has none of the kind.
pub(super) fn sent(input: &mut Input<'_>) -> Option<Sent> {
    match input.below(6) {
        0 => opened_again(input, Consumer::create().ok()?.1, RING),
        1 => opened_again(input, Published::create().ok()?.1, TABLES),
        2 | 3 => other(input),
        _ => memory(input),
    }
}
