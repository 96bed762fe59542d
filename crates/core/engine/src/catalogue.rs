//! Explanations of the causes: the code, the meaning, and what to look at.
//!
//! One list makes both [`CAUSES`] and [`Cause::entry`], by a match without a wildcard. So a cause
//! without an entry does not compile.
use crate::cause::Cause;

/// The explanation of one kind of cause or report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CatalogueEntry {
    /// The number, which never changes. `vendor_err` carries the number of a cause.
    pub code: u32,
    /// The name, one word.
    pub name: &'static str,
    /// What happened, in a sentence or two.
    pub meaning: &'static str,
    /// The values in the text, in order.
    pub values: &'static [&'static str],
    /// What to look at, most likely first.
    pub look: &'static [&'static str],
    /// Pieces of the text that occur in each printed line of this kind, in this order, and in no
    /// line of another kind.
    pub marks: &'static [&'static str],
}

impl CatalogueEntry {
    /// Is a line of the log of this kind?
    #[must_use]
    pub fn is_in(&self, line: &str) -> bool {
        let mut rest = line;
        self.marks.iter().all(|mark| match rest.split_once(mark) {
            Some((_, behind)) => {
                rest = behind;
                true
            }
            None => false,
        })
    }
}

macro_rules! catalogue {
    ($($cause:ident $code:literal $meaning:literal [$($value:literal),*] [$($look:literal),*] [$($mark:literal),*];)*) => {
        /// Every cause, in the order of the codes.
        pub const CAUSES: &[CatalogueEntry] = &[$(catalogue!(@entry $cause $code $meaning [$($value),*] [$($look),*] [$($mark),*])),*];

        impl Cause {
            /// The explanation of this kind of cause.
            #[must_use]
            pub fn entry(&self) -> &'static CatalogueEntry {
                match self {
                    $(Cause::$cause { .. } => {
                        const ENTRY: CatalogueEntry =
                            catalogue!(@entry $cause $code $meaning [$($value),*] [$($look),*] [$($mark),*]);
                        &ENTRY
                    })*
                }
            }
        }
    };
    (@entry $cause:ident $code:literal $meaning:literal [$($value:literal),*] [$($look:literal),*] [$($mark:literal),*]) => {
        CatalogueEntry {
            code: $code,
            name: stringify!($cause),
            meaning: $meaning,
            values: &[$($value),*],
            look: &[$($look),*],
            marks: &[$($mark),*],
        }
    };
}

