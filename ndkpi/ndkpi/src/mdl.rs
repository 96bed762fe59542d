//! Memory descriptor lists: made for C, and read from C.

use std::ptr::null_mut;

use adverb_memory::check_memory;
use adverb_ndk::device::Mapping;
use adverb_ndk::{Mdl, NtStatus};

use crate::abi::{MDL, PVOID, SIZE_T, ULONG};

const PAGE: usize = adverb_ndk::PAGE_SIZE as usize;

/// The address of the first `length` bytes in a chain.
///
/// # Errors
/// `INVALID_PARAMETER`: no bytes, fewer than `length`, or not virtually contiguous.
///
/// # Safety
/// "What C promises", 2.
unsafe fn span(mut mdl: *const MDL, length: u64) -> Result<u64, NtStatus> {
    // SAFETY: the caller promises valid descriptors.
    let first = unsafe { mdl.as_ref() }.ok_or(NtStatus::INVALID_PARAMETER)?;
    let start = address(first);
    let end =
        start.checked_add(length).filter(|_| length > 0).ok_or(NtStatus::INVALID_PARAMETER)?;
    let mut next = start;
    while next < end {
        // SAFETY: the caller promises valid descriptors, for each entry of the chain.
        let piece = unsafe { mdl.as_ref() }.ok_or(NtStatus::INVALID_PARAMETER)?;
        // Every entry must advance the address. So a circular chain ends as a chain that is not
        // contiguous.
        if address(piece) != next || piece.ByteCount == 0 {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        next = next.checked_add(piece.ByteCount.into()).ok_or(NtStatus::INVALID_PARAMETER)?;
        mdl = piece.Next;
    }
    Ok(start)
}

fn address(mdl: &MDL) -> u64 {
    (mdl.StartVa as u64).wrapping_add(mdl.ByteOffset.into())
}

/// The first `length` bytes of a chain, and the address of the first byte. Checks that the memory
/// is mapped now, and writable if `writable` is set.
///
/// # Errors
/// `INVALID_PARAMETER`: no bytes, fewer than `length`, or not virtually contiguous;
/// `ACCESS_VIOLATION` when memory is missing or not writable.
///
/// # Safety
/// "What C promises", 2 and 4.
pub unsafe fn describe(
    mdl: *const MDL,
    length: SIZE_T,
    writable: bool,
) -> Result<(Mdl, u64), NtStatus> {
    let length = length as u64;
    // SAFETY: the caller promises valid descriptors.
    let address = unsafe { span(mdl, length) }?;
    check_memory(address, length, writable).map_err(|e| {
        log::warn!("{length} bytes at {address:#x} cannot be used: {e}");
        NtStatus::ACCESS_VIOLATION
    })?;
    // SAFETY: promise 4 covers the described memory.
    Ok((Mdl::of(&unsafe { Mapping::vouched(address, length) }), address))
}

/// `AdverbNdkBuildMdl`: describes `length` bytes at `address`. Returns null if there is no such
/// range.
#[unsafe(no_mangle)]
pub extern "C" fn AdverbNdkBuildMdl(address: PVOID, length: SIZE_T) -> *mut MDL {
    let Ok(count) = ULONG::try_from(length) else { return null_mut() };
    if address.is_null() || count == 0 || (address as usize).checked_add(length).is_none() {
        return null_mut();
    }
    let offset = address as usize % PAGE;
    let start = address.wrapping_byte_sub(offset);
    Box::into_raw(Box::new(MDL {
        Next: null_mut(),
        Size: size_of::<MDL>() as i16,
        MdlFlags: 0,
        AllocationProcessorNumber: 0,
        Reserved: 0,
        Process: null_mut(),
        MappedSystemVa: null_mut(),
        StartVa: start,
        ByteCount: count,
        ByteOffset: offset as ULONG,
    }))
}

/// `AdverbNdkChainMdl`: appends `next` to the end of `mdl`'s chain.
///
/// # Safety
/// "What C promises", 2; the chains are disjoint.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AdverbNdkChainMdl(mdl: *mut MDL, next: *mut MDL) {
    let mut last = mdl;
    // SAFETY: the caller promises valid descriptors, for each entry.
    while let Some(entry) = unsafe { last.as_mut() } {
        if entry.Next.is_null() {
            entry.Next = next;
            return;
        }
        last = entry.Next;
    }
}

/// `AdverbNdkFreeMdl`: frees a chain.
///
/// # Safety
/// `mdl` is null, or a chain of entries made by [`AdverbNdkBuildMdl`] that is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AdverbNdkFreeMdl(mut mdl: *mut MDL) {
    while !mdl.is_null() {
        // SAFETY: the caller promises that `AdverbNdkBuildMdl` made the entry as a box, and that it
        // is freed once.
        mdl = unsafe { Box::from_raw(mdl) }.Next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_is_followed_as_far_as_the_length_goes() {
        let bytes = vec![0u8; 3 * PAGE];
        let at = |offset: usize, len: usize| {
            AdverbNdkBuildMdl(bytes.as_ptr().wrapping_add(offset).cast_mut().cast(), len)
        };
        let chain = at(100, 5000);
        // SAFETY: chains of this test.
        unsafe {
            AdverbNdkChainMdl(chain, at(5100, 1000));
            AdverbNdkChainMdl(chain, at(7000, 50));
            let start = bytes.as_ptr() as u64 + 100;
            for good in [1, 5000, 5001, 6000] {
                assert_eq!(span(chain, good), Ok(start));
            }
            for bad in [0, 6001, 6050, u64::MAX] {
                assert_eq!(span(chain, bad), Err(NtStatus::INVALID_PARAMETER), "{bad}");
            }
            assert_eq!(span(std::ptr::null(), 1), Err(NtStatus::INVALID_PARAMETER));
            AdverbNdkFreeMdl(chain);
        }
    }

    #[test]
    fn memory_that_is_not_there_is_refused() {
        let absent = AdverbNdkBuildMdl(4096 as PVOID, 4096);
        // SAFETY: a descriptor of this test.
        unsafe {
            assert_eq!(describe(absent, 4096, false).err(), Some(NtStatus::ACCESS_VIOLATION));
            AdverbNdkFreeMdl(absent);
        }
        assert!(AdverbNdkBuildMdl(null_mut(), 1).is_null());
        assert!(AdverbNdkBuildMdl(8 as PVOID, 0).is_null());
        assert!(AdverbNdkBuildMdl(8 as PVOID, 1 << 32).is_null());
        assert!(AdverbNdkBuildMdl(usize::MAX as PVOID, 2).is_null());
    }
}
