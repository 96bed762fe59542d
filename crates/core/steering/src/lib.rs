//! Decides which receiver gets an Ethernet frame, as values: the fields of a frame, the flow rules
//! of verbs on these fields, and the hash that spreads frames over receive queues (RSS).
//!
//! ```
//! use adverb_steering::{Fields, Frame, Hash, Heard, Kind, Match, Rule, Spec, Table};
//!
//! let mut bytes = [0_u8; 60];
//! bytes[..6].copy_from_slice(&[0x02, 0, 0, 0, 0, 7]);
//! let frame = Frame::parse(&bytes).unwrap();
//!
//! let mut table = Table::default();
//! let to_seven = Spec::Eth { dst: Match::exactly(frame.dst), src: Match::ANY, ether_type: Match::ANY, vlan: Match::ANY };
//! table.add(Rule::new(Kind::Normal, 0, vec![to_seven]), "seven");
//! table.add(Rule::new(Kind::AllDefault, 0, vec![]), "the rest");
//! assert_eq!(table.choose(&frame, Heard::Arrived).copied().collect::<Vec<_>>(), ["seven"]);
//! assert_eq!(Hash::xor(Fields::ALL).of(&frame), 0, "nothing in it is hashed");
//! ```
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod frame;
mod hash;
mod rules;
mod table;
#[cfg(test)]
mod tests;

pub use frame::{Frame, HEADER, Transport};
pub use hash::{BadKey, Fields, Function, Hash, TOEPLITZ_KEY};
pub use rules::{Kind, Match, Rule, Spec};
pub use table::{Heard, RuleId, Table};
