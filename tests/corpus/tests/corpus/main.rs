//! The corpus: every program runs, a check names the wrong ones, and a hunt finds them. Each case
//! sets the path itself.
#![forbid(unsafe_code)]

mod check;
mod hunt;
mod twins;

use std::process::ExitCode;

use adverb_foreign::suite::{self, Suite};

const SUITES: &[Suite] = &[
    Suite::new("twins", twins::cases).once().after(twins::print_rates),
    Suite::new("check", check::cases).once(),
    // A hunted pair uses a fixed port.
    Suite::new("hunt", hunt::cases).once().alone().after(hunt::print_table),
];

fn main() -> ExitCode {
    suite::main(SUITES)
}
