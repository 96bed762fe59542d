//! The system calls with raw structures: message headers with ancillary data, reuseport programs,
//! abstract socket names. This module does not know RoCE.
//!
//! Calls made under locks go through `syscall`, because the C library's functions of the same names
//! are cancellation points. A thread cancelled in such a function by `pthread_cancel` would leave
//! the locks held for ever.
#![allow(unsafe_code)]

mod address;
mod cancel;
mod datagram;
mod ending;
mod fd;
mod group;
mod local;
pub mod netlink;
mod options;
mod packet;
mod process;
mod raw;
mod terminal;
mod transit;
mod wait;

pub use address::{RawAddr, bind, local_port};
pub use cancel::{Mask, Uncancellable, Uncancelled, sleep, use_ppoll, wait_readable};
pub use datagram::{
    DATAGRAM, MAX_DATAGRAMS, Received, RecvVec, SOL_UDP, SendOptions, UDP_GRO, UDP_NO_CHECK6_RX,
    send,
};
pub use ending::{close_received, end_connection};
pub use fd::{FD_LIMIT, Fd, FdTable, OwnFd};
pub use group::{join_group, multicast_interface, no_groups};
pub use local::{
    EVENTS, Local, accept, any_of, break_off, connect, is_local_stream, listen, message_socket,
    peer, recv_local, send_byte, send_local, stream_pair, take_bytes, take_no_more, unwatch,
    wait_any, watch, watch_for,
};
pub use options::{
    Insn, attach_filter, attach_reuseport, get_option, grow_buffer, kernel_drops, set_option,
    udp_socket,
};
pub use packet::{packet_socket, recv_frame, send_frame};
pub use process::{
    ask_for_page, await_signal, chosen, effective_uid, has_capabilities, only_uid, process_end,
    short_slices, signals_interrupt, signals_restart,
};
pub use terminal::terminal_size;
pub use transit::{Transit, drop_transit_after_fork, note_transit_before_fork};
pub use wait::{add_byte, poll, take_byte, wait_apart};

use raw::{check, check_len};
