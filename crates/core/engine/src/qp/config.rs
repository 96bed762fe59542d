//! The parameters of a new queue pair.
use crate::attr::QpCap;
use crate::types::{PathMtu, PdId, QpType, Qpn};

/// The parameters of a new queue pair.
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
    /// Most unacknowledged bytes of a requester ([`QpConfig::MAX_INFLIGHT`] is a good value). The
    /// flow window stays below. Responses to READs count in the same way.
    pub max_inflight: u32,
    /// Finished operations are noted for completion counters.
    pub counted: bool,
}

impl QpConfig {
    /// The usual `max_inflight`: enough for 10 Gbit/s over 12 ms, or 100 Gbit/s over 1 ms.
    pub const MAX_INFLIGHT: u32 = 16 << 20;
}
