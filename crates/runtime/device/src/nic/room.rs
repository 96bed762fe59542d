//! The room of a work request: how much inline data and how many scatter/gather entries a queue
//! pair is granted, beyond its request.
//!
//! rxe and libmlx5 place inline data and entries in the same memory, and grant the capacity of this
//! memory. Programs rely on the grant, so each device grants the same as its driver. Depths of
//! queues are granted as requested.
use super::Nic;
use adverb_engine::{Limits, QpCap, QpType};

/// Bytes of a scatter/gather entry, in rxe's requests and in libmlx5's.
const ENTRY: u32 = 16;

/// The room of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// As requested (`providers/irdma`, `providers/efa`).
    AsAsked,
    /// Shared memory for inline data and entries, as large as the larger of both (`rxe_init_sq`).
    Shared,
    /// The device's full inline data for every request (`providers/siw`).
    AllInline,
    /// A multiple of 64 bytes for headers, entries and inline data (`mlx5_calc_send_wqe`).
    Blocks,
}

/// Operations allowed in a send queue: `send_ops_flags`, or all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operations {
    /// RDMA write and read.
    pub rdma: bool,
    /// Atomics.
    pub atomic: bool,
    /// Binds of memory windows and local invalidation.
    pub keys: bool,
}

impl Operations {
    /// Without `send_ops_flags`: all operations of this kind of queue pair.
    #[must_use]
    pub fn all(kind: QpType) -> Self {
        let connected = !matches!(kind, QpType::Ud | QpType::RawPacket);
        Operations { rdma: connected, atomic: connected, keys: connected }
    }
}

/// The granted sizes of a queue pair. They are at least the requested sizes. Beyond the request
/// they stay within the device's limits, so that only a requested size can be refused.
#[must_use]
pub fn grant(
    nic: Option<&Nic>,
    limits: &Limits,
    kind: QpType,
    operations: Operations,
    asked: QpCap,
) -> QpCap {
    let mut cap = asked;
    match nic.map_or(Room::Shared, |nic| nic.room) {
        Room::AsAsked => {}
        Room::Shared => {
            cap.max_inline_data =
                asked.max_inline_data.max(asked.max_send_sge.saturating_mul(ENTRY));
            cap.max_send_sge = asked.max_send_sge.max(asked.max_inline_data / ENTRY);
        }
        Room::AllInline => cap.max_inline_data = limits.max_inline,
        Room::Blocks => {
            if asked.max_send_wr > 0 {
                cap.max_inline_data = mlx5_inline(mlx5_headers(kind, operations), asked);
            }
            if asked.max_recv_wr > 0 {
                cap.max_recv_sge = power_of_two(asked.max_recv_sge);
            }
        }
    }
    let within = |granted: u32, asked: u32, limit: u32| granted.min(limit).max(asked);
    cap.max_inline_data = within(cap.max_inline_data, asked.max_inline_data, limits.max_inline);
    cap.max_send_sge = within(cap.max_send_sge, asked.max_send_sge, limits.max_sge);
    cap.max_recv_sge = within(cap.max_recv_sge, asked.max_recv_sge, limits.max_sge);
    cap
}

/// The granted entries of a shared receive queue, by the same rules (`mlx5_alloc_srq_buf`).
#[must_use]
pub fn grant_srq(nic: Option<&Nic>, limits: &Limits, asked: u32) -> u32 {
    if nic.map(|nic| nic.room) != Some(Room::Blocks) {
        return asked;
    }
    // A request begins with 16 bytes that name the next request, and has at least 32 bytes.
    let entries = power_of_two(asked.saturating_add(1).max(2)) - 1;
    entries.min(limits.max_sge).max(asked)
}

fn power_of_two(n: u32) -> u32 {
    n.max(1).checked_next_power_of_two().unwrap_or(u32::MAX)
}

/// Bytes before the entries of a request (`_sq_overhead`).
fn mlx5_headers(kind: QpType, operations: Operations) -> u32 {
    const CONTROL: u32 = 16;
    let of = |has: bool, bytes: u32| if has { CONTROL + bytes } else { CONTROL };
    // An address; an address and two operands; a control segment of 48 bytes, a key's context and a
    // list of its memory of 64 bytes each.
    let operation =
        of(operations.rdma, 16).max(of(operations.atomic, 32)).max(of(operations.keys, 176));
    let transport = match kind {
        QpType::Ud => 48,
        QpType::XrcSend | QpType::XrcRecv => 16,
        QpType::RawPacket => 32,
        QpType::Rc | QpType::Uc => 0,
    };
    operation + transport
}

/// Bytes of inline data in a request of `asked` after `headers` bytes.
fn mlx5_inline(headers: u32, asked: QpCap) -> u32 {
    const BLOCK: u32 = 64;
    /// The length precedes inline data.
    const LENGTH: u32 = 4;
    let up = |bytes: u32, to: u32| bytes.checked_next_multiple_of(to).unwrap_or(u32::MAX);
    let entries = asked.max_send_sge.saturating_mul(ENTRY);
    let inline = match asked.max_inline_data {
        0 => 0,
        bytes => up(bytes.saturating_add(LENGTH), ENTRY),
    };
    up(headers.saturating_add(entries.max(inline)), BLOCK).saturating_sub(headers + LENGTH)
}

#[cfg(test)]
mod tests;
