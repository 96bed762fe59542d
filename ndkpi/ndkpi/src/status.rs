//! The status values of `adverb_nt.h`, with their C names.

use adverb_ndk::NtStatus;
use core::ffi::{CStr, c_char};

use crate::abi::NTSTATUS;

/// No device has this name or address.
pub const NO_SUCH_DEVICE: NtStatus = NtStatus(0xc000_000e_u32 as i32);

macro_rules! named {
    ($($name:ident)*) => {
        &[
            $((
                NtStatus::$name,
                match CStr::from_bytes_with_nul(concat!("STATUS_", stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => panic!("a name holds no zero byte"),
                },
            ),)*
            (NO_SUCH_DEVICE, c"STATUS_NO_SUCH_DEVICE"),
        ]
    };
}

/// Every status of the header.
pub const STATUSES: &[(NtStatus, &CStr)] = named! {
    SUCCESS
    TIMEOUT
    PENDING
    BUFFER_OVERFLOW
    DEVICE_BUSY
    UNSUCCESSFUL
    ACCESS_VIOLATION
    INVALID_HANDLE
    INVALID_PARAMETER
    INVALID_DEVICE_REQUEST
    NO_MEMORY
    ACCESS_DENIED
    BUFFER_TOO_SMALL
    INVALID_PARAMETER_MIX
    DATA_OVERRUN
    SHARING_VIOLATION
    DELETE_PENDING
    INSUFFICIENT_RESOURCES
    DEVICE_NOT_READY
    IO_TIMEOUT
    NOT_SUPPORTED
    INTERNAL_ERROR
    CANCELLED
    REMOTE_RESOURCES
    INVALID_ADDRESS
    INVALID_DEVICE_STATE
    POSSIBLE_DEADLOCK
    INVALID_BUFFER_SIZE
    TOO_MANY_ADDRESSES
    ADDRESS_ALREADY_EXISTS
    CONNECTION_DISCONNECTED
    CONNECTION_RESET
    CONNECTION_REFUSED
    GRACEFUL_DISCONNECT
    CONNECTION_INVALID
    CONNECTION_ACTIVE
    NETWORK_UNREACHABLE
    HOST_UNREACHABLE
    CONNECTION_ABORTED
    DEVICE_REMOVED
    IMPLEMENTATION_LIMIT
};

/// The status that a function returns for `result`.
pub fn code(result: Result<(), NtStatus>) -> NTSTATUS {
    result.err().unwrap_or(NtStatus::SUCCESS).0
}

/// `AdverbNdkStatusName`: the name of a status in the headers.
#[unsafe(no_mangle)]
pub extern "C" fn AdverbNdkStatusName(status: NTSTATUS) -> *const c_char {
    let known = STATUSES.iter().find(|(value, _)| value.0 == status);
    known.map_or(c"STATUS_?", |&(_, name)| name).as_ptr()
}
