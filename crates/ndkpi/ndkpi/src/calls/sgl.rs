//! Scatter/gather lists from C.

use adverb_ndk::{NtStatus, Sge};

use crate::abi::{NDK_SGE, ULONG};

/// Most requests have so few entries; more take an allocation.
const FEW: usize = 8;

/// Gives `use_list` the entries of a list. Bytes of an `inline` request are borrowed, so that the
/// call copies them.
///
/// # Errors
/// `INVALID_PARAMETER`: null with a count, or an inline entry that is null with a length; those of
/// `use_list`.
///
/// # Safety
/// "What C promises", 2, for the list and (inline) for what its entries point to.
pub unsafe fn with<R>(
    list: *const NDK_SGE,
    count: ULONG,
    inline: bool,
    use_list: impl FnOnce(&[Sge<'_>]) -> Result<R, NtStatus>,
) -> Result<R, NtStatus> {
    let entries = match (list.is_null() || !list.is_aligned(), count) {
        (_, 0) => &[],
        (true, _) => return Err(NtStatus::INVALID_PARAMETER),
        // SAFETY: the caller's promise, not null.
        (false, _) => unsafe { core::slice::from_raw_parts(list, count as usize) },
    };
    // SAFETY: the caller's promise.
    let entry = |c: &NDK_SGE| unsafe { entry(c, inline) };
    if entries.len() <= FEW {
        let mut few = [Sge::Bytes(&[]); FEW];
        for (to, from) in few.iter_mut().zip(entries) {
            *to = entry(from)?;
        }
        use_list(&few[..entries.len()])
    } else {
        let many: Vec<Sge<'_>> = entries.iter().map(entry).collect::<Result<_, _>>()?;
        use_list(&many)
    }
}

/// An entry. Whether its address is virtual or logical is told by the token, below.
///
/// # Safety
/// As [`with`], for what it points to.
unsafe fn entry<'a>(c: &NDK_SGE, inline: bool) -> Result<Sge<'a>, NtStatus> {
    let address = c.LogicalAddress as u64;
    if !inline {
        return Ok(Sge::Registered { address, length: c.Length, token: c.MemoryRegionToken });
    }
    match (address, c.Length) {
        (_, 0) => Ok(Sge::Bytes(&[])),
        (0, _) => Err(NtStatus::INVALID_PARAMETER),
        // SAFETY: the caller's promise, not null.
        (_, length) => Ok(Sge::Bytes(unsafe {
            core::slice::from_raw_parts(core::ptr::with_exposed_provenance(address as usize), length as usize)
        })),
    }
}
