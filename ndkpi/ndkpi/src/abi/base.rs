//! Types of `adverb_nt.h`.

use super::macros::mirrors;
use super::{PVOID, ULONG};

mirrors! {
    GUID {
        Data1: ULONG,
        Data2: u16,
        Data3: u16,
        Data4: [u8; 8],
    }

    GROUP_AFFINITY {
        Mask: usize,
        Group: u16,
        Reserved: [u16; 3],
    }

    MDL {
        Next: *mut MDL,
        Size: i16,
        MdlFlags: i16,
        AllocationProcessorNumber: u16,
        Reserved: u16,
        Process: PVOID,
        MappedSystemVa: PVOID,
        StartVa: PVOID,
        ByteCount: ULONG,
        ByteOffset: ULONG,
    }
}
