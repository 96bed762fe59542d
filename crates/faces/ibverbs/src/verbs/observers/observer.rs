//! What an instrument is.
use super::call::{Call, Event, Outcome};

/// When instruments look whether the process asks for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// The library is being loaded: the program has not called anything yet.
    Load,
    /// The program uses a device.
    Use,
}

/// An instrument that observes what the program calls.
///
/// The instruments of the list lie around the plain entry point like shells. `before` is called in
/// the order of the list, `after` in the reverse order. These two and `told` are called only while
/// [`Observer::is_on`]. They run on the thread that calls, inside the call.
pub trait Observer: Sync {
    /// What the instrument keeps of a call until the call has returned: a time, a list of requests,
    /// a lock. A thread can be cancelled in a call that waits for an event
    /// ([`What::CqEvent`](super::call::What::CqEvent), `AsyncEvent`), and the kept value is not
    /// always dropped then. It must hold no lock there.
    type Kept;

    /// The word for the instrument.
    fn name(&self) -> &'static str;

    /// Begins, if the process asks for the instrument. Called several times.
    fn begin(&self, when: When);

    /// Has the instrument begun?
    fn is_on(&self) -> bool;

    /// The program is about to make a call. The instrument may wait here, and may change the
    /// program's list of work requests for as long as the call lasts.
    ///
    /// # Errors
    /// The instrument refuses the call. Neither later instruments nor the plain entry point see it,
    /// and `after` of this instrument is not called. The program gets the outcome.
    fn before(&self, call: &Call<'_>) -> Result<Self::Kept, Outcome>;

    /// The call has returned. The instrument may change the outcome, and fill the undefined fields
    /// of a failed completion.
    fn after(&self, call: &Call<'_>, outcome: &mut Outcome, kept: Self::Kept);

    /// Something happened that is no call with a before and an after: an object was made, changed
    /// or destroyed, events were acknowledged, the process forks or ends.
    fn told(&self, _event: &mut Event<'_>) {}
}

/// An [`Observer`] in the list, whatever it keeps.
pub trait Entry: Sync {
    /// As [`Observer::name`].
    fn name(&self) -> &'static str;
    /// As [`Observer::begin`].
    fn begin(&self, when: When);
    /// As [`Observer::is_on`].
    fn is_on(&self) -> bool;
    /// Calls `before`, then `inner`, then `after`.
    fn around(&self, call: &Call<'_>, inner: &mut dyn FnMut() -> Outcome) -> Outcome;
    /// As [`Observer::told`].
    fn told(&self, event: &mut Event<'_>);
}

impl<O: Observer> Entry for O {
    fn name(&self) -> &'static str {
        Observer::name(self)
    }

    fn begin(&self, when: When) {
        Observer::begin(self, when);
    }

    fn is_on(&self) -> bool {
        Observer::is_on(self)
    }

    fn around(&self, call: &Call<'_>, inner: &mut dyn FnMut() -> Outcome) -> Outcome {
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
