//! Errors of sockets: counted, and each kind logged once.
//!
//! A failing socket must not stop the others, and must leave a trace. So receiving functions return
//! no error: [`SocketErrors::note`] records it.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use adverb_sync::Mutex;

/// The recorded errors of socket operations.
#[derive(Debug, Default)]
pub struct SocketErrors {
    network: AtomicU64,
    failed: AtomicU64,
    /// The logged kinds of errors: the operation, and the error number.
    said: Mutex<BTreeSet<(&'static str, i32)>>,
}

impl SocketErrors {
    /// Counts an error. Logs the first error of each kind at level `warn`.
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

    /// Errors reported by the network to a socket: ICMP messages, no route, and interfaces that
    /// went down.
    #[must_use]
    pub fn network(&self) -> u64 {
        self.network.load(Relaxed)
    }

    /// The number of failed operations.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.failed.load(Relaxed)
    }

    /// The number of logged kinds.
    #[must_use]
    pub fn kinds(&self) -> usize {
        self.said.lock().len()
    }
}

/// The meaning of a socket error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    /// Nothing to receive at this moment, or a signal.
    Nothing,
    /// The network reports a problem of a sent packet, or an interface went down. The socket still
    /// works.
    Network,
    /// The call failed.
    Failure,
}

fn meaning(error: &io::Error) -> Meaning {
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EINTR) => Meaning::Nothing,
        // The errors for ICMP and ICMPv6 messages (icmp(7), ipv6(7)), and of packet(7).
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
