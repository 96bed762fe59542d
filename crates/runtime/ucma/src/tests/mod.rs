//! Worlds over a simulated machine: their programs write commands, their MADs cross a network that
//! may lose, repeat and reorder them, and time is what the tests say.
mod death;
mod faults;
mod flows;
mod machine;
mod neighbours;
mod program;
mod rules;
mod torture;

use machine::{Machine, Network};
use program::{Program, Seen};
