//! Errors of the link and of other processes of the host, in the form for programs.
use crate::error::Error;
use adverb_link::LinkError;
use adverb_local::LocalError;
use adverb_os::OsError;
use nix::errno::Errno;

/// The error, which is also logged.
pub(super) fn from_link(e: LinkError) -> Error {
    let error = quiet_from_link(e);
    log::error!("{error}");
    error
}

/// As [`from_link`], without a log entry, for attempts that a program may repeat.
pub(crate) fn quiet_from_link(e: LinkError) -> Error {
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

/// The error of an operation with another process of this host, which is also logged.
pub(super) fn from_local(e: LocalError) -> Error {
    let error = quiet_from_local(e);
    log::error!("{error}");
    error
}

/// As [`from_local`], without a log entry, for attempts that a program may repeat.
pub(crate) fn quiet_from_local(e: LocalError) -> Error {
    let errno = match &e {
        LocalError::ServiceTaken { .. } => Errno::EADDRINUSE,
        LocalError::UserChanged(_) => Errno::EPERM,
        LocalError::NoFreeSlot { .. } => Errno::EUSERS,
        LocalError::Os(error) => errno_of(error),
        _ => Errno::EIO,
    };
    Error::new(errno, e.to_string())
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
