//! The system calls of Adverb, and the kernel's information on interfaces, addresses, names and
//! users.
//!
//! This crate does not know RoCE, the UDP port of RoCE, or other processes of Adverb.

#![deny(unsafe_code)]

pub mod detection;
mod error;
mod failures;
mod interfaces;
mod loopback;
mod neighbour;
mod own_addresses;
pub mod owner;
mod process;
mod refused;
pub mod sys;

pub use detection::{Detection, unusable_addresses};
pub use error::{OsError, User};
pub use failures::SocketErrors;
pub use interfaces::{InterfaceNews, LinkInfo, links, outward_addresses};
pub use loopback::open_loopback;
pub use neighbour::{
    NoWay, ask_neighbour, ethernet_address, find_neighbour, neighbour_is_known, no_way_now,
    scope_in,
};
pub use own_addresses::OwnAddresses;
pub use owner::users_can_be_told_apart;
pub use process::{ProcessStat, processes, runs_own_executable};
pub use refused::{refused_connection, refused_memory};
pub use sys::{
    Mask, OwnFd, Transit, Uncancellable, Uncancelled, add_byte, await_signal, chosen,
    drop_transit_after_fork, end_connection, has_capabilities, note_transit_before_fork,
    process_end, short_slices, signals_interrupt, signals_restart, sleep, take_byte, use_ppoll,
    wait_apart, wait_readable,
};
