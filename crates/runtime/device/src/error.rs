//! Errors: an errno for the C ABI and a cause in words.
use adverb_engine::{AttrError, Cause, OutOfMemory, PostError};
use adverb_link::LinkError;
use adverb_local::LocalError;
use adverb_os::OsError;
use nix::errno::Errno;
use std::fmt;

/// A failed call: the errno expected by users of rdma-core, and the reason.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{why} ({errno:?})")]
pub struct Error {
    errno: Errno,
    why: Why,
}

/// The reason behind an [`Error`].
#[derive(Clone, Debug, thiserror::Error)]
pub enum Why {
    /// A cause from the engine.
    #[error("{0}")]
    Cause(Cause),
    /// Attributes refused by `ibv_modify_qp`.
    #[error("{0}")]
    Attr(AttrError),
    /// Another reason, in words.
    #[error("{0}")]
    Text(String),
}

impl Error {
    /// With a reason in words.
    pub fn new(errno: Errno, why: impl Into<String>) -> Self {
        Error { errno, why: Why::Text(why.into()) }
    }
    /// EINVAL naming the argument and the broken rule.
    pub fn invalid(what: impl fmt::Display, rule: impl fmt::Display) -> Self {
        Error::new(Errno::EINVAL, format!("{what}: {rule}"))
    }
    /// ENOMEM, for lack of memory or beyond a limit.
    pub(crate) fn no_memory(why: impl Into<String>) -> Self {
        Error::new(Errno::ENOMEM, why)
    }
    /// EINVAL unless a size is between 1 and `max`.
    pub(crate) fn check_size(
        what: &str,
        size: impl Into<u64>,
        max: impl Into<u64>,
    ) -> Result<(), Self> {
        let (size, max) = (size.into(), max.into());
        if (1..=max).contains(&size) {
            return Ok(());
        }
        Err(Error::invalid(format!("{what} is {size}"), format!("1 to {max} are possible")))
    }
    /// EBUSY naming what is still in use.
    pub fn busy(what: &str, users: usize) -> Self {
        Error::new(Errno::EBUSY, format!("{what} is still used by {users} object(s)"))
    }
    /// EOPNOTSUPP for a feature that the device does not have.
    pub fn unsupported(what: impl Into<String>) -> Self {
        Error::new(Errno::EOPNOTSUPP, what)
    }
    /// A failure injected on request.
    pub(crate) fn injected(errno: Errno) -> Self {
        Error { errno, why: Why::Cause(Cause::Injected) }
    }
    /// The errno.
    #[must_use]
    pub fn errno(&self) -> i32 {
        self.errno as i32
    }
    /// The reason.
    #[must_use]
    pub fn why(&self) -> &Why {
        &self.why
    }
}

impl From<AttrError> for Error {
    fn from(e: AttrError) -> Self {
        Error { errno: Errno::EINVAL, why: Why::Attr(e) }
    }
}

impl From<PostError> for Error {
    fn from(e: PostError) -> Self {
        match e {
            PostError::QueueFull(c) => Error { errno: Errno::ENOMEM, why: Why::Cause(c) },
            PostError::Invalid(c) => Error { errno: Errno::EINVAL, why: Why::Cause(c) },
        }
    }
}

impl From<Cause> for Error {
    fn from(c: Cause) -> Self {
        let errno = match c {
            Cause::InUse { .. } => Errno::EBUSY,
            Cause::Fault { .. } => Errno::EFAULT,
            Cause::QueueFull { .. } => Errno::ENOMEM,
            Cause::OpNotSupported { .. } => Errno::EOPNOTSUPP,
            _ => Errno::EINVAL,
        };
        Error { errno, why: Why::Cause(c) }
    }
}

impl From<OutOfMemory> for Error {
    fn from(e: OutOfMemory) -> Self {
        Error::no_memory(e.to_string())
    }
}

impl From<LinkError> for Error {
    fn from(e: LinkError) -> Self {
        let errno = match &e {
            LinkError::PortTaken { .. } => Errno::EADDRINUSE,
            LinkError::NoSuchAddress { .. } | LinkError::Tentative { .. } => Errno::EADDRNOTAVAIL,
            LinkError::TooManySockets { .. } => Errno::EMFILE,
            LinkError::FamilyUnsupported { .. } => Errno::EAFNOSUPPORT,
            LinkError::Os(error) => errno_of(error),
            _ => Errno::EIO,
        };
        Error::new(errno, e.to_string())
    }
}

impl From<LocalError> for Error {
    fn from(e: LocalError) -> Self {
        let errno = match &e {
            LocalError::ServiceTaken { .. } => Errno::EADDRINUSE,
            LocalError::UserChanged(_) => Errno::EPERM,
            LocalError::NoFreeSlot { .. } => Errno::EUSERS,
            LocalError::Os(error) => errno_of(error),
            _ => Errno::EIO,
        };
        Error::new(errno, e.to_string())
    }
}

fn errno_of(e: &OsError) -> Errno {
    match e {
        OsError::PermissionDenied { .. } => Errno::EPERM,
        OsError::OutOfDescriptors { .. } => Errno::EMFILE,
        OsError::OutOfMemory { .. } => Errno::ENOMEM,
        OsError::Os { source, .. } => source.raw_os_error().map_or(Errno::EIO, Errno::from_raw),
        _ => Errno::EIO,
    }
}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Self {
        Error { errno, why: Why::Text(errno.desc().to_owned()) }
    }
}
