//! The life cycle of an object: a single state machine for all types (NDK-7).
//!
//! An object is *held* by:
//!
//! - its successors (a queue pair holds its PD and its CQs, all objects hold their adapter);
//! - pending requests on the object, until their callback has returned;
//! - notification callbacks while they run.
//!
//! A close ends the use of the object at once. The close completes when no hold is left, in this
//! order:
//!
//! 1. The teardown ends the device's objects.
//! 2. The close completion is called.
//! 3. When the completion has returned, the object releases its antecedents.
//!
//! So the close of an antecedent completes after the close completion of its last successor has
//! returned. When the close of the adapter returns, no callback of any of its objects is running.
//!
//! A close from inside a callback of the same object is pending until the callback has returned,
//! because the callback holds the object.
use crate::dispatch::Dispatcher;
use crate::flags::ObjectType;
use crate::status::NtStatus;
use crate::version::Version;
use adverb_sync::{Condvar, Mutex};
use std::fmt;
use std::sync::Arc;

/// The outcome of a request that may complete later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOutcome<T = ()> {
    /// The request is done. The completion is not called.
    Done(T),
    /// The completion will be called once (`STATUS_PENDING`).
    Pending,
}

impl<T> RequestOutcome<T> {
    /// The value, if the request was done in line.
    #[must_use]
    pub fn done(self) -> Option<T> {
        match self {
            RequestOutcome::Done(value) => Some(value),
            RequestOutcome::Pending => None,
        }
    }
}

/// The completion callback of a request. It is called once on a thread of the adapter, unless the
/// request was done in line.
pub type Completion<T> = Box<dyn FnOnce(Result<T, NtStatus>) + Send>;

type Action = Box<dyn FnOnce() + Send>;

/// The life cycle of an object.
pub(crate) struct Lifecycle {
    kind: ObjectType,
    dispatcher: Arc<Dispatcher>,
    state: Mutex<State>,
    /// Signalled when the last hold is released. The blocking close of an adapter waits for the
    /// signal.
    released: Condvar,
}

struct State {
    holds: usize,
    phase: Phase,
    kept: Kept,
}

/// The references that an object releases when it is closed.
#[derive(Default)]
struct Kept {
    /// The object itself, which stays alive when all of its handles are dropped.
    object: Option<Arc<dyn Send + Sync>>,
    antecedents: Vec<Hold>,
}

enum Phase {
    Open,
    /// A close has begun. The thread that releases the last hold completes the close.
    Closing(Option<Close>),
    Closed,
}

struct Close {
    teardown: Action,
    completion: Action,
}

impl Lifecycle {
    /// A new object that holds its antecedents.
    pub(crate) fn new(
        kind: ObjectType,
        dispatcher: &Arc<Dispatcher>,
        antecedents: Vec<Hold>,
    ) -> Arc<Lifecycle> {
        Arc::new(Lifecycle {
            kind,
            dispatcher: dispatcher.clone(),
            state: Mutex::new(State {
                holds: 0,
                phase: Phase::Open,
                kept: Kept { object: None, antecedents },
            }),
            released: Condvar::new(),
        })
    }

    /// The NDKPI version of the object's adapter.
    pub(crate) fn version(&self) -> Version {
        self.dispatcher.version()
    }

    /// Keeps the object alive until it is closed, whether or not the consumer has a handle.
    pub(crate) fn keep(&self, object: Arc<dyn Send + Sync>) {
        self.state.lock().kept.object = Some(object);
    }

    /// Has a close begun?
    pub(crate) fn is_closing(&self) -> bool {
        !matches!(self.state.lock().phase, Phase::Open)
    }

    /// Holds the object for a successor, a pending request, or a callback that is about to run.
    ///
    /// # Errors
    /// `DELETE_PENDING` once a close has begun.
    pub(crate) fn hold(self: &Arc<Self>) -> Result<Hold, NtStatus> {
        let mut state = self.state.lock();
        match state.phase {
            Phase::Open => {
                state.holds += 1;
                Ok(Hold(self.clone()))
            }
            Phase::Closing(_) | Phase::Closed => Err(NtStatus::DELETE_PENDING),
        }
    }

    /// Adds a hold. The caller keeps another hold, so the close cannot have completed.
    fn hold_again(self: &Arc<Self>) -> Hold {
        self.state.lock().holds += 1;
        Hold(self.clone())
    }

    /// Adds an antecedent, which the object holds until the object is closed.
    pub(crate) fn take_over(&self, antecedent: Hold) {
        self.state.lock().kept.antecedents.push(antecedent);
    }

