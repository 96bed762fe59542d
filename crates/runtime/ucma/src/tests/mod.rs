//! Worlds over a simulated machine. The programs send commands, the MADs cross a network that may
//! lose, repeat and reorder them, and the tests control the time.
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
