//! The data that both halves of a queue pair read.
use super::QpConfig;
use super::ecn::{ECN, ECT_0};
use crate::attr::{AddressVector, QpAttr};
use crate::types::QpType;
use adverb_wire::{ud_source_port, udp_source_port};

/// The context of a queue pair; borrows these two fields only.
macro_rules! ctx {
    ($qp:ident) => {
        $crate::qp::context::QpCtx { config: &$qp.config, attr: &$qp.attr }
    };
}
pub(super) use ctx;

/// The data that both halves of a queue pair read: the creation parameters and the current
/// attributes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QpCtx<'a> {
    pub(crate) config: &'a QpConfig,
    /// Contains the state: `attr.state`.
    pub(crate) attr: &'a QpAttr,
}

impl QpCtx<'_> {
    /// DSCP and ECN of the queue pair's packets.
    pub(crate) fn traffic_class(&self, path: &AddressVector) -> u8 {
        let class = path.traffic_class;
        // An ECN field set by the consumer takes precedence.
        if self.config.qp_type.is_reliable() && class & ECN == 0 { class | ECT_0 } else { class }
    }
    /// UDP source port of the queue pair's packets.
    pub(crate) fn source_port(&self) -> u16 {
        if self.config.qp_type == QpType::Ud {
            ud_source_port(self.config.qpn)
        } else {
            udp_source_port(self.config.qpn, self.attr.dest_qpn)
        }
    }
}
