//! System calls that the kernel refuses to this process, for example by a seccomp filter. The
//! effects appear far from the cause: a peer gets no answer. So the device tries the calls when it
//! starts.
use crate::sys;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::SystemTime;

/// The call which a connection between two processes of the host needs and does not get.
#[must_use]
pub fn refused_connection() -> Option<(&'static str, io::Error)> {
    let mut last = "socket";
    let failed = connect_to_itself(&mut last).err().filter(is_refusal)?;
    Some((last, failed))
}

/// The call which shared memory needs and does not get.
#[must_use]
pub fn refused_memory() -> Option<(&'static str, io::Error)> {
    let failed = sys::ask_for_page().err().filter(is_refusal)?;
    Some(("mincore", failed))
}

/// Other failures, such as too few descriptors, have their own lines where they happen.
fn is_refusal(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EPERM | libc::EACCES | libc::ENOSYS))
}

/// Makes a connection from this process to itself. `last` names the last call.
fn connect_to_itself(last: &mut &'static str) -> io::Result<()> {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
    let name = format!("adverb-start-{}-{now}", std::process::id());
    let name = SocketAddr::from_abstract_name(name)?;
    *last = "bind or listen";
    let listener = UnixListener::bind_addr(&name)?;
    *last = "connect";
    let stream = UnixStream::connect_addr(&name)?;
    *last = "accept4";
    let _accepted = listener.accept()?;
    *last = "getsockopt";
    stream.take_error().map(drop)
}
