//! What a kernel answers on a socket of `NETLINK_RDMA` about its RDMA devices (`RDMA_NL_NLDEV`), as
//! values: a [`Table`] of devices and the bytes of a request in, the bytes of the replies out. The
//! program `rdma` of iproute2 and the libraries of rdma-core ask so.
//!
//! Layouts and numbers are those of Linux (`linux/netlink.h`, `rdma/rdma_netlink.h`), and so are
//! the rules: which attributes a request must have, what a dump is, and which error says what.
//!
//! Nothing here allocates, and no code path ends in a panic: the object that is loaded into every
//! program of a run has this inside.
//!
//! ```
//! use adverb_nldev::{Device, Table, answer};
//!
//! let device = Device {
//!     index: 0, name: b"adverb_lo", guid: 0x02_0000_fffe_0000_01, caps: 0, firmware: b"1", net_index: 1, net_name: b"lo",
//! };
//! let text = format!("{device}\n");
//! let table = Table::parse(text.as_bytes()).unwrap();
//! // Length, type (client 5, command 1), flags (request and dump), sequence number, port.
//! let mut request = [0_u8; 16];
//! request[..8].copy_from_slice(&[16, 0, 0, 0, 1, 5 << 2, 1, 3]);
//! let mut replies = Vec::new();
//! answer(&table, 77, &request, &mut |datagram| replies.push(datagram.to_vec()));
//! assert!(replies[0].windows(9).any(|w| w == b"adverb_lo"));
//! ```
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod answer;
mod numbers;
mod reply;
mod request;
mod table;

pub use answer::answer;
pub use reply::DATAGRAM;
pub use table::{BadLine, Device, Table};

#[cfg(test)]
extern crate std;
#[cfg(test)]
mod tests;
