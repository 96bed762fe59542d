//! Scatter/gather lists from C.

use adverb_ndk::{NtStatus, Sge};

use crate::abi::{NDK_SGE, ULONG};

/// Lists with up to this number of entries need no allocation. Most requests have no more entries.
const FEW: usize = 8;

/// Passes the entries of a list to `use_list`. The bytes of an `inline` request are borrowed, and
/// the call copies them.
///
/// # Errors
/// `INVALID_PARAMETER`: a null list with a count, or an inline entry with a null address and a
/// length. Also the errors of `use_list`.
///
/// # Safety
/// "What C promises", 2, for the list and (inline) for the memory of its entries.
pub unsafe fn with<R>(
    list: *const NDK_SGE,
    count: ULONG,
    inline: bool,
    use_list: impl FnOnce(&[Sge<'_>]) -> Result<R, NtStatus>,
) -> Result<R, NtStatus> {
    let entries = match (list.is_null() || !list.is_aligned(), count) {
        (_, 0) => &[],
        (true, _) => return Err(NtStatus::INVALID_PARAMETER),
        // SAFETY: the caller promises `count` readable entries, and `list` is not null.
        (false, _) => unsafe { core::slice::from_raw_parts(list, count as usize) },
    };
    // SAFETY: the caller promises readable memory of inline entries.
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

/// Converts an entry. The provider finds out by the token whether the address is virtual or
/// logical.
///
/// # Safety
/// As [`with`], for the memory of the entry.
unsafe fn entry<'a>(c: &NDK_SGE, inline: bool) -> Result<Sge<'a>, NtStatus> {
    let address = c.LogicalAddress as u64;
    if !inline {
        return Ok(Sge::Registered { address, length: c.Length, token: c.MemoryRegionToken });
    }
    match (address, c.Length) {
        (_, 0) => Ok(Sge::Bytes(&[])),
        (0, _) => Err(NtStatus::INVALID_PARAMETER),
        // SAFETY: the caller promises `length` readable bytes, and the address is not null.
        (_, length) => Ok(Sge::Bytes(unsafe {
            core::slice::from_raw_parts(
                core::ptr::with_exposed_provenance(address as usize),
                length as usize,
            )
        })),
    }
}
