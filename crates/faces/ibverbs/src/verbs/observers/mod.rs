//! Instruments that observe a program's calls: `adverb run --trace`, `adverb run --check` and
//! `adverb hunt`.
//!
//! - [`observer`]: the trait of an instrument: `before` and `after` of each call, and `told`.
//! - [`call`]: calls, their outcomes, and other events for instruments.
//! - [`list`](mod@list): the only list of the instruments. A new instrument is a file and a line
//!   there.
//! - [`table`]: the instrumented entry points of the data path. They surround the plain entry point
//!   with each instrument of the list.
//! - [`control`]: the same for all other functions.
//! - `process`: forks, and the end of the process.
//! - [`trace`], [`check`], [`hunt`]: the instruments. No instrument names another.
//!
//! A process without instruments has the plain entry points in its tables. Exported functions read
//! one byte, [`list::ON`].
pub mod call;
pub mod check;
pub mod control;
pub mod hunt;
pub mod list;
pub mod observer;
mod process;
pub mod table;
#[cfg(test)]
mod tests;
pub mod trace;
mod undefined;
mod uninterrupted;

use call::Event;
use observer::When;

/// The trace begins with the program's first call, so the library checks for it when it is loaded.
#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

#[cfg(not(test))]
extern "C" fn at_load() {
    init(When::Load);
}

/// Makes each instrument check whether the process asks for it.
pub fn init(when: When) {
    if list::begin(when) {
        process::watch();
        adverb_device::cuts::observe(|cuts| list::tell(Event::Cut(cuts)));
        adverb_hunt::set_witness(|call, choice, place| {
            list::tell(Event::Chosen { call, choice, place });
        });
        adverb_waits::tell_over(|call, limit| list::tell(Event::WaitOver { call, limit }));
    }
}
