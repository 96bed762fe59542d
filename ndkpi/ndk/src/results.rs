//! Results of requests in a completion queue.
use crate::flags::OperationType;
use crate::status::NtStatus;
use adverb_device::engine::WcStatus;

/// The result of a request (`NDK_RESULT`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NdkResult {
    /// The outcome, as in [`NdkResultEx`].
    pub status: NtStatus,
    /// Bytes received; 0 for other requests.
    pub bytes_transferred: u32,
    /// The consumer's context of the queue pair.
    pub qp_context: u64,
    /// The consumer's context of the request.
    pub request_context: u64,
}

/// The result of a request with its type (`NDK_RESULT_EX`). The status follows from the status of
/// the device's completion:
///
/// | device | NTSTATUS | meaning |
/// |---|---|---|
/// | `Success` | `SUCCESS` | done |
/// | `WrFlushErr` | `CANCELLED` | flushed: by `flush`, a disconnect, a close, or an earlier failure |
/// | `LocLenErr` on a receive | `BUFFER_OVERFLOW` | the message is longer than the receive |
/// | `LocLenErr` elsewhere | `DATA_OVERRUN` | the request is longer than a message may be |
/// | `LocProtErr`, `LocAccessErr` | `ACCESS_VIOLATION` | a local token does not open the memory as needed |
/// | `LocQpOpErr`, `MwBindErr` | `INVALID_DEVICE_REQUEST` | a bind of a bound window, a registration of a registered region, an invalidate of an invalid token |
/// | `RemAccessErr`, `RemInvReqErr`, `RemOpErr`, `RemInvRdReqErr` | `REMOTE_RESOURCES` | the peer refused: token, rights or size |
/// | `RetryExcErr`, `RnrRetryExcErr`, `RespTimeoutErr` | `IO_TIMEOUT` | the peer does not answer, or posts no receive |
/// | `BadRespErr`, `RemAbortErr` | `CONNECTION_ABORTED` | the peer broke the protocol or gave up |
/// | `LocEecOpErr`, `LocRddViolErr`, `InvEecnErr`, `InvEecStateErr` | `CONNECTION_INVALID` | not made by this device |
/// | `FatalErr`, `GeneralErr` | `INTERNAL_ERROR` | the device failed |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NdkResultEx {
    /// The outcome.
    pub status: NtStatus,
    /// Bytes received; 0 for other requests.
    pub bytes_transferred: u32,
    /// The consumer's context of the queue pair.
    pub qp_context: u64,
    /// The consumer's context of the request.
    pub request_context: u64,
    /// The type of the request.
    pub operation: OperationType,
    /// The cause of a failure: a number that `adverb explain` explains. 0 after a success
    /// (`ProviderErrorCode`).
    pub provider_error_code: u32,
    /// The token that the peer invalidated, for [`OperationType::ReceiveAndInvalidate`]; else 0.
    pub type_specific_completion_output: u64,
}

impl From<NdkResultEx> for NdkResult {
    fn from(r: NdkResultEx) -> Self {
        NdkResult {
            status: r.status,
            bytes_transferred: r.bytes_transferred,
            qp_context: r.qp_context,
            request_context: r.request_context,
        }
    }
}

/// The NTSTATUS of a completion.
pub(crate) fn status_of_completion(status: WcStatus, receive: bool) -> NtStatus {
    match status {
        WcStatus::Success => NtStatus::SUCCESS,
        WcStatus::WrFlushErr => NtStatus::CANCELLED,
        WcStatus::LocLenErr if receive => NtStatus::BUFFER_OVERFLOW,
        WcStatus::LocLenErr => NtStatus::DATA_OVERRUN,
        WcStatus::LocProtErr | WcStatus::LocAccessErr => NtStatus::ACCESS_VIOLATION,
        WcStatus::LocQpOpErr | WcStatus::MwBindErr => NtStatus::INVALID_DEVICE_REQUEST,
        WcStatus::RemAccessErr
        | WcStatus::RemInvReqErr
        | WcStatus::RemOpErr
        | WcStatus::RemInvRdReqErr => NtStatus::REMOTE_RESOURCES,
        WcStatus::RetryExcErr | WcStatus::RnrRetryExcErr | WcStatus::RespTimeoutErr => {
            NtStatus::IO_TIMEOUT
        }
        WcStatus::BadRespErr | WcStatus::RemAbortErr => NtStatus::CONNECTION_ABORTED,
        WcStatus::LocEecOpErr
        | WcStatus::LocRddViolErr
        | WcStatus::InvEecnErr
        | WcStatus::InvEecStateErr => NtStatus::CONNECTION_INVALID,
        WcStatus::FatalErr
        | WcStatus::GeneralErr
        | WcStatus::TmErr
        | WcStatus::TmRndvIncomplete => NtStatus::INTERNAL_ERROR,
    }
}