catalogue! {
    UnknownKey 0x01
        "No memory region or window has this key: it was deregistered or invalidated, or the number is not a key."
        ["the key"]
        ["Was the region deregistered before the request completed?",
         "Did the peer send its rkey in the byte order that this side reads, and the rkey, not the lkey?",
         "Is the lkey of a scatter/gather entry set at all?"]
        ["names no memory region or window"];
    WrongPd 0x02
        "The key is of another protection domain than the queue pair's."
        ["the key"]
        ["Which ibv_alloc_pd did the region and the queue pair come from? Both need the same."]
        ["belongs to another protection domain"];
    OutOfBounds 0x03
        "The request reads or writes memory beyond the region or window of the key."
        ["bytes of the request", "its address", "bytes of the region", "the region's address", "the key"]
        ["Was the region registered with the whole length, headers included?",
         "Is the address in this region, or in another block?",
         "Do both ends agree on the size of a slot?"]
        ["leave the", "that key"];
    AccessDenied 0x04
        "The operation needs a right with which the region was not registered."
        ["the key", "the rights of the key", "the needed right"]
        ["Which flags did ibv_reg_mr get? A remote write needs REMOTE_WRITE and LOCAL_WRITE, a receive LOCAL_WRITE."]
        ["grants", "the operation needs"];
    WindowNotUsable 0x05
        "The memory window is not bound, or is a type 2 window of another queue pair."
        ["the key"]
        ["Had the bind completed before the peer received the key?",
         "Is the request on the queue pair of the bind?"]
        ["is not bound, or bound to another queue pair"];
    InUse 0x06
        "The region cannot be changed or deregistered while another object depends on the region."
        ["the key"]
        ["Is a window still bound to the region? Invalidate or free it first."]
        ["is in use (registered already"];
    QpAccessDenied 0x07
        "The queue pair itself forbids this remote operation, whatever the key allows."
        ["the needed right"]
        ["Which qp_access_flags did ibv_modify_qp get on the way to INIT?"]
        ["the queue pair's access flags do not include"];
    Fault 0x08
        "Registered memory cannot be reached any more: the program unmapped, protected or truncated the memory."
        ["the address"]
        ["Was the memory unmapped, or the file truncated, before ibv_dereg_mr?",
         "Did mprotect make the memory read-only?"]
        ["registered memory at", "cannot be reached"];
    Misaligned 0x09
        "An atomic operation needs an address which is a multiple of 8."
        ["the address"]
        ["At which offset of the structure is the counter? A packed structure changes the offset."]
        ["is not aligned to 8 bytes"];
    TooManySges 0x0a
        "The request has more scatter/gather entries than the queue was made for."
        ["entries given", "entries allowed"]
        ["What did ibv_create_qp get in max_send_sge and max_recv_sge?"]
        ["scatter/gather entries, the queue was made for"];
    TooMuchInline 0x0b
        "The request has more inline data than the queue pair was made for."
        ["bytes given", "bytes allowed"]
        ["Which max_inline_data did ibv_create_qp get? The call writes the granted value there, and devices differ."]
        ["bytes of inline data, the queue was made for"];
    MessageTooLong 0x0c
        "The message is longer than the transport or the port carries."
        ["bytes of the message", "bytes allowed"]
        ["On UD a message is one packet: the path MTU at most.", "Otherwise max_msg_sz of the port is the limit."]
        ["message of", "bytes, at most"];
    RecvTooShort 0x0d
        "The posted receive is shorter than the message."
        ["bytes of the message, at least", "bytes of the receive's buffers"]
        ["Do both ends agree on the longest message?",
         "Are receives of different lengths posted in the order of the messages?"]
        ["does not fit receive buffers of"];
    OpNotSupported 0x0e
        "This operation does not exist on this type of queue pair."
        ["the operation", "the type of queue pair or queue"]
        ["UC has no READ and no atomics, UD has SEND only.", "With an SRQ, receives are posted to the SRQ, not to the queue pair."]
        ["is not possible on"];
    WrongState 0x0f
        "The queue pair's state does not allow this operation."
        ["the operation", "the state"]
        ["Sends need RTS, receives INIT or later.", "Does the program post after the queue pair has failed?"]
        ["is not allowed in state"];
    QueueFull 0x10
        "The queue has no free place. On a NIC, and under hunt and --check, a send request keeps its place until the program \
         polls the completion of this request or of a later request. Otherwise Adverb frees the place when the request is done."
        ["the queue", "the depth"]
        ["Does the program count unsignalled requests, and the places freed by a completion?",
         "Does the program poll the send CQ even when no completion is expected?",
         "After a failed post, post again only the requests from bad_wr on."]
        ["is full (", "work requests)"];
    BadArgument 0x11
        "An argument is missing or out of range."
        ["the argument", "the rule"]
        ["The text names the argument and the rule."]
        [];
    NotRegistered 0x12
        "The key belongs to a fast-registered region without a registration, or with a later invalidation."
        ["the key"]
        ["Is the registration posted before its use, in the same send queue?", "What invalidated the key: a request, or the peer's send?"]
        ["of a fast-registered region that is not registered"];
    RetryExceeded 0x81
        "The peer did not answer: no acknowledgement came after all retransmissions."
        ["the peer's queue pair and GID", "the first PSN without an answer", "transmissions", "the time since the peer's last answer, if there was one", "what the kernel says, if it has no way to the peer"]
        ["Does the peer's process live? Is the peer's queue pair in RTR or RTS, or destroyed already?",
         "Does each end have the right numbers of the other end: queue pair, PSN, GID?",
         "If no packet ever came from the peer: do all firewalls pass UDP port 4791, in both directions?",
         "If packets came from the peer: is timeout (4.096 µs · 2^n) too short for the path, or retry_cnt too small?"]
        ["no answer from QP", "transmissions"];
    RnrRetryExceeded 0x82
        "The peer had no receive posted for the message, in all attempts allowed by rnr_retry."
        ["the peer's queue pair and GID", "the PSN", "attempts"]
        ["Does the peer post the receive before telling this side to send?",
         "rnr_retry 7 means no limit. min_rnr_timer of the peer is the pause (0 is the longest pause, 655 ms)."]
        ["had no receive posted for PSN"];
    RemoteNak 0x83
        "The peer's queue pair refused the request."
        ["the peer's queue pair", "the PSN", "the peer's answer"]
        ["From a peer on this host, the line in this log ends with the reason: the key, the bounds or the right. From another host, the log of the peer's process has the reason, also at the level `warn`.",
         "Remote access error: key, bounds or rights at the peer. Invalid request: length, type or the queue pair's access flags."]
        ["refused PSN"];
    ProtocolViolation 0x84
        "The peer sent a packet which the protocol does not allow here."
        ["the violation", "the PSN"]
        ["Do both ends agree on the path MTU and on the number of outstanding READs and atomics?",
         "Is another program using this queue pair's number?"]
        ["protocol violation at PSN"];
    CqOverflow 0x85
        "More completions came than the completion queue has entries, so the queue pairs of this CQ failed."
        ["entries of the queue"]
        ["Does the CQ have as many entries as all send and receive queues of its queue pairs together?",
         "Does the program poll the CQ while waiting for something else?"]
        ["completion queue of", "entries overflowed"];
    PeerEnded 0x86
        "The process at the other end has ended."
        ["the peer's queue pair and GID"]
        ["How did the process end: exit, signal, or the kernel's out-of-memory killer?"]
        ["the process of QP", "has ended"];
    Flushed 0xf9
        "The request was not carried out, because the queue pair had gone to the error state. The first failure counts."
        ["the first failure, unless the program itself moved the queue pair to the error state"]
        ["If the text names a first failure: look up this failure.",
         "If not, the program itself moved the queue pair to the error state. Programs do so to drain a queue pair."]
        ["flushed; the queue pair"];
    Injected 0xfb
        "The option --fault or the variable ADVERB_FAULT asked for this failure."
        []
        ["Look at the given specification, and at the line of the log about the injected fault."]
        ["fault injected on request"];
}

#[cfg(test)]
mod tests;
