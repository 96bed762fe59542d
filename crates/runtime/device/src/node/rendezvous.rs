//! Rendezvous of a tag matching SRQ for its peers: a READ of the peer's data, and a message at the
//! end of the READ. Both go through the send queue of the queue pair, which has room for them.
use super::core::Node;
use super::queue_pair::{AnyQp, QpInner};
use crate::error::Error;
use adverb_engine::tags::MAX_TAG_SGE;
use adverb_engine::{
    Cause, Completion, CqRef, Effects, Payload, QpCap, QpState, QpType, SendFlags, SendOp, SendWr,
    WcOpcode, WcStatus,
};
use adverb_wire::tag_matching::RENDEZVOUS_LEN;
use std::sync::Arc;

/// Requests of a rendezvous: the READ and the final message.
const REQUESTS: usize = 2;
/// Concurrent rendezvous of a queue pair. Further rendezvous wait.
const AT_ONCE: u32 = 32;

/// Adds room for rendezvous to the program's capacities.
///
/// # Errors
/// EINVAL unless the queue pair is an RC queue pair.
pub(crate) fn make_room(qp_type: QpType, cap: &mut QpCap) -> Result<(), Error> {
    if qp_type != QpType::Rc {
        let rule = "a tag matching SRQ serves RC queue pairs (IBV_TM_CAP_RC)";
        return Err(Error::invalid(format!("srq of a {qp_type:?} queue pair"), rule));
    }
    cap.max_send_wr += AT_ONCE * REQUESTS as u32;
    cap.max_send_sge = cap.max_send_sge.max(MAX_TAG_SGE);
    cap.max_inline_data = cap.max_inline_data.max(RENDEZVOUS_LEN as u32);
    Ok(())
}

/// Posts waiting rendezvous, as far as there is room. In ERR they fail.
#[cold]
pub(super) fn begin(node: &Node, qp: &AnyQp, inner: &mut QpInner, effects: &mut Effects) {
    let mut posted = false;
    while let Some(next) = inner.rendezvous.front() {
        match inner.engine.state() {
            QpState::Rts if inner.engine.free_sends() >= REQUESTS => {}
            QpState::Err => {
                let cause = inner.engine.first_error().cloned().unwrap_or_else(|| {
                    let (op, state) = ("a rendezvous", QpState::Err);
                    Arc::new(Cause::WrongState { op, state })
                });
                let status = WcStatus::WrFlushErr;
                let failed =
                    Completion::failure(next.wr_id, qp.number(), WcOpcode::TmRecv, status, cause);
                effects.completions.push((CqRef::Recv, failed));
                inner.rendezvous.pop_front();
                continue;
            }
            _ => break,
        }
        let read = SendWr {
            wr_id: next.wr_id,
            flags: SendFlags::RENDEZVOUS | SendFlags::SIGNALED,
            op: SendOp::Read(next.from),
            data: Payload::Sges(&next.sges),
            ud: None,
            xrc_srqn: 0,
        };
        let fin = SendWr {
            flags: SendFlags::RENDEZVOUS | SendFlags::FENCE | SendFlags::INLINE,
            op: SendOp::Send,
            data: Payload::Inline(&[&next.fin]),
            ..read
        };
        // The send queue has room and the state is right, so both requests are accepted.
        let taken = inner.engine.stage_send(&read).and_then(|()| inner.engine.stage_send(&fin));
        debug_assert!(taken.is_ok(), "{taken:?}");
        inner.rendezvous.pop_front();
        posted = true;
    }
    if posted {
        inner.engine.commit_sends(effects);
        node.pump_soon(qp);
    }
}
