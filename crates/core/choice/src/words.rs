//! Choices and rules in words, for reports.
use crate::{Call, Choice};

impl Choice {
    /// The effect of the choice at a call, in words.
    #[must_use]
    pub const fn words(self, call: Call) -> &'static str {
        match (call, self) {
            (Call::Arm, Choice::Before) => {
                "everything on its way came between the last poll and this arm, and nothing after it"
            }
            (Call::Arm, _) => "everything on its way came between this arm and the poll after it",
            (Call::Poll, Choice::Hold) => {
                "completions after this empty poll came late, all at once, when the program slept"
            }
            (Call::Poll, Choice::Drip) => "completions after this empty poll came one at a time",
            (Call::Poll, _) => {
                "everything on its way came just after this poll had found the queue empty"
            }
            (Call::Error, _) => {
                "fields of a failed completion that are undefined had random values"
            }
            (Call::Post, Choice::Full) => {
                "places in the send queue were free only when completions were polled, and these came late; a post that is tried again was refused more often"
            }
            (Call::Post, Choice::Late) => {
                "this queue pair carried out its requests late, after those of other queue pairs"
            }
            (Call::Post, Choice::TailFirst) => {
                "the last bytes of this RDMA WRITE or READ were placed first, and the rest 2 ms later"
            }
            (Call::Post, Choice::ReadLate) => {
                "the data of this RDMA READ was taken late, after later requests without a fence"
            }
            (Call::Post, _) => {
                "the request, and what it led to, was done before this call returned"
            }
            (Call::Event, Choice::Before) => {
                "several events were queued before this call read the first"
            }
            (Call::Event, Choice::Interrupt) => {
                "this call waited for a signal of the program, and returned EINTR"
            }
            (Call::Event, _) => "everything on its way came just after this event was read",
            (Call::Receive, _) => "everything on its way came before this receive was posted",
            (Call::Modify, _) => "the flushed completions of this queue pair came late",
            (Call::Message, _) => "imm_data of a message without immediate data had a random value",
            (Call::Register, _) => "this registration failed with ENOMEM",
            (Call::Acknowledge, _) => {
                "the event, with its private data, was overwritten after its acknowledgement"
            }
            (Call::Unreliable, _) => "this message of an unreliable transport was lost",
            (Call::Shared, _) => {
                "the completions of this send and of later sends came after that of the next receive"
            }
            (Call::Async, Choice::Before) => {
                "several asynchronous events were queued before this call read the first"
            }
            (Call::Async, _) => {
                "everything on its way came just after this asynchronous event was read"
            }
            (Call::Connection, Choice::Before) => {
                "everything on its way came before this event of a connection was read"
            }
            (Call::Connection, _) => {
                "everything on its way came just after this event of a connection was read"
            }
        }
    }

    /// The rule of verbs that a program breaks which fails with this choice at a call.
    #[must_use]
    pub const fn rule(self, call: Call) -> &'static str {
        match (call, self) {
            (Call::Arm, Choice::Before) => {
                "completions that come before the arm make no event: arm, then poll until empty"
            }
            (Call::Arm, _) => {
                "an event may find its queue empty, and a poll may find completions before their \
                 event is read"
            }
            (Call::Poll, Choice::Hold) => {
                "a completion may come at any later time: after those of other queues, after the \
                 peer's answer, and many at once; only its own completion proves that a request is \
                 done"
            }
            (Call::Poll, Choice::Drip) => "a poll may find one completion of many",
            (Call::Poll, _) => {
                "completions may come right after a poll that found none: arm, and poll again \
                 before the sleep"
            }
            (Call::Error, _) => "a failed completion has only wr_id, status, qp_num and vendor_err",
            (Call::Post, Choice::Full) => {
                "a place in the send queue is free after a poll of its completion; a refused \
                 request is not posted"
            }
            (Call::Post, Choice::Late) => {
                "requests are carried out in order within one queue pair only, and the device \
                 uses their buffers until their completions"
            }
            (Call::Post, Choice::TailFirst) => {
                "the bytes of one RDMA WRITE or READ may arrive in any order: wait for a completion, \
                 or at the peer for a later message"
            }
            (Call::Post, Choice::ReadLate) => {
                "a later SEND or WRITE may be carried out before the data of an RDMA READ is \
                 taken: set IBV_SEND_FENCE, or wait for the READ's completion"
            }
            (Call::Post, _) => {
                "a request may be done, and its answer may be here, before ibv_post_send returns"
            }
            (Call::Event, Choice::Interrupt) => {
                "a signal may interrupt the call (EINTR): make the call again"
            }
            (Call::Event | Call::Async, _) => {
                "several events may wait, each of another object: read and acknowledge each of them"
            }
            (Call::Receive, _) => {
                "a message may come before its receive is posted: post receives first"
            }
            (Call::Message, _) => {
                "imm_data is defined only with IBV_WC_WITH_IMM in wc_flags, or as invalidated_rkey \
                 with IBV_WC_WITH_INV"
            }
            (Call::Register, _) => {
                "a registration may fail at any time, as at the limit of locked memory: compare the \
                 result with NULL"
            }
            (Call::Acknowledge, _) => {
                "rdma_ack_cm_event frees the event and its private data: copy first"
            }
            (Call::Unreliable, _) => {
                "a network may lose messages of UC and UD: wait with a time limit, and send again"
            }
            (Call::Shared, _) => {
                "completions of the send queue and of the receive queue have no common order: look \
                 at each completion's wr_id"
            }
            (Call::Modify, _) => {
                "flushed completions may come at any time after the move to ERR: count them, and \
                 look at qp_num and status of each completion"
            }
            (Call::Connection, _) => {
                "the events of a connection and its messages and completions have no common order"
            }
        }
    }
}
