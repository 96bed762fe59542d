//! Confirmation of a connection by the active side.

use crate::error::{Errno, ErrnoResult};
use crate::id::Id;
use crate::{command, qp};
use adverb_abi::Plain;
use adverb_abi::rdma_user_cm::{Request, rdma_ucm_accept, rdma_ucm_ece};

/// Confirms the peer's acceptance. The queue pair of the id, if any, is in RTS afterwards.
pub fn confirm(id: &Id) -> ErrnoResult {
    let sent = qp::to_send(id, None).and_then(|()| {
        // No parameters: the earlier parameters stay valid.
        let accept = rdma_ucm_accept { id: id.handle.get(), ..rdma_ucm_accept::zeroed() };
        command::perform(id.fd(), Request::Accept(accept))
    });
    sent.inspect_err(|_| {
        let _ = qp::to_error(id);
    })
}

/// Confirms after the peer's answer to the program's ECE offer. The device itself has no options.
pub fn confirm_with_ece(id: &Id, from: rdma_ucm_ece) -> ErrnoResult {
    let local = id.with(|state| state.local_ece);
    // The peer does not support ECE, or its answer names the vendor of the request.
    if from.vendor_id != 0 && from.vendor_id != local.vendor_id {
        let _ = qp::to_error(id);
        return Err(Errno(libc::EINVAL));
    }
    id.with(|state| state.remote_ece.vendor_id = from.vendor_id);
    confirm(id)?;
    id.with(|state| state.local_ece.options = 0);
    Ok(())
}
