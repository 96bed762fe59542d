//! Changes of attributes and states.
use super::Qp;
use super::ecn::Notifier;
use crate::attr::{AttrError, AttrMask, QpAttr, check_modify};
use crate::effects::Effects;
use crate::types::{Limits, QpState, QpType};
use adverb_wire::{Psn, QPN_MASK};

impl Qp {
    /// Changes attributes and state. A refusal changes nothing. A move to ERR flushes into
    /// `effects`.
    pub fn modify(
        &mut self,
        attr: &QpAttr,
        mask: AttrMask,
        limits: &Limits,
        effects: &mut Effects,
    ) -> Result<(), AttrError> {
        let from = self.attr.state;
        // Programs set the attributes of a whole connection on either half of an XRC connection.
        // Attributes of the other half are ignored, as in the kernel.
        let mask = mask
            - match self.config.qp_type {
                QpType::XrcSend => AttrMask::MAX_DEST_RD_ATOMIC | AttrMask::MIN_RNR_TIMER,
                QpType::XrcRecv => {
                    AttrMask::MAX_QP_RD_ATOMIC | AttrMask::RETRY_CNT | AttrMask::RNR_RETRY
                }
                _ => AttrMask::empty(),
            };
        let to = check_modify(self.config.qp_type, from, attr, mask, limits)?;
        let mut attr = *attr;
        attr.narrow(mask, &mut |_| ());
        copy_attributes(&mut self.attr, &attr, mask);
        match (from, to) {
            (_, QpState::Reset) => self.reset(),
            (QpState::Err, QpState::Err) => {}
            (_, QpState::Err) => self.enter_error(None, None, effects),
            (QpState::Init, QpState::Rtr) => {
                self.attr.state = to;
                self.responder.start(&self.attr);
                self.requester.update(&self.config, &self.attr);
            }
            (QpState::Rtr, QpState::Rts) => {
                self.attr.state = to;
                self.responder.update(&self.attr);
                self.requester.start(&self.config, &self.attr);
            }
            _ => {
                self.attr.state = to;
                self.responder.update(&self.attr);
                self.requester.update(&self.config, &self.attr);
                if to == QpState::Sqd && from != QpState::Sqd {
                    self.attr.sq_draining = true;
                    self.attr.en_sqd_async_notify =
                        mask.contains(AttrMask::EN_SQD_ASYNC_NOTIFY) && attr.en_sqd_async_notify;
                } else if to == QpState::Rts {
                    self.attr.sq_draining = false;
                    self.first_error = None;
                }
                self.settle(effects);
            }
        }
        Ok(())
    }

    /// RESET drops all requests without a completion.
    fn reset(&mut self) {
        self.requester.reset(&self.config, &mut self.counters);
        self.responder.reset(&mut self.counters);
        self.first_error = None;
        self.established = false;
        self.notifier = Notifier::default();
        self.attr = QpAttr { cap: self.config.cap, ..QpAttr::default() };
    }
}

/// Copies the fields in `mask`, except the state.
fn copy_attributes(to: &mut QpAttr, from: &QpAttr, mask: AttrMask) {
    macro_rules! copy {
        ($($bit:ident: $($field:ident),+;)*) => {
            $(if mask.contains(AttrMask::$bit) { $(to.$field = from.$field;)+ })*
        };
    }
    copy! {
        EN_SQD_ASYNC_NOTIFY: en_sqd_async_notify;
        ACCESS_FLAGS: access;
        PKEY_INDEX: pkey_index;
        PORT: port_num;
        QKEY: qkey;
        AV: av;
        PATH_MTU: path_mtu;
        TIMEOUT: timeout;
        RETRY_CNT: retry_cnt;
        RNR_RETRY: rnr_retry;
        RQ_PSN: rq_psn;
        MAX_QP_RD_ATOMIC: max_rd_atomic;
        ALT_PATH: alt_av, alt_pkey_index, alt_port_num, alt_timeout;
        MIN_RNR_TIMER: min_rnr_timer;
        SQ_PSN: sq_psn;
        MAX_DEST_RD_ATOMIC: max_dest_rd_atomic;
        PATH_MIG_STATE: path_mig_state;
        DEST_QPN: dest_qpn;
        RATE_LIMIT: rate_limit;
    }
    // 24-bit fields: hardware uses the low bits.
    to.rq_psn &= Psn::MASK;
    to.sq_psn &= Psn::MASK;
    to.dest_qpn &= QPN_MASK;
}
