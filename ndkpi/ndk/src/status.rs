//! NTSTATUS values with the names in NDKPI's documentation.
use std::fmt;

/// An NTSTATUS: negative values (the top bit is set) are failures or warnings.
///
/// Functions of this crate return success as `Ok`. [`NtStatus::SUCCESS`] and [`NtStatus::PENDING`]
/// are for the C interface and for completions.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct NtStatus(pub i32);

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $value:literal,)*) => {
        impl NtStatus {
            $($(#[$doc])* pub const $name: NtStatus = NtStatus($value as u32 as i32);)*

            /// The name without `STATUS_`. `None` for a value that is not in this list.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self.0 as u32 {
                    $($value => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

statuses! {
    /// The request was done.
    SUCCESS = 0x0000_0000,
    /// A wait ended before the awaited event.
    TIMEOUT = 0x0000_0102,
    /// The request completes later, through its callback.
    PENDING = 0x0000_0103,
    /// A receive is shorter than its message, or a completion queue overran.
    BUFFER_OVERFLOW = 0x8000_0005,
    /// The object is in use.
    DEVICE_BUSY = 0x8000_0011,
    /// No other status describes the failure.
    UNSUCCESSFUL = 0xc000_0001,
    /// A right is missing, or a token does not open the memory.
    ACCESS_VIOLATION = 0xc000_0005,
    /// The handle is no object, or an object of another type.
    INVALID_HANDLE = 0xc000_0008,
    /// An argument breaks a rule.
    INVALID_PARAMETER = 0xc000_000d,
    /// The request does not fit the object: a bind of a bound window, an invalidate of an invalid
    /// token.
    INVALID_DEVICE_REQUEST = 0xc000_0010,
    /// No memory is available.
    NO_MEMORY = 0xc000_0017,
    /// Access is not allowed: a privileged port.
    ACCESS_DENIED = 0xc000_0022,
    /// The caller's buffer is too small.
    BUFFER_TOO_SMALL = 0xc000_0023,
    /// Two arguments contradict each other.
    INVALID_PARAMETER_MIX = 0xc000_0030,
    /// More data than a request may carry.
    DATA_OVERRUN = 0xc000_003c,
    /// The address is in use.
    SHARING_VIOLATION = 0xc000_0043,
    /// The object is being closed, or was closed.
    DELETE_PENDING = 0xc000_0056,
    /// Queues, memory or other resources are used up.
    INSUFFICIENT_RESOURCES = 0xc000_009a,
    /// The device cannot be used (yet).
    DEVICE_NOT_READY = 0xc000_00a3,
    /// The peer did not answer in time.
    IO_TIMEOUT = 0xc000_00b5,
    /// The provider does not support the request.
    NOT_SUPPORTED = 0xc000_00bb,
    /// The provider failed.
    INTERNAL_ERROR = 0xc000_00e5,
    /// Flushed before completion.
    CANCELLED = 0xc000_0120,
    /// The peer refused the request: its memory is smaller, or does not allow it.
    REMOTE_RESOURCES = 0xc000_013d,
    /// The address is not an address of this adapter.
    INVALID_ADDRESS = 0xc000_0141,
    /// The state of the object does not allow the request.
    INVALID_DEVICE_STATE = 0xc000_0184,
    /// A wait here would wait for itself.
    POSSIBLE_DEADLOCK = 0xc000_0194,
    /// The size of a buffer is not allowed.
    INVALID_BUFFER_SIZE = 0xc000_0206,
    /// No ephemeral port is left.
    TOO_MANY_ADDRESSES = 0xc000_0209,
    /// A connection between these two addresses and ports exists.
    ADDRESS_ALREADY_EXISTS = 0xc000_020a,
    /// The peer ended the connection.
    CONNECTION_DISCONNECTED = 0xc000_020c,
    /// The peer reset the connection.
    CONNECTION_RESET = 0xc000_020d,
    /// The peer refused the connection.
    CONNECTION_REFUSED = 0xc000_0236,
    /// The connection is already being closed.
    GRACEFUL_DISCONNECT = 0xc000_0237,
    /// The queue pair or connector is not connected.
    CONNECTION_INVALID = 0xc000_023a,
    /// The queue pair or connector is already connected.
    CONNECTION_ACTIVE = 0xc000_023b,
    /// No route to the network.
    NETWORK_UNREACHABLE = 0xc000_023c,
    /// No route to the host.
    HOST_UNREACHABLE = 0xc000_023d,
    /// The connection, or the attempt to connect, was given up.
    CONNECTION_ABORTED = 0xc000_0241,
    /// A limit of the adapter.
    IMPLEMENTATION_LIMIT = 0xc000_042b,
    /// The device was removed.
    DEVICE_REMOVED = 0xc000_02b6,
}

impl NtStatus {
    /// Success or information (`NT_SUCCESS`): the top bit is clear.
    #[must_use]
    pub const fn is_success(self) -> bool {
        self.0 >= 0
    }
    /// An error (`NT_ERROR`): both top bits are set.
    #[must_use]
    pub const fn is_error(self) -> bool {
        self.0 as u32 >> 30 == 3
    }
}

impl fmt::Display for NtStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "STATUS_{name} ({:#010x})", self.0 as u32),
            None => write!(f, "NTSTATUS {:#010x}", self.0 as u32),
        }
    }
}

impl fmt::Debug for NtStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for NtStatus {}

/// The status of a failed call of the device. The call's error is logged.
pub(crate) fn status_of(error: &adverb_device::Error) -> NtStatus {
    use adverb_device::Errno;
    log::debug!("{error}");
    match Errno::from_raw(error.errno()) {
        Errno::EINVAL => NtStatus::INVALID_PARAMETER,
        Errno::ENOMEM | Errno::EMFILE | Errno::ENFILE | Errno::EAGAIN => {
            NtStatus::INSUFFICIENT_RESOURCES
        }
        Errno::EFAULT | Errno::EPERM | Errno::EACCES => NtStatus::ACCESS_VIOLATION,
        Errno::EBUSY => NtStatus::DEVICE_BUSY,
        Errno::EOPNOTSUPP => NtStatus::NOT_SUPPORTED,
        Errno::EADDRINUSE => NtStatus::SHARING_VIOLATION,
        Errno::EADDRNOTAVAIL => NtStatus::INVALID_ADDRESS,
        Errno::EIO => NtStatus::DEVICE_REMOVED,
        _ => NtStatus::INTERNAL_ERROR,
    }
}
