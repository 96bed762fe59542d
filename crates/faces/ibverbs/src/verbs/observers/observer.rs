//! The trait of an instrument.
use super::call::{Call, CallOutcome, Event};

/// When instruments check whether the process asks for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// The library is being loaded. The program has not made any call yet.
    Load,
    /// The program uses a device.
    Use,
}

/// An instrument that observes the program's calls.
///
/// The instruments of the list surround the plain entry point like shells. `before` is called in
/// the order of the list, and `after` in the reverse order. `before`, `after` and `told` are called
/// only while [`Observer::is_on`]. They run on the calling thread, inside the call.
pub trait Observer: Sync {
    /// State of the instrument from `before` to `after`: a time, a list of requests, a lock. A
    /// thread can be cancelled in a call that waits for an event
    /// ([`What::CqEvent`](super::call::What::CqEvent), `AsyncEvent`). Then the state is not always
    /// dropped, so it must hold no lock in these calls.
    type Kept;

    /// Begins, if the process asks for the instrument. Called several times.
    fn begin(&self, when: When);

    /// Has the instrument begun?
    fn is_on(&self) -> bool;

    /// The program is about to make a call. The instrument may wait here. It may also change the
    /// program's list of work requests for the duration of the call.
    ///
    /// # Errors
    /// The instrument refuses the call. Later instruments and the plain entry point do not see the
    /// call, and `after` of this instrument is not called. The program gets the outcome.
    fn before(&self, call: &Call<'_>) -> Result<Self::Kept, CallOutcome>;

    /// The call has returned. The instrument may change the outcome, and fill the undefined fields
    /// of a failed completion.
    fn after(&self, call: &Call<'_>, outcome: &mut CallOutcome, kept: Self::Kept);

    /// An event outside of calls: an object was made, changed or destroyed, events were
    /// acknowledged, the process forks or ends.
    fn told(&self, _event: &mut Event<'_>) {}
}

/// An [`Observer`] in the list, with any kept state.
pub trait ListedObserver: Sync {
    /// The name of the type.
    #[cfg(test)]
    fn name(&self) -> &'static str;
    /// As [`Observer::begin`].
    fn begin(&self, when: When);
    /// As [`Observer::is_on`].
    fn is_on(&self) -> bool;
    /// Calls `before`, then `inner`, then `after`.
    fn around(&self, call: &Call<'_>, inner: &mut dyn FnMut() -> CallOutcome) -> CallOutcome;
    /// As [`Observer::told`].
    fn told(&self, event: &mut Event<'_>);
}

impl<O: Observer> ListedObserver for O {
    #[cfg(test)]
    fn name(&self) -> &'static str {
        core::any::type_name::<O>().rsplit("::").next().unwrap_or_default()
    }

    fn begin(&self, when: When) {
        Observer::begin(self, when);
    }

    fn is_on(&self) -> bool {
        Observer::is_on(self)
    }

    fn around(&self, call: &Call<'_>, inner: &mut dyn FnMut() -> CallOutcome) -> CallOutcome {
        match self.before(call) {
            Ok(kept) => {
                let mut outcome = inner();
                self.after(call, &mut outcome, kept);
                outcome
            }
            Err(refused) => refused,
        }
    }

    fn told(&self, event: &mut Event<'_>) {
        Observer::told(self, event);
    }
}
