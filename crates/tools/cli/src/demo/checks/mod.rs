//! The checks. Both processes run the same function side by side and meet at every [`World::sync`].
//! The first process prints the result.
mod errors;
mod notify;
mod one_sided;
mod transports;
mod two_sided;
mod windows;

use super::end::{Endpoint, Kind};
use super::world::World;

/// The success or the failure of a check, in a few words.
pub type Checked = Result<String, String>;

/// A check and its name.
pub type Check = (&'static str, fn(&mut World) -> Checked);

/// Runs a check with a connected queue pair in each process.
fn with(w: &mut World, kind: Kind, check: fn(&mut World, &mut Endpoint) -> Checked) -> Checked {
    let mut end = w.connected(kind)?;
    let said = check(w, &mut end)?;
    end.close()?;
    Ok(said)
}

/// All checks, in the order of the demonstration.
pub const ALL: &[Check] = &[
    ("Send", |w| with(w, Kind::Rc, two_sided::send)),
    ("Send with immediate", |w| with(w, Kind::Rc, two_sided::send_imm)),
    ("Inline data", |w| with(w, Kind::Rc, two_sided::inline)),
    ("Receiver not ready", |w| with(w, Kind::Rc, two_sided::not_ready)),
    ("RDMA Write", |w| with(w, Kind::Rc, one_sided::write)),
    ("RDMA Write with immediate", |w| with(w, Kind::Rc, one_sided::write_imm)),
    ("RDMA Read", |w| with(w, Kind::Rc, one_sided::read)),
    ("Compare and swap", |w| with(w, Kind::Rc, one_sided::compare_swap)),
    ("Fetch and add", |w| with(w, Kind::Rc, one_sided::fetch_add)),
    ("Atomic write, flush", |w| with(w, Kind::Rc, one_sided::atomic_write_and_flush)),
    ("Memory window, Send+inv", |w| with(w, Kind::Rc, windows::send_inv)),
    ("Local invalidate", |w| with(w, Kind::Rc, windows::local_inv)),
    ("UC Send and Write", |w| with(w, Kind::Uc, transports::uc)),
    ("UD Send", |w| with(w, Kind::Ud, transports::ud)),
    ("Shared receive queue", transports::srq),
    ("XRC Send", transports::xrc),
    ("Event: next completion", |w| with(w, Kind::Rc, notify::next)),
    ("Event: solicited", |w| with(w, Kind::Rc, notify::solicited)),
    ("Access error", |w| with(w, Kind::Rc, errors::bad_rkey)),
];

/// Message sizes: empty, one byte, around the size of a packet, and long.
pub const SIZES: [usize; 9] = [0, 1, 8, 255, 1024, 4097, 65_536, 1_000_003, 1 << 20];

/// The range of [`SIZES`] in words.
pub const SIZES_IN_WORDS: &str = "9 sizes, 0 B to 1 MiB";

/// Fails unless both values are equal.
pub fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: T, wanted: T) -> Result<(), String> {
    if found == wanted { Ok(()) } else { Err(format!("{what} is {found:?}, expected {wanted:?}")) }
}
