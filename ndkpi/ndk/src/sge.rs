//! Scatter/gather entries.
use crate::lam::{Lams, LogicalAddress};
use crate::status::NtStatus;
use adverb_device::Pd as DevicePd;
use adverb_device::engine::Sge as DeviceSge;
use std::sync::Arc;

/// A range of local memory in a request (`NDK_SGE`).
#[derive(Clone, Copy, Debug)]
pub enum Sge<'a> {
    /// Registered memory, by the address and the token of its region.
    Registered {
        /// First address.
        address: u64,
        /// Length in bytes.
        length: u32,
        /// Token of the region.
        token: u32,
    },
    /// Memory of a [`Lam`](crate::Lam), by logical address, with the privileged token of the
    /// protection domain.
    Logical {
        /// First address.
        address: LogicalAddress,
        /// Length in bytes.
        length: u32,
        /// The privileged token.
        token: u32,
    },
    /// Bytes that the call copies. Only for requests with
    /// [`OpFlags::INLINE`](crate::OpFlags::INLINE).
    Bytes(&'a [u8]),
}

/// Entries of a request for the device, at most [`SgList::MAX`].
pub(crate) struct SgList {
    entries: [DeviceSge; SgList::MAX],
    len: usize,
}

impl SgList {
    /// Maximum number of entries that the device takes in one request.
    pub(crate) const MAX: usize = 32;

    /// Translates the entries of a request that is not inline.
    pub(crate) fn new(
        sgl: &[Sge<'_>],
        max: u32,
        pd: &Arc<DevicePd>,
        privileged: u32,
        lams: &Lams,
    ) -> Result<SgList, NtStatus> {
        if sgl.len() > SgList::MAX.min(max as usize) {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let mut list = SgList { entries: [DeviceSge::default(); SgList::MAX], len: sgl.len() };
        for (to, from) in list.entries.iter_mut().zip(sgl) {
            *to = translate(from, pd, privileged, lams)?;
        }
        Ok(list)
    }

    pub(crate) fn entries(&self) -> &[DeviceSge] {
        &self.entries[..self.len]
    }
}

fn translate(
    sge: &Sge<'_>,
    pd: &Arc<DevicePd>,
    privileged: u32,
    lams: &Lams,
) -> Result<DeviceSge, NtStatus> {
    match *sge {
        // An empty entry needs no token.
        Sge::Registered { length: 0, .. } | Sge::Logical { length: 0, .. } => {
            Ok(DeviceSge::default())
        }
        // The token says which member of the NDK_SGE's union is meant.
        Sge::Registered { address, length, token }
        | Sge::Logical { address: LogicalAddress(address), length, token }
            if token == privileged =>
        {
            let lkey = lams.local_key(pd, address, length)?;
            Ok(DeviceSge { addr: address, length, lkey })
        }
        Sge::Registered { address, length, token } => {
            Ok(DeviceSge { addr: address, length, lkey: token })
        }
        Sge::Logical { .. } => Err(NtStatus::ACCESS_VIOLATION),
        Sge::Bytes(_) => Err(NtStatus::INVALID_PARAMETER),
    }
}

/// The bytes of an inline request: in `few` if they fit, else in `many`. Entries with registered
/// memory are refused. Their tokens may be invalid, so nothing guarantees that their bytes are
/// readable.
pub(crate) fn inline_parts<'p, 'a>(
    sgl: &[Sge<'a>],
    few: &'p mut [&'a [u8]],
    many: &'p mut Vec<&'a [u8]>,
) -> Result<&'p [&'a [u8]], NtStatus> {
    let bytes = |sge: &Sge<'a>| match sge {
        Sge::Bytes(bytes) => Ok(*bytes),
        Sge::Registered { .. } | Sge::Logical { .. } => Err(NtStatus::INVALID_PARAMETER),
    };
    if sgl.len() > few.len() {
        *many = sgl.iter().map(bytes).collect::<Result<_, _>>()?;
        return Ok(many);
    }
    for (to, from) in few.iter_mut().zip(sgl) {
        *to = bytes(from)?;
    }
    Ok(&few[..sgl.len()])
}
