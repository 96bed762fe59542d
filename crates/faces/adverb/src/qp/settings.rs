//! The connection settings of a queue pair, and the attributes of its transitions.
use super::QpInfo;
use adverb_device::device::PORT;
use adverb_device::engine::{Access, AddressVector, PathMtu, QpAttr};
use std::time::Duration;

/// The default Q_Key of datagrams (IBTA 10.2.5).
const QKEY: u32 = 0x00ad_0ad0;

/// All operations of peers. The keys of the memory may allow less.
const ALL_REMOTE: Access = Access::REMOTE_READ
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_ATOMIC)
    .union(Access::FLUSH_GLOBAL)
    .union(Access::FLUSH_PERSISTENT);

/// Timers, counts and rights.
#[derive(Clone, Debug)]
pub struct Settings {
    pub access: Access,
    /// A limit below the device's MTU; `None` is the device's MTU.
    pub path_mtu: Option<PathMtu>,
    /// The most reads and atomics of this side that are under way at the same time.
    pub reads_out: u8,
    /// The most reads and atomics of the peer that are answered at the same time.
    pub reads_in: u8,
    /// Local ACK timeout code (IBTA 9.7.6.1.3).
    pub ack_timeout: u8,
    pub retry_count: u8,
    pub rnr_retry: u8,
    /// RNR NAK timer code (IBTA 9.7.5.2.8).
    pub rnr_timer: u8,
    pub qkey: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            access: ALL_REMOTE,
            path_mtu: None,
            reads_out: 16,
            reads_in: 16,
            // 67 ms.
            ack_timeout: 14,
            retry_count: 7,
            // Forever.
            rnr_retry: 7,
            // 10 µs.
            rnr_timer: 1,
            qkey: QKEY,
        }
    }
}

/// The first code whose time is at least `wanted`, or the code of the longest time. `codes` has the
/// 5-bit codes in order of their times.
fn code_of(wanted: Duration, codes: impl Iterator<Item = (u8, Duration)>) -> u8 {
    let mut longest = 0;
    for (code, time) in codes {
        longest = code;
        if time >= wanted {
            break;
        }
    }
    longest
}

/// The code of a local ACK timeout; zero means never.
pub fn ack_timeout_code(wanted: Duration) -> u8 {
    if wanted.is_zero() {
        return 0;
    }
    let times =
        (1..32).filter_map(|c| Some((c, Duration::from_nanos(adverb_wire::ack_timeout_ns(c)?))));
    code_of(wanted, times)
}

/// The code of an RNR NAK timer. Code 0 is the longest.
pub fn rnr_timer_code(wanted: Duration) -> u8 {
    let time = |c| (c, Duration::from_micros(adverb_wire::rnr_timer_us(c).into()));
    code_of(wanted, (1..32).chain([0]).map(time))
}

impl Settings {
    /// The attributes of the transition from RESET to INIT.
    pub fn init(&self) -> QpAttr {
        QpAttr { port_num: PORT, access: self.access, qkey: self.qkey, ..QpAttr::default() }
    }

    /// The attributes of the transitions from INIT to RTR and RTS, for connections.
    pub fn connecting(&self, own: &QpInfo, peer: &QpInfo, av: AddressVector) -> QpAttr {
        QpAttr {
            av,
            path_mtu: own.path_mtu.min(peer.path_mtu),
            dest_qpn: peer.number,
            rq_psn: peer.first_psn,
            max_dest_rd_atomic: own.reads_in.min(peer.reads_out),
            min_rnr_timer: self.rnr_timer,
            sq_psn: own.first_psn,
            timeout: self.ack_timeout,
            retry_cnt: self.retry_count,
            rnr_retry: self.rnr_retry,
            max_rd_atomic: own.reads_out.min(peer.reads_in),
            ..QpAttr::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ack_timeout_code, rnr_timer_code};
    use std::time::Duration;

    #[test]
    fn times_round_up_to_the_next_code() {
        assert_eq!(ack_timeout_code(Duration::ZERO), 0, "never");
        assert_eq!(ack_timeout_code(Duration::from_nanos(1)), 1);
        assert_eq!(ack_timeout_code(Duration::from_nanos(8192)), 1);
        assert_eq!(ack_timeout_code(Duration::from_nanos(8193)), 2);
        assert_eq!(ack_timeout_code(Duration::from_millis(67)), 14);
        assert_eq!(ack_timeout_code(Duration::MAX), 31);
        assert_eq!(rnr_timer_code(Duration::ZERO), 1);
        assert_eq!(rnr_timer_code(Duration::from_micros(50)), 5);
        assert_eq!(rnr_timer_code(Duration::from_millis(600)), 0, "code 0 is 655 ms");
        assert_eq!(rnr_timer_code(Duration::MAX), 0);
    }
}
