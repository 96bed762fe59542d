//! Flags of requests and registrations, and the types of completions.

bitflags::bitflags! {
    /// Flags of initiator requests: the bits of `NDK_OP_FLAG_*` (NDK-5).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct OpFlags: u32 {
        /// No completion on success. A failed request completes.
        const SILENT_SUCCESS = 0x0001;
        /// The request waits for all earlier reads.
        const READ_FENCE = 0x0002;
        /// The completion of the peer's receive satisfies an arm for solicited completions.
        const SEND_AND_SOLICIT_EVENT = 0x0004;
        /// Peers may read (Bind, FastRegister).
        const ALLOW_REMOTE_READ = 0x0008;
        /// The device may write (FastRegister).
        const ALLOW_LOCAL_WRITE = 0x0010;
        /// Peers may write. Contains the bit of [`OpFlags::ALLOW_LOCAL_WRITE`].
        const ALLOW_REMOTE_WRITE = 0x0030;
        /// The call copies the bytes. Tokens are ignored.
        const INLINE = 0x0040;
        /// The memory may be the target of a read. Not needed here, and allowed.
        const RDMA_READ_SINK = 0x0080;
        /// A successful read invalidates the token of its first entry.
        const RDMA_READ_LOCAL_INVALIDATE = 0x0100;
        /// The request may be deferred until the chain ends (DEF-1).
        const DEFER = 0x0200;
    }
}

bitflags::bitflags! {
    /// Rights of a registered region: the bits of `NDK_MR_FLAG_*`. Without any flag, the region is
    /// readable locally.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct MrFlags: u32 {
        /// The device may write.
        const ALLOW_LOCAL_WRITE = 0x1;
        /// Peers may read.
        const ALLOW_REMOTE_READ = 0x2;
        /// Peers may write. Contains the bit of [`MrFlags::ALLOW_LOCAL_WRITE`].
        const ALLOW_REMOTE_WRITE = 0x5;
        /// The memory may be the target of a read. Not needed here, and allowed.
        const RDMA_READ_SINK = 0x8;
    }
}

bitflags::bitflags! {
    /// Properties of an adapter: the bits of `NDK_ADAPTER_FLAG_*`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct AdapterFlags: u32 {
        /// Incoming data is written in order of address.
        const IN_ORDER_DMA_SUPPORTED = 0x0000_0001;
        /// The target memory of a read needs no special right.
        const RDMA_READ_SINK_NOT_REQUIRED = 0x0000_0002;
        /// `control_interrupt_moderation` works.
        const CQ_INTERRUPT_MODERATION_SUPPORTED = 0x0000_0004;
        /// Several connections are faster than a single connection.
        const MULTI_ENGINE_SUPPORTED = 0x0000_0008;
        /// [`OpFlags::RDMA_READ_LOCAL_INVALIDATE`] works.
        const RDMA_READ_LOCAL_INVALIDATE_SUPPORTED = 0x0000_0010;
        /// Completion queues can be resized.
        const CQ_RESIZE_SUPPORTED = 0x0000_0100;
        /// Connections from an address to itself work.
        const LOOPBACK_CONNECTIONS_SUPPORTED = 0x0001_0000;
    }
}

/// The condition of an arm (`NDK_CQ_NOTIFY_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum NotifyType {
    /// The next unsuccessful completion, or an error of the queue itself.
    Errors = 0,
    /// The next completion.
    Any = 1,
    /// The next solicited or unsuccessful completion.
    Solicited = 2,
}

impl NotifyType {
    /// From the value of `NDK_CQ_NOTIFY_*`.
    #[must_use]
    pub const fn from_code(code: u32) -> Option<NotifyType> {
        Some(match code {
            0 => NotifyType::Errors,
            1 => NotifyType::Any,
            2 => NotifyType::Solicited,
            _ => return None,
        })
    }
}

/// The type of a completed request (`NDK_OPERATION_TYPE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
#[allow(missing_docs)]
pub enum OperationType {
    Receive = 1,
    Send = 2,
    FastRegister = 4,
    Bind = 8,
    Invalidate = 16,
    Read = 32,
    Write = 64,
    /// A receive of a message that invalidated a local token (NDK-6).
    ReceiveAndInvalidate = 32769,
}

/// The type of an object (`NDK_OBJECT_TYPE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
#[allow(missing_docs)]
pub enum ObjectType {
    Adapter = 1,
    Qp = 2,
    Cq = 3,
    Mr = 4,
    Mw = 5,
    Pd = 6,
    SharedEndpoint = 7,
    Connector = 8,
    Listener = 9,
    Srq = 10,
}
