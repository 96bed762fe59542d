//! The corpus: every program runs, a check names the wrong ones, and a hunt finds them. Each case
//! sets the path itself.
#![forbid(unsafe_code)]

mod check;
mod found;
mod hunt;
mod twins;

use std::process::ExitCode;

use adverb_foreign::suite::{self, Suite};

const SUITES: &[Suite] = &[
    Suite::new("twins", twins::cases).once().after(twins::print_rates),
    Suite::new("check", check::cases).once(),
    Suite::new("found", found::cases).once().after(found::print_table),
    // A hunted pair uses a fixed port.
    Suite::new("hunt", hunt::cases).once().alone(),
];

fn main() -> ExitCode {
    suite::main(SUITES)
}