    /// Closes the object: runs `teardown`, then calls `completion`. If no hold is left, and the
    /// adapter is not configured to make requests pend, the close is done in line. Then
    /// `completion` is not called.
    ///
    /// # Errors
    /// `DELETE_PENDING` for a second close.
    pub(crate) fn close(
        self: &Arc<Self>,
        teardown: impl FnOnce() + Send + 'static,
        completion: impl FnOnce() + Send + 'static,
    ) -> Result<RequestOutcome, NtStatus> {
        let mut state = self.state.lock();
        if !matches!(state.phase, Phase::Open) {
            log::warn!("a {:?} object is closed twice", self.kind);
            return Err(NtStatus::DELETE_PENDING);
        }
        let pend = self.dispatcher.pends();
        if state.holds > 0 {
            let close = Close { teardown: Box::new(teardown), completion: Box::new(completion) };
            state.phase = Phase::Closing(Some(close));
            return Ok(RequestOutcome::Pending);
        }
        state.phase = Phase::Closing(None);
        drop(state);
        if pend {
            let close = Close { teardown: Box::new(teardown), completion: Box::new(completion) };
            self.finish_later(close);
            return Ok(RequestOutcome::Pending);
        }
        teardown();
        drop(self.end());
        Ok(RequestOutcome::Done(()))
    }

    /// Begins the close of an adapter and waits until no hold is left.
    ///
    /// # Errors
    /// `DELETE_PENDING` for a second close.
    pub(crate) fn close_and_wait(&self) -> Result<(), NtStatus> {
        let mut state = self.state.lock();
        if !matches!(state.phase, Phase::Open) {
            return Err(NtStatus::DELETE_PENDING);
        }
        state.phase = Phase::Closing(None);
        while state.holds > 0 {
            self.released.wait(&mut state);
        }
        state.phase = Phase::Closed;
        Ok(())
    }

    /// Marks the object closed, and returns the references that the object kept.
    fn end(&self) -> Kept {
        let mut state = self.state.lock();
        state.phase = Phase::Closed;
        std::mem::take(&mut state.kept)
    }

    fn finish_later(self: &Arc<Self>, close: Close) {
        let me = self.clone();
        self.dispatcher.run(move || {
            (close.teardown)();
            let kept = me.end();
            (close.completion)();
            drop(kept);
        });
    }

    fn release(self: &Arc<Self>) {
        let mut state = self.state.lock();
        state.holds -= 1;
        if state.holds > 0 {
            return;
        }
        let close = match &mut state.phase {
            Phase::Closing(close) => close.take(),
            Phase::Open | Phase::Closed => None,
        };
        self.released.notify_all();
        drop(state);
        if let Some(close) = close {
            self.finish_later(close);
        }
    }
}

impl fmt::Debug for Lifecycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        let phase = match state.phase {
            Phase::Open => "open",
            Phase::Closing(_) => "closing",
            Phase::Closed => "closed",
        };
        write!(f, "{:?} {phase}, held {} times", self.kind, state.holds)
    }
}

/// A hold on an object. The object's close cannot complete before the hold is dropped.
pub(crate) struct Hold(Arc<Lifecycle>);

impl Clone for Hold {
    fn clone(&self) -> Self {
        self.0.hold_again()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.release();
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "hold on {:?}", self.0.kind)
    }
}

impl Hold {
    /// Completes a request on the held object: in line or through `completion`, depending on the
    /// adapter's configuration. In the second case, the object stays held until `completion` has
    /// returned.
    ///
    /// # Errors
    /// The request's own, if it completes in line.
    pub(crate) fn complete<T: Send + 'static>(
        self,
        result: Result<T, NtStatus>,
        completion: impl FnOnce(Result<T, NtStatus>) + Send + 'static,
    ) -> Result<RequestOutcome<T>, NtStatus> {
        let dispatcher = self.0.dispatcher.clone();
        if !dispatcher.pends() {
            return result.map(RequestOutcome::Done);
        }
        self.complete_later(result, completion);
        Ok(RequestOutcome::Pending)
    }

    /// Calls `completion` on a thread of the adapter. The object stays held until `completion` has
    /// returned.
    pub(crate) fn complete_later<T: Send + 'static>(
        self,
        result: Result<T, NtStatus>,
        completion: impl FnOnce(Result<T, NtStatus>) + Send + 'static,
    ) {
        let dispatcher = self.0.dispatcher.clone();
        dispatcher.run(move || {
            completion(result);
            drop(self);
        });
    }
}

/// Completes the creation of an object. The pending creation holds the new object. So a close from
/// inside the completion waits until the completion has returned. If the creation failed, the
/// pending creation holds the antecedent instead.
///
/// # Errors
/// The error of the creation, if the creation completes in line.
pub(crate) fn complete_creation<T: Send + 'static>(
    antecedent: Hold,
    made: Result<T, NtStatus>,
    lifecycle: impl FnOnce(&T) -> &Arc<Lifecycle>,
    completion: impl FnOnce(Result<T, NtStatus>) + Send + 'static,
) -> Result<RequestOutcome<T>, NtStatus> {
    match made {
        Ok(object) => {
            let hold = lifecycle(&object).hold()?;
            hold.complete(Ok(object), completion)
        }
        Err(status) => antecedent.complete(Err(status), completion),
    }
}
