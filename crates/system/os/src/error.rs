//! Errors of the operating system, and users as shown in errors.

use std::fmt;
use std::io;

use thiserror::Error;

/// An error of the operating system, with the failed operation.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OsError {
    /// The kernel (a security policy, a sandbox) forbids the operation.
    #[error("the system forbids to {doing}: a sandbox or a security policy is the reason")]
    PermissionDenied {
        /// The failed operation.
        doing: &'static str,
    },
    /// The process or the machine has no descriptor left.
    #[error("{}", if *machine { MACHINE_FULL } else { PROCESS_FULL })]
    OutOfDescriptors {
        /// Whether the whole machine has none left, not only this process (`ulimit -n`).
        machine: bool,
    },
    /// The kernel has no memory for another socket.
    #[error("the kernel has no memory to {doing}")]
    OutOfMemory {
        /// The failed operation.
        doing: &'static str,
    },
    /// Any other error of the operating system.
    #[error("could not {doing}: {source}")]
    Os {
        /// The failed operation.
        doing: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
}

const PROCESS_FULL: &str = "this process has no file descriptor left; raise `ulimit -n`";
const MACHINE_FULL: &str = "the machine has no file descriptor left (fs.file-max)";

impl OsError {
    /// Classifies an error of the operating system by its meaning.
    #[must_use]
    pub fn from_io(doing: &'static str, error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => OsError::PermissionDenied { doing },
            Some(libc::EMFILE) => OsError::OutOfDescriptors { machine: false },
            Some(libc::ENFILE) => OsError::OutOfDescriptors { machine: true },
            Some(libc::ENOMEM | libc::ENOBUFS) => OsError::OutOfMemory { doing },
            _ => OsError::Os { doing, source: error },
        }
    }
}

/// A user by number, as shown in errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct User(pub u32);

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "user {} (`id -un {0}`)", self.0)
    }
}
