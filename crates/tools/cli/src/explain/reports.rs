//! The reports of `adverb run --check`.
use super::topic::Topic;
use adverb_check::{Code, Weight};

pub fn topic(code: Code) -> Topic {
    let weight = match code.weight() {
        Weight::Mistake => "a mistake, also while the program works",
        Weight::Cause => "the cause of a failure",
        Weight::State => "a state that goes with a failure",
        Weight::Risk => "a risk",
    };
    Topic {
        title: format!("{code}: {weight} (adverb run --check)"),
        meaning: code.meaning(),
        why: why(code),
        order: order(code),
        suppress: format!(
            "a line {:?} in the file of --check-suppress, with a pattern for some places only",
            format!("{code} *text*")
        ),
    }
}

const fn why(code: Code) -> &'static str {
    match code {
        Code::SendQueueOverposted | Code::RequestLost => {
            "a place in the send queue is free only after a poll of its completion, and a refused \
             request is not posted."
        }
        Code::SendQueueNeverFreed => {
            "only the completion of a signaled request frees the places of the requests before it."
        }
        Code::ChainPostedAgain => "the requests before bad_wr were accepted and are carried out.",
        Code::PostRefused => "a NIC checks requests at the post, and some only later.",
        Code::PostedInError => "a request on a queue pair in the error state is flushed at once.",
        Code::CqTooSmall => "a full CQ overflows, and its queue pairs fail.",
        Code::EventNotAcknowledged => {
            "the destruction of an object waits until all of its events are acknowledged, so that \
             no thread uses an event of a destroyed object."
        }
        Code::EventOveracknowledged => "events are counted for each object.",
        Code::EdgeNotDrained => "an edge reports new events only.",
        Code::BufferChanged => {
            "the device may read the buffer at any time until the completion, also for \
             retransmissions."
        }
        Code::RegionInUse => "the device may use the region until the completion of the request.",
        Code::OutsideRegion => "a NIC refuses the request when it reads or writes these bytes.",
        Code::ZeroLengthElement => "some NICs take the length 0 for 2 GiB, and check the lkey.",
        Code::LongestRnrTimer => "code 0 of min_rnr_timer means 655.36 ms.",
        Code::ValueCut => "fields of 3 to 5 bits keep the low bits of a value.",
        Code::LeftAtExit => "a server that leaves an object for each connection runs out of them.",
        Code::RegisteredMemoryForked => {
            "after a fork a write copies the page, and the NIC keeps the old page."
        }
        Code::ReadNotFenced => {
            "the data of a READ may arrive after later requests have been carried out."
        }
        Code::PollerNotWoken => {
            "a condition variable keeps no signal: a signal before the wait wakes no thread. The \
             event of the queue came, and was taken."
        }
        Code::LostWakeUp => "completions that come before the arm make no event.",
        Code::NeverArmedAgain => "an arm makes one event.",
        Code::NeverArmed => "without an arm no completion makes an event.",
        Code::ArmedForSolicited => {
            "such an arm waits for a message with IBV_SEND_SOLICITED, or a failure."
        }
        Code::NoReceive | Code::PeerHasNoReceive => {
            "a message needs a posted receive; without one the sender of RC tries again, up to \
             rnr_retry times."
        }
        Code::ReceiveTooShort => {
            "UD, UC and raw queue pairs have no answer: a message that does not fit is dropped, \
             and neither side gets a completion. On UD 40 bytes of GRH come before the data."
        }
        Code::RequestsDiscarded => "RESET discards requests without a completion.",
        Code::QueuePairFailed | Code::CompletionFailed => {
            "after a failure all later requests of the queue pair are flushed."
        }
        Code::UndefinedFields => {
            "a failed completion has only wr_id, status, qp_num and vendor_err."
        }
        Code::CallFailed => "the call failed, and the program then waited or ended.",
        Code::Spins => "the bytes of a peer come without a call, but only where the peer writes.",
        Code::EventUnread | Code::NotPolled => {
            "the program may wait for something else first, and the event or completion stays."
        }
        Code::Crashed | Code::Ended => "the program ended itself here.",
        Code::NotConnected => "a queue pair receives from RTR on, and sends from RTS on.",
        Code::MessageBeforeEstablished => {
            "messages and the events of a connection have no common order."
        }
        Code::Waits => "nothing else is known: the program waits for what no one will do.",
    }
}

