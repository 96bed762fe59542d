//! The active side confirms a connection.

use crate::abi::kernel::*;
use crate::error::{Errno, Outcome};
use crate::id::Id;
use crate::{command, qp, verbs};
use adverb_abi::ibv_ece;

/// No parameters: what was said before holds.
pub const NO_PARAM: ConnParam = ConnParam {
    qp_num: 0,
    qkey: 0,
    private_data: [0; PRIVATE_DATA],
    private_data_len: 0,
    srq: 0,
    responder_resources: 0,
    initiator_depth: 0,
    flow_control: 0,
    retry_count: 0,
    rnr_retry_count: 0,
    valid: 0,
};

/// The active side confirms what the peer accepted; its queue pair, if it has one, is ready to send
/// afterwards.
pub fn confirm(id: &Id) -> Outcome {
    let sent = qp::to_receive(id, None).and_then(|()| qp::to_send(id, None)).and_then(|()| {
        let (handle, ece) = (id.handle.get(), Ece::default());
        command::perform(id.fd(), Accept { uid: 0, conn_param: NO_PARAM, id: handle, reserved: 0, ece })
    });
    sent.inspect_err(|_| {
        let _ = qp::to_error(id);
    })
}

/// The same after the queue pair has been told what the peer made of our offer.
pub fn confirm_with_ece(id: &Id, from: Ece) -> Outcome {
    let local = id.with(|state| state.local_ece);
    let agreed = match from.vendor_id {
        // The peer knows nothing of it.
        0 => ibv_ece { options: 0, ..local },
        vendor if vendor == local.vendor_id => ibv_ece { options: from.attr_mod, ..local },
        // The answer has to name the vendor of the request.
        _ => {
            let _ = qp::to_error(id);
            return Err(Errno(libc::EINVAL));
        }
    };
    id.with(|state| state.remote_ece.vendor_id = from.vendor_id);
    let qp = id.public.qp.get();
    // SAFETY: the id's queue pair exists.
    unsafe { verbs::set_ece(qp, agreed) }?;
    confirm(id)?;
    // SAFETY: as above.
    let ece = unsafe { verbs::query_ece(qp) }.inspect_err(|_| {
        let _ = qp::to_error(id);
    })?;
    id.with(|state| state.local_ece.options = ece.options);
    Ok(())
}
