//! Closing connections in which others may have left descriptors.
//!
//! A peer can send a descriptor and then close its own copy. The receiver of the connection then
//! makes the last close, even if it never reads the message. The last close of some descriptors
//! waits: a TCP socket with `SO_LINGER` waits as long as its sender likes. The kernel does not wait
//! when a thread ends. So the end of a thread closes a connection with unread messages (TRU-2).
use super::process::{block_all_signals, set_signal_mask};
use super::raw::{accept_raw, get_value, message_header, part_mut, set_value};
use libc::c_uint;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::mpsc::sync_channel;

/// Closes a connection, or a listening socket with all its connections. Returns at once, whatever
/// descriptors others have left in them.
pub fn end_connection(fd: OwnedFd) {
    let mut laden = Vec::new();
    let raw = fd.as_raw_fd();
    // SAFETY: all arguments are integers. Fails only if the connection has ended. From now on
    // nothing arrives.
    unsafe { libc::shutdown(raw, libc::SHUT_RDWR) };
    match held(raw) {
        Held::Nothing => return,
        Held::Something => laden.push(fd),
        Held::Connections => {
            laden.extend(std::iter::from_fn(|| accept(raw)).filter(|one| {
                // SAFETY: as above.
                unsafe { libc::shutdown(one.as_raw_fd(), libc::SHUT_RDWR) };
                held(one.as_raw_fd()) == Held::Something
            }));
            // Close the listener first, so that its name is free when this function returns.
            drop(fd);
        }
    }
    close_received(laden);
}

/// The contents of a socket.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Held {
    Nothing,
    Something,
    /// A listening socket.
    Connections,
}

fn held(fd: RawFd) -> Held {
    // A message without a byte may have descriptors. With SO_PASSCRED each message also has its
    // sender's credentials. There is no room for them, so the kernel sets MSG_CTRUNC.
    let _ = set_value(fd, libc::SOL_SOCKET, libc::SO_PASSCRED, &1);
    let mut byte = [0];
    let mut parts = [part_mut(&mut byte)];
    let mut header = message_header(&mut parts);
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    // SAFETY: room for one byte. MSG_PEEK leaves the message in the socket.
    let n = unsafe { libc::syscall(libc::SYS_recvmsg, fd, &raw mut header, flags) };
    match n {
        1.. => Held::Something,
        0 if is_stream(fd) || header.msg_flags & libc::MSG_CTRUNC == 0 => Held::Nothing,
        0 => Held::Something,
        _ => match io::Error::last_os_error().raw_os_error() {
            Some(libc::ENOTCONN | libc::EINVAL) => Held::Connections,
            _ => Held::Nothing,
        },
    }
}

/// Whether the socket is a stream, which has no empty messages.
fn is_stream(fd: RawFd) -> bool {
    get_value(fd, libc::SOL_SOCKET, libc::SO_TYPE, 0).is_ok_and(|kind| kind == libc::SOCK_STREAM)
}

/// Accepts one waiting connection.
fn accept(fd: RawFd) -> Option<OwnedFd> {
    loop {
        match accept_raw(fd) {
            // SAFETY: a new descriptor.
            Ok(fd) => return Some(unsafe { OwnedFd::from_raw_fd(fd) }),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
}

/// Closes descriptors made by others, without waiting.
///
/// 1. A new thread takes its own table of descriptors, a copy of the process's.
/// 2. The caller closes the descriptors. This is not the last close.
/// 3. The thread ends. Its end makes the last close, and does not wait.
pub fn close_received(fds: Vec<OwnedFd>) {
    if fds.is_empty() {
        return;
    }
    let (copied, has_copied) = sync_channel::<bool>(1);
    let (closed, is_closed) = sync_channel::<Vec<OwnedFd>>(1);
    // The new thread inherits the mask, because signals are for the program's threads.
    let before = block_all_signals();
    let thread = std::thread::Builder::new().name("adverb-end".into()).spawn(move || {
        let (all, flags) = (c_uint::MAX, libc::CLOSE_RANGE_UNSHARE);
        // SAFETY: closes nothing; from here on this thread has its own descriptors, and uses none.
        let apart = unsafe { libc::syscall(libc::SYS_close_range, all, all, flags) };
        let _ = copied.send(apart == 0);
        // On older kernels this thread closes the descriptors, and waits.
        drop(is_closed.recv());
    });
    set_signal_mask(&before);
    if thread.is_ok() && has_copied.recv() != Ok(true) {
        let _ = closed.send(fds);
        return;
    }
    drop(fds);
    // Let the thread end.
    drop(closed);
}