const fn order(code: Code) -> &'static str {
    match code {
        Code::SendQueueOverposted | Code::SendQueueNeverFreed | Code::RequestLost => {
            "wr.send_flags = n % 16 == 0 ? IBV_SEND_SIGNALED : 0;\n\
             while (free_places == 0)\n    \
             free_places += 16 * poll_signaled(cq);\n\
             if (ibv_post_send(qp, &wr, &bad) == 0) free_places--;"
        }
        Code::ChainPostedAgain => {
            "while (wr && ibv_post_send(qp, wr, &bad)) {\n    \
             wr = bad;      /* the rest */\n    \
             poll(cq);\n}"
        }
        Code::PostRefused | Code::CallFailed => {
            "error = ibv_post_send(qp, &wr, &bad);   /* the number is the result, not errno */\n\
             if (error) fail(strerror(error));"
        }
        Code::PostedInError
        | Code::QueuePairFailed
        | Code::CompletionFailed
        | Code::UndefinedFields => {
            "if (wc.status != IBV_WC_SUCCESS) {\n    \
             fail(wc.wr_id, wc.status, wc.vendor_err);   /* no other field */\n    \
             connect anew, or RESET, INIT, RTR, RTS;\n}"
        }
        Code::CqTooSmall => "cq = ibv_create_cq(ctx, max_send_wr + max_recv_wr, 0, channel, 0);",
        Code::EventNotAcknowledged | Code::EventOveracknowledged => {
            "ibv_get_cq_event(channel, &cq, &context);\n\
             ibv_ack_cq_events(cq, 1);        /* the returned cq */\n\
             rdma_get_cm_event(events, &event);\n\
             rdma_ack_cm_event(event);        /* then rdma_destroy_id, ibv_destroy_cq */"
        }
        Code::EdgeNotDrained | Code::EventUnread => {
            "while (!ibv_get_cq_event(channel, &cq, &context)) {   /* until EAGAIN */\n    \
             ibv_ack_cq_events(cq, 1);\n    \
             ibv_req_notify_cq(cq, 0);\n    \
             poll_until_empty(cq);\n}\n\
             epoll_wait(epoll, ...);"
        }
        Code::BufferChanged | Code::RegionInUse => {
            "ibv_post_send(qp, &wr, &bad);\n\
             while (ibv_poll_cq(cq, 1, &wc) == 0) ;   /* its completion */\n\
             change(buf); ibv_dereg_mr(mr);"
        }
        Code::OutsideRegion | Code::ZeroLengthElement => {
            "mr = ibv_reg_mr(pd, buf, length, access);\n\
             sge.addr = (uintptr_t)buf; sge.length = n;   /* n <= length */\n\
             sge.lkey = mr->lkey;\n\
             wr.num_sge = n > 0;                          /* no element for an empty message */"
        }
        Code::LongestRnrTimer | Code::ValueCut => {
            "attr.min_rnr_timer = 12;   /* 0.64 ms */\n\
             attr.timeout = 14;         /* at most 31 */\n\
             attr.retry_cnt = 7;        /* at most 7 */\n\
             attr.rnr_retry = 7;        /* no limit */"
        }
        Code::LeftAtExit => {
            "ibv_destroy_qp(qp); ibv_destroy_cq(cq); ibv_dereg_mr(mr); ibv_dealloc_pd(pd);"
        }
        Code::RegisteredMemoryForked => "ibv_fork_init();   /* before the first region */\nfork();",
        Code::ReadNotFenced => {
            "post(RDMA_READ into buf);\n\
             send.send_flags |= IBV_SEND_FENCE;\n\
             post(SEND from buf);"
        }
        Code::PollerNotWoken => {
            "/* the thread that takes events */        /* the thread that polls */\n\
             pthread_mutex_lock(&m);                   pthread_mutex_lock(&m);\n\
             ready = 1;                                while (!ready)\n\
             pthread_cond_signal(&c);                      pthread_cond_wait(&c, &m);\n\
             pthread_mutex_unlock(&m);                 ready = 0;\n                                          \
             pthread_mutex_unlock(&m);\n                                          \
             poll_until_empty(cq);"
        }
        Code::LostWakeUp
        | Code::NeverArmedAgain
        | Code::NeverArmed
        | Code::ArmedForSolicited
        | Code::NotPolled
        | Code::Waits => {
            "ibv_req_notify_cq(cq, 0);\n\
             poll_until_empty(cq);\n\
             for (;;) {\n    \
             ibv_get_cq_event(channel, &cq, &context);\n    \
             ibv_ack_cq_events(cq, 1);\n    \
             ibv_req_notify_cq(cq, 0);   /* arm, */\n    \
             poll_until_empty(cq);       /* then poll */\n}"
        }
        Code::NoReceive | Code::PeerHasNoReceive => {
            "ibv_post_recv(qp, &wr, &bad);   /* before the peer can send */\n\
             connect or answer;\n\
             on each receive completion: ibv_post_recv(qp, &wr, &bad);"
        }
        Code::ReceiveTooShort => {
            "sge.length = LONGEST + (type == IBV_QPT_UD ? 40 : 0);\n\
             ibv_post_recv(qp, &wr, &bad);\n\
             data = buf + 40;   /* on UD; wc.byte_len counts the 40 bytes */"
        }
        Code::RequestsDiscarded => {
            "attr.qp_state = IBV_QPS_ERR;   ibv_modify_qp(qp, &attr, IBV_QP_STATE);\n\
             poll all flushed completions;\n\
             attr.qp_state = IBV_QPS_RESET; ibv_modify_qp(qp, &attr, IBV_QP_STATE);"
        }
        Code::Spins => {
            "while (!__atomic_load_n(flag, __ATOMIC_ACQUIRE)) ;\n\
             /* the peer's WRITE: to the address and rkey of this flag's region */"
        }
        Code::Crashed | Code::Ended => {
            "look at the place in the report, and at the reports before it"
        }
        Code::NotConnected => {
            "ibv_modify_qp(qp, INIT); ibv_post_recv(qp, ...);\n\
             ibv_modify_qp(qp, RTR);  /* with the peer's numbers */\n\
             ibv_modify_qp(qp, RTS);  ibv_post_send(qp, ...);"
        }
        Code::MessageBeforeEstablished => {
            "if (wc.opcode == IBV_WC_RECV) handle(wc);   /* in any state of the connection */\n\
             if (event->event == RDMA_CM_EVENT_ESTABLISHED) established = 1;"
        }
    }
}
