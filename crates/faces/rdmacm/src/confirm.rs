//! Confirmation of a connection by the active side.

use crate::error::{Errno, ErrnoResult};
use crate::id::Id;
use crate::{command, qp, verbs};
use adverb_abi::rdma_user_cm::{Request, rdma_ucm_accept, rdma_ucm_ece};
use adverb_abi::{Plain, ibv_ece};

/// Confirms the peer's acceptance. The queue pair of the id, if any, is in RTS afterwards.
pub fn confirm(id: &Id) -> ErrnoResult {
    let sent = qp::to_receive(id, None).and_then(|()| qp::to_send(id, None)).and_then(|()| {
        // No parameters: the earlier parameters stay valid.
        let accept = rdma_ucm_accept { id: id.handle.get(), ..rdma_ucm_accept::zeroed() };
        command::perform(id.fd(), Request::Accept(accept))
    });
    sent.inspect_err(|_| {
        let _ = qp::to_error(id);
    })
}

/// Confirms after telling the queue pair the peer's answer to our ECE offer.
pub fn confirm_with_ece(id: &Id, from: rdma_ucm_ece) -> ErrnoResult {
    let local = id.with(|state| state.local_ece);
    let agreed = match from.vendor_id {
        // The peer does not support ECE.
        0 => ibv_ece { options: 0, ..local },
        vendor if vendor == local.vendor_id => ibv_ece { options: from.attr_mod, ..local },
        // The answer must name the vendor of the request.
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
