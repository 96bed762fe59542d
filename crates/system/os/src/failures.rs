//! Errors of sockets: counted, and each kind said once.
//!
//! A socket that fails must not stop the others, nor fail without a trace. So nothing that receives
//! hands an error on: [`SocketErrors::note`] takes the error.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use adverb_sync::Mutex;

/// What operations on sockets failed with.
#[derive(Debug, Default)]
pub struct SocketErrors {
    network: AtomicU64,
    failed: AtomicU64,
    /// Kinds of errors that have been said: what was tried, and the error's number.
    said: Mutex<BTreeSet<(&'static str, i32)>>,
}

impl SocketErrors {
    /// Counts an error. The first of its kind is said at level `warn`.
    pub fn note(&self, doing: &'static str, error: &io::Error) {
        match meaning(error) {
            Meaning::Nothing => {}
            Meaning::Network => {
                self.network.fetch_add(1, Relaxed);
                log::debug!("could not {doing}: {error}");
            }
            Meaning::Failure => {
                self.failed.fetch_add(1, Relaxed);
                if self.said.lock().insert((doing, error.raw_os_error().unwrap_or(0))) {
                    log::warn!(
                        "could not {doing}: {error}; more errors of this kind are counted as socket_errors"
                    );
                }
            }
        }
    }

    /// Errors that the network reported to a socket: ICMP messages, no route, and interfaces that
    /// went down.
    #[must_use]
    pub fn network(&self) -> u64 {
        self.network.load(Relaxed)
    }

    /// Operations that failed.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.failed.load(Relaxed)
    }

    /// Kinds that have been said.
    #[must_use]
    pub fn kinds(&self) -> usize {
        self.said.lock().len()
    }
}

/// What an error of a socket means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    /// Nothing is there at this moment, or a signal came.
    Nothing,
    /// The network says something of a packet that was sent, or an interface went down. The socket
    /// works on.
    Network,
    /// The call failed.
    Failure,
}

fn meaning(error: &io::Error) -> Meaning {
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EINTR) => Meaning::Nothing,
        // What ICMP and ICMPv6 messages are told as (icmp(7), ipv6(7)), and packet(7).
        Some(
            libc::ECONNREFUSED
            | libc::EHOSTUNREACH
            | libc::ENETUNREACH
            | libc::EHOSTDOWN
            | libc::ENETDOWN
            | libc::ENOPROTOOPT
            | libc::EPROTO
            | libc::EACCES
            | libc::EMSGSIZE
            | libc::EOPNOTSUPP
            | libc::ENONET,
        ) => Meaning::Network,
        _ => Meaning::Failure,
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn sys_8_errors_are_known_by_name() {
        let of = |errno| meaning(&io::Error::from_raw_os_error(errno));
        assert_eq!((of(libc::EAGAIN), of(libc::EINTR)), (Meaning::Nothing, Meaning::Nothing));
        assert_eq!(of(libc::ECONNREFUSED), Meaning::Network);
        assert_eq!((of(libc::EBADF), of(libc::ENOTCONN)), (Meaning::Failure, Meaning::Failure));
        assert_eq!(meaning(&io::ErrorKind::NotFound.into()), Meaning::Failure);
    }
}
