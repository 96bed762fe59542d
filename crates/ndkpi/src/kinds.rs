//! The types of objects: which C type goes with which of the provider's, and with which table.

use crate::abi::*;
use crate::calls;
use crate::objects::Kind;

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident: $c:ident, $inner:ty, $number:ident, $table:path;)*) => { $(
        $(#[$doc])*
        pub enum $kind {}

        // SAFETY: a header and a pointer to a table (`abi::objects`).
        unsafe impl Kind for $kind {
            type C = $c;
            type Inner = $inner;
            const TYPE: u32 = $number;
            const NAME: &str = stringify!($c);
            fn visible(header: NDK_OBJECT_HEADER) -> $c {
                $c { Header: header, Dispatch: &$table }
            }
        }
    )* };
}

kinds! {
    /// Adapters.
    Adapter: NDK_ADAPTER, crate::adapters::Open, NdkObjectTypeAdapter, calls::adapter::DISPATCH;
    /// Protection domains.
    Pd: NDK_PD, adverb_ndk::Pd, NdkObjectTypePd, calls::pd::DISPATCH;
    /// Completion queues.
    Cq: NDK_CQ, adverb_ndk::Cq, NdkObjectTypeCq, calls::cq::DISPATCH;
    /// Memory regions.
    Mr: NDK_MR, adverb_ndk::Mr, NdkObjectTypeMr, calls::mr::DISPATCH;
    /// Memory windows.
    Mw: NDK_MW, adverb_ndk::Mw, NdkObjectTypeMw, calls::mw::DISPATCH;
    /// Shared receive queues.
    Srq: NDK_SRQ, adverb_ndk::Srq, NdkObjectTypeSrq, calls::srq::DISPATCH;
    /// Queue pairs.
    Qp: NDK_QP, adverb_ndk::Qp, NdkObjectTypeQp, calls::qp::DISPATCH;
    /// Shared endpoints.
    SharedEndpoint: NDK_SHARED_ENDPOINT, adverb_ndk::connect::SharedEndpoint, NdkObjectTypeSharedEndpoint,
        calls::endpoint::DISPATCH;
    /// Connectors.
    Connector: NDK_CONNECTOR, adverb_ndk::connect::Connector, NdkObjectTypeConnector, calls::connector::DISPATCH;
    /// Listeners.
    Listener: NDK_LISTENER, adverb_ndk::connect::Listener, NdkObjectTypeListener, calls::listener::DISPATCH;
}
