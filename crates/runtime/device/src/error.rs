//! Errors: an errno for the C ABI and a cause in words.
use adverb_engine::{AttrError, Cause, OutOfMemory, PostError};
use nix::errno::Errno;
use std::fmt;

/// A failed call: the errno expected by users of rdma-core, and the reason.
#[derive(Clone, Debug)]
pub struct Error {
    errno: Errno,
    why: Why,
}

/// The reason behind an [`Error`].
#[derive(Clone, Debug)]
pub enum Why {
    /// A cause from the engine.
    Cause(Cause),
    /// Attributes refused by `ibv_modify_qp`.
    Attr(AttrError),
    /// Another reason, in words.
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

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.why {
            Why::Cause(c) => write!(f, "{c}")?,
            Why::Attr(a) => write!(f, "{a}")?,
            Why::Text(t) => write!(f, "{t}")?,
        }
        write!(f, " ({:?})", self.errno)
    }
}

impl std::error::Error for Error {}

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
        Error::new(Errno::ENOMEM, e.to_string())
    }
}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Self {
        Error { errno, why: Why::Text(errno.desc().to_owned()) }
    }
}
