//! The choices of `adverb hunt`.
use super::topic::Topic;
use adverb_choice::{Call, Choice};

pub fn topic(call: Call, choice: Choice) -> Topic {
    Topic {
        title: format!("choice {:?} at the call {:?} of adverb hunt", choice.name(), call.name()),
        meaning: choice.words(call),
        why: choice.rule(call),
        order: order(call, choice),
        suppress: format!(
            "{}, so a choice cannot be switched off; adverb hunt --check-suppress FILE suppresses \
             reports of the check",
            if choice.may_end() {
                "a right program may end with a failure after this choice, and is not blamed"
            } else {
                "a right program survives each choice"
            }
        ),
    }
}

const fn order(call: Call, choice: Choice) -> &'static str {
    match (call, choice) {
        (Call::Arm | Call::Poll, _) => {
            "ibv_get_cq_event(channel, &cq, &context);\n\
             ibv_ack_cq_events(cq, 1);\n\
             ibv_req_notify_cq(cq, 0);\n\
             while ((n = ibv_poll_cq(cq, N, wc)) > 0)\n    \
             for (i = 0; i < n; i++) handle(&wc[i]);  /* by wc[i].wr_id */"
        }
        (Call::Error, _) => {
            "ibv_poll_cq(cq, 1, &wc);\n\
             if (wc.status != IBV_WC_SUCCESS)\n    \
             fail(wc.wr_id, wc.status);   /* not wc.opcode, not wc.byte_len */\n\
             else\n    \
             handle(wc.opcode, wc.byte_len);"
        }
        (Call::Post, Choice::Full) => {
            "while (ibv_post_send(qp, wr, &bad) == ENOMEM) {\n    \
             poll(cq);    /* frees places */\n    \
             wr = bad;    /* the rest of the chain */\n}"
        }
        (Call::Post, Choice::TailFirst) => {
            "/* sender: */   post(WRITE data); post(WRITE flag);   /* same queue pair */\n\
             /* or: */       post(RDMA_WRITE_WITH_IMM);\n\
             /* receiver: */ wait for the flag of the second request, or for the completion\n\
             /* of a READ: */ wait for the completion"
        }
        (Call::Post, Choice::ReadLate) => {
            "post(RDMA_READ into buf);\n\
             send.send_flags |= IBV_SEND_FENCE;    /* or poll the READ's completion first */\n\
             post(SEND from buf);"
        }
        (Call::Post, Choice::Late) => {
            "post(request);\n\
             while (ibv_poll_cq(cq, 1, &wc) == 0) ;\n\
             /* only now: the buffer is free, and requests of other queue pairs may follow */"
        }
        (Call::Message, _) => {
            "ibv_poll_cq(cq, 1, &wc);\n\
             if (wc.wc_flags & IBV_WC_WITH_IMM)\n    \
             handle(ntohl(wc.imm_data));\n\
             else\n    \
             handle_without();"
        }
        (Call::Register, _) => {
            "mr = ibv_reg_mr(pd, addr, length, access);\n\
             if (!mr)\n    \
             fail(errno);    /* also where registrations have always worked */"
        }
        (Call::Acknowledge, _) => {
            "id = event->id;\n\
             memcpy(data, event->param.conn.private_data, event->param.conn.private_data_len);\n\
             rdma_ack_cm_event(event);    /* last */"
        }
        (Call::Unreliable, _) => {
            "do {\n    \
             ibv_post_send(qp, wr, &bad);\n\
             } while (!answer_within(time) && ++tries < MOST);"
        }
        (Call::Shared, _) => {
            "while (!sent || !answered) {\n    \
             n = ibv_poll_cq(cq, 1, &wc);\n    \
             if (n && wc.wr_id == SEND)   sent = 1;    /* in either order */\n    \
             if (n && wc.wr_id == ANSWER) answered = 1;\n}"
        }
        (Call::Post | Call::Receive, _) => {
            "ibv_post_recv(qp, &answer, &bad);     /* first */\n\
             ibv_post_send(qp, &question, &bad);"
        }
        (Call::Event, Choice::Interrupt) => {
            "while ((error = ibv_get_cq_event(channel, &cq, &context)) && errno == EINTR) ;"
        }
        (Call::Event, _) => {
            "while (!ibv_get_cq_event(channel, &cq, &context)) {  /* of any queue of the channel */\n    \
             ibv_ack_cq_events(cq, 1);\n    \
             ibv_req_notify_cq(cq, 0);\n    \
             poll_until_empty(cq);\n}"
        }
        (Call::Async, _) => {
            "while (!ibv_get_async_event(ctx, &event)) {    /* until EAGAIN, if non-blocking */\n    \
             handle(&event);\n    \
             ibv_ack_async_event(&event);\n}"
        }
        (Call::Connection, _) => {
            "post_receives(id);            /* before rdma_connect, rdma_accept */\n\
             rdma_get_cm_event(channel, &event);\n\
             handle(event);               /* a message may be handled before ESTABLISHED */\n\
             rdma_ack_cm_event(event);"
        }
        (Call::Modify, _) => {
            "attr.qp_state = IBV_QPS_ERR;\n\
             ibv_modify_qp(qp, &attr, IBV_QP_STATE);\n\
             while (posted > 0 && ibv_poll_cq(cq, 1, &wc) >= 0)\n    \
             posted -= wc.qp_num == qp->qp_num;   /* only own completions */\n\
             ibv_destroy_qp(qp);"
        }
    }
}
