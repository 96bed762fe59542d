//! Services found by a subnet administrator.

use crate::abi::cma::*;
use crate::command;
use crate::error::{Errno, ErrnoResult};
use crate::id::Id;
use adverb_abi::rdma_user_cm::{RDMA_USER_CM_QUERY_IB_SERVICE, rdma_ucm_query_ib_service_resp};

/// Handles the event of a lookup: fetches the result of a subnet administrator.
pub fn arrived(id: &Id) -> ErrnoResult {
    if id.with(|state| !state.resolved.is_null()) {
        return Ok(());
    }
    let fetched = fetch_services(id);
    match fetched {
        Ok(found) => id.with(|state| state.resolved = found),
        Err(_) => failed(id),
    }
    fetched.map(|_| ())
}

/// Handles a failed lookup. The program may start another lookup.
pub fn failed(id: &Id) {
    id.with(|state| state.resolving = false);
}

fn fetch_services(id: &Id) -> ErrnoResult<*mut rdma_addrinfo> {
    let _none: rdma_ucm_query_ib_service_resp =
        command::query(id.fd(), id.handle.get(), RDMA_USER_CM_QUERY_IB_SERVICE)?;
    Err(Errno(libc::ENOENT))
}
