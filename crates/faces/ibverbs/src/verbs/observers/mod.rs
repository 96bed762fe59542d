//! Instruments that observe what a program calls: `adverb run --trace`, `adverb run --check` and
//! `adverb hunt`.
//!
//! - [`observer`]: what an instrument is: `before` and `after` of each call, and `told`.
//! - [`call`]: calls, their outcomes, and what else instruments are told.
//! - [`list`](mod@list): the one list of the instruments. A new instrument is a file and a line
//!   there.
//! - [`table`]: the instrumented entry points of the data path. They call each instrument of the
//!   list around the plain entry point.
//! - [`control`]: the same for all other functions.
//! - `process`: forks, and the end of the process.
//! - [`trace`], [`check`], [`hunt`]: the instruments. None of them names another.
//!
//! A process that asks for no instrument has the plain entry points in its tables. Exported
//! functions look at one byte, [`list::ON`].
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

use call::Event;
use observer::When;

/// The trace begins with the program's first call, so the library looks when it is loaded.
#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

#[cfg(not(test))]
extern "C" fn at_load() {
    init(When::Load);
}

/// Has each instrument look whether the process asks for it.
pub fn init(when: When) {
    if list::begin(when) {
        process::watch();
        adverb_device::cuts::observe(|cuts| list::tell(Event::Cut(cuts)));
    }
}
