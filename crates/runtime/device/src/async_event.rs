//! Asynchronous events, and the state of an object for its events.
use crate::acks::Acks;
use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

/// An asynchronous event; discriminants of `ibv_event_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs)]
pub enum AsyncEvent {
    CqErr = 0,
    QpFatal = 1,
    QpReqErr = 2,
    QpAccessErr = 3,
    CommEst = 4,
    SqDrained = 5,
    PathMig = 6,
    PathMigErr = 7,
    DeviceFatal = 8,
    PortActive = 9,
    PortErr = 10,
    LidChange = 11,
    PkeyChange = 12,
    SmChange = 13,
    SrqErr = 14,
    SrqLimitReached = 15,
    QpLastWqeReached = 16,
    ClientReregister = 17,
    GidChange = 18,
}

/// An object that can be the subject of asynchronous events.
pub(crate) trait Subject: Any + Debug + Send + Sync {
    /// Counts of the object's events read and acknowledged.
    fn async_acks(&self) -> &Acks;
}

/// The subject of an event, kept in a context until the event is read.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    Object(Arc<dyn Subject>),
    Port(u8),
}

impl Source {
    /// The event was handed to the program.
    pub(crate) fn note_read(&self) {
        if let Source::Object(object) = self {
            object.async_acks().note_read();
        }
    }
}
