//! What a queue pair is created with.
use crate::attr::QpCap;
use crate::types::{PathMtu, PdId, QpType, Qpn};

/// What a queue pair is created with.
#[derive(Clone, Copy, Debug)]
pub struct QpConfig {
    /// Number.
    pub qpn: Qpn,
    /// Transport service.
    pub qp_type: QpType,
    /// Protection domain.
    pub pd: PdId,
    /// Sizes.
    pub cap: QpCap,
    /// Every send completes (`sq_sig_all`).
    pub signal_all: bool,
    /// Receives come from an SRQ.
    pub uses_srq: bool,
    /// Path MTU of the port: the longest UD message (the `path_mtu` attribute is not set on UD).
    pub port_mtu: PathMtu,
    /// Bytes a requester keeps unacknowledged at most, so that it does not overrun the socket
    /// buffers on the way ([`QpConfig::MAX_INFLIGHT`] is a good value). Responses to reads are
    /// counted by the same measure.
    pub max_inflight: u32,
    /// Operations that end are noted for completion counters.
    pub counted: bool,
}

impl QpConfig {
    /// The usual `max_inflight`: below the default receive buffer of a Linux UDP socket (208 KiB).
    pub const MAX_INFLIGHT: u32 = 192 * 1024;
}
