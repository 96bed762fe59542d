//! Values that several fields of a message form together.
use crate::mad::{Rej, Rep, Req, SidrRep};
use crate::reason::RejectReason;
use crate::types::QpKind;
use crate::values::{Ece, SidrStatus};

impl Req {
    /// The requested transport; `None` for transports that no queue pair here supports.
    #[must_use]
    pub const fn qp_kind(&self) -> Option<QpKind> {
        match (self.transport, self.extended_transport) {
            (0, _) => Some(QpKind::Rc),
            (1, _) => Some(QpKind::Uc),
            (3, 1) => Some(QpKind::Xrc),
            _ => None,
        }
    }

    /// Options of the vendor.
    #[must_use]
    pub const fn ece(&self) -> Ece {
        Ece { vendor_id: self.ece_vendor_id, attr_mod: self.ece_attr_mod }
    }
}

impl Rep {
    /// Queue pair of the sender.
    #[must_use]
    pub const fn queue_pair(&self, kind: QpKind) -> u32 {
        match kind {
            QpKind::Xrc => self.eecn,
            QpKind::Rc | QpKind::Uc => self.qpn,
        }
    }

    /// Options of the vendor.
    #[must_use]
    pub const fn ece(&self) -> Ece {
        let vendor_id = u32::from_be_bytes([
            0,
            self.ece_vendor_high,
            self.ece_vendor_middle,
            self.ece_vendor_low,
        ]);
        Ece { vendor_id, attr_mod: self.ece_attr_mod }
    }
}

impl Rej {
    /// The reason of the REJ.
    #[must_use]
    pub const fn reason(&self) -> RejectReason {
        RejectReason(self.reason)
    }

    /// The valid part of the additional reject information.
    #[must_use]
    pub fn info(&self) -> &[u8] {
        &self.info[..usize::from(self.info_len).min(self.info.len())]
    }
}

impl SidrRep {
    /// Outcome.
    #[must_use]
    pub const fn status(&self) -> SidrStatus {
        SidrStatus(self.status)
    }

    /// Options of the vendor.
    #[must_use]
    pub const fn ece(&self) -> Ece {
        let vendor_id = (self.ece_vendor_high as u32) << 8 | self.ece_vendor_low as u32;
        Ece { vendor_id, attr_mod: self.ece_attr_mod }
    }
}
