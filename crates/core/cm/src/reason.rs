//! Reasons of a REJ (IBTA 12.6.7.2).
use core::fmt;

/// Reason of a REJ. Its `Display` is a sentence.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(transparent)]
pub struct RejectReason(pub u16);

/// Declares each reason once, with its number, name and sentence.
macro_rules! reasons {
    ($($number:literal $name:ident $sentence:literal)*) => {
        impl RejectReason {
            $(#[doc = $sentence] pub const $name: RejectReason = RejectReason($number);)*

            /// All defined reasons.
            pub const ALL: &[RejectReason] = &[$(RejectReason($number)),*];

            /// The name in the specification, in capitals; `None` for an undefined number.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self.0 { $($number => Some(stringify!($name)),)* _ => None }
            }

            /// The meaning, as a sentence without a full stop.
            #[must_use]
            pub const fn sentence(self) -> &'static str {
                match self.0 { $($number => $sentence,)* _ => "the peer gave a reason that is not defined" }
            }
        }
    };
}

reasons! {
    1 NO_QP "no queue pair is available at the peer"
    2 NO_EEC "no end-to-end context is available at the peer"
    3 NO_RESOURCES "the peer has no resources left for another connection"
    4 TIMEOUT "the peer gave up waiting for an answer"
    5 UNSUPPORTED_REQUEST "the peer does not support the request"
    6 INVALID_COMMUNICATION_ID "the peer does not know this connection (any more)"
    7 INVALID_COMMUNICATION_INSTANCE "the ids, queue pair and service named together belong to no connection of the peer"
    8 INVALID_SERVICE_ID "no program listens on this port (service id) at the peer"
    9 INVALID_TRANSPORT "the peer does not accept this transport (RC, UC or XRC) there"
    10 STALE_CONNECTION "an older connection with the same queue pair had not ended, and is being \
                         closed now: try again"
    11 RDC_NOT_EXIST "the reliable datagram channel does not exist at the peer"
    12 INVALID_GID "the address (GID) of the path is not one of the peer's"
    13 INVALID_LID "the local identifier (LID) of the path is not one of the peer's"
    14 INVALID_SERVICE_LEVEL "the peer does not accept the service level of the path"
    15 INVALID_TRAFFIC_CLASS "the peer does not accept the traffic class of the path"
    16 INVALID_HOP_LIMIT "the peer does not accept the hop limit of the path"
    17 INVALID_PACKET_RATE "the peer does not accept the packet rate of the path"
    18 INVALID_ALTERNATE_GID "the address (GID) of the alternate path is not one of the peer's"
    19 INVALID_ALTERNATE_LID "the local identifier (LID) of the alternate path is not one of the peer's"
    20 INVALID_ALTERNATE_SERVICE_LEVEL "the peer does not accept the service level of the alternate path"
    21 INVALID_ALTERNATE_TRAFFIC_CLASS "the peer does not accept the traffic class of the alternate path"
    22 INVALID_ALTERNATE_HOP_LIMIT "the peer does not accept the hop limit of the alternate path"
    23 INVALID_ALTERNATE_PACKET_RATE "the peer does not accept the packet rate of the alternate path"
    24 PORT_REDIRECT "the peer's connection manager is at another address, which the additional information names"
    25 PORT_AND_CM_REDIRECT "the service is at another address, which the additional information names"
    26 INVALID_MTU "the peer does not accept or does not know the path MTU"
    27 INSUFFICIENT_RESPONDER_RESOURCES "the peer cannot answer the requested number of RDMA reads \
                                         and atomics at one time"
    28 CONSUMER_DEFINED "the peer's program refused; the private data has its answer"
    29 INVALID_RNR_RETRY "the peer does not accept the RNR retry count"
    30 DUPLICATE_LOCAL_COMMUNICATION_ID "the peer has a connection with the same communication id already"
    31 INVALID_CLASS_VERSION "the peer speaks another version of the connection management class"
    32 INVALID_FLOW_LABEL "the peer does not accept the flow label of the path"
    33 INVALID_ALTERNATE_FLOW_LABEL "the peer does not accept the flow label of the alternate path"
    35 VENDOR_OPTION_NOT_SUPPORTED "the peer does not support the requested vendor options (ECE)"
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (reject reason {})", self.sentence(), self.0)
    }
}
