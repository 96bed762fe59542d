//! Answers queries of `NETLINK_RDMA` about RDMA devices (`RDMA_NL_NLDEV`) as a kernel would. Input
//! is a [`Table`] of devices, the [`Objects`] of the user's processes, and the bytes of a request;
//! output is the bytes of the replies. The program `rdma` of iproute2 and the libraries of
//! rdma-core send such requests.
//!
//! Layouts and numbers are those of Linux (`linux/netlink.h`, `rdma/rdma_netlink.h`). The rules are
//! those of Linux as well: the required attributes of a request, the meaning of a dump, and the
//! meaning of each error.
//!
//! This crate does not allocate and does not panic, because it is part of the object that is loaded
//! into every program of a run.
//!
//! ```
//! use adverb_nldev::{Device, Table, answer};
//!
//! let device = Device {
//!     index: 0, name: b"adverb0", guid: 0x02_0000_fffe_0000_01, caps: 0, firmware: b"1", net_index: 1, net_name: b"lo", up: true,
//! };
//! let text = format!("{device}\n");
//! let table = Table::parse(text.as_bytes()).unwrap();
//! // Length, type (client 5, command 1), flags (request and dump), sequence number, port.
//! let mut request = [0_u8; 16];
//! request[..8].copy_from_slice(&[16, 0, 0, 0, 1, 5 << 2, 1, 3]);
//! let mut replies = Vec::new();
//! let mut refuse = |_: adverb_nldev::LinkChange<'_>| 95;
//! answer(&table, None, 77, &request, &mut refuse, &mut |datagram| replies.push(datagram.to_vec()));
//! assert!(replies[0].windows(7).any(|w| w == b"adverb0"));
//! ```
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod answer;
mod numbers;
mod objects;
mod reply;
mod request;
mod table;

pub use answer::{LinkChange, answer, needs_objects};
pub use objects::{COUNTERS, Counts, Object, ObjectLine, Objects, QUESTION};
pub use reply::DATAGRAM;
pub use table::{BadLine, Device, Table};

#[cfg(test)]
extern crate std;
#[cfg(test)]
mod tests;
