//! What both halves of a queue pair look at.
use super::QpConfig;
use super::ecn::{ECN, ECT_0};
use crate::attr::{AddressVector, QpAttr};
use crate::types::QpType;
use adverb_wire::{ud_source_port, udp_source_port};

/// The context of a queue pair, borrowing just those two fields.
macro_rules! ctx {
    ($qp:ident) => {
        $crate::qp::context::QpCtx { config: &$qp.config, attr: &$qp.attr }
    };
}
pub(super) use ctx;

/// What both halves of a queue pair look at: how it was created and its attributes now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QpCtx<'a> {
    pub(crate) config: &'a QpConfig,
    /// `attr.state` is the state.
    pub(crate) attr: &'a QpAttr,
}

impl QpCtx<'_> {
    /// DSCP and ECN of its packets.
    pub(crate) fn traffic_class(&self, path: &AddressVector) -> u8 {
        let class = path.traffic_class;
        // What the consumer says counts.
        if self.config.qp_type.is_reliable() && class & ECN == 0 { class | ECT_0 } else { class }
    }
    /// UDP source port of its packets.
    pub(crate) fn source_port(&self) -> u16 {
        if self.config.qp_type == QpType::Ud {
            ud_source_port(self.config.qpn)
        } else {
            udp_source_port(self.config.qpn, self.attr.dest_qpn)
        }
    }
}
