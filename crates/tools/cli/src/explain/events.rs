//! The events of rdma_cm.
use super::topic::Topic;

const ACK: &str = "rdma_get_cm_event(channel, &event);\n\
                   kind = event->event; status = event->status; id = event->id;\n\
                   copy event->param.conn.private_data, if needed;\n\
                   rdma_ack_cm_event(event);      /* before rdma_destroy_id */";

pub fn topic(number: usize, name: &'static str) -> Topic {
    let (meaning, why) = words(number);
    let order = match number {
        0 | 2 => {
            "rdma_resolve_addr(id, ...);   /* ADDR_RESOLVED */\nrdma_resolve_route(id, ...);  /* ROUTE_RESOLVED */\nrdma_create_qp(id, ...);\npost_receives(id);\nrdma_connect(id, &param);     /* ESTABLISHED */"
        }
        4 => {
            "new = event->id;\nrdma_create_qp(new, ...);\npost_receives(new);\nrdma_accept(new, &param);\nrdma_ack_cm_event(event);     /* copy the private data before */"
        }
        10 => {
            "rdma_ack_cm_event(event);\nrdma_disconnect(id);          /* the own half */\npoll the flushed completions;\nrdma_destroy_qp(id);\nrdma_destroy_id(id);"
        }
        _ => ACK,
    };
    Topic {
        title: format!("{name} ({number})"),
        meaning,
        why,
        order,
        suppress: "an event is no report; adverb run --check names events that a call waits for \
                   (event-not-acknowledged)"
            .into(),
    }
}

fn words(number: usize) -> (&'static str, &'static str) {
    match number {
        0 => (
            "rdma_resolve_addr has found the device and the address of the peer.",
            "the address is known; the route is not, so rdma_resolve_route follows.",
        ),
        1 => (
            "rdma_resolve_addr has failed; event->status has the negative errno.",
            "no device has a way to the address, or the address has no neighbour.",
        ),
        2 => (
            "rdma_resolve_route has found the route.",
            "the id may now have a queue pair, and connect.",
        ),
        3 => (
            "rdma_resolve_route has failed; event->status has the negative errno.",
            "the device of the id has no route to the address.",
        ),
        4 => (
            "A peer asks the listener for a connection. event->id is a new id, and event->listen_id is the listener.",
            "each request has its own id; the program accepts, or rejects, and destroys the id.",
        ),
        5 => (
            "The peer has accepted, and the id has no queue pair of rdma_create_qp.",
            "the program moves its queue pair to RTR and RTS itself, and calls rdma_establish.",
        ),
        6 => (
            "The connection could not be made after the peer answered; event->status has the reason.",
            "a queue pair could not be moved, often for attributes that one side does not support.",
        ),
        7 => (
            "The peer did not answer; event->status has the negative errno.",
            "no process answers at the address, or packets are lost on the way (UDP port 4791).",
        ),
        8 => (
            "The peer has rejected the connection. event->status is the reason: 8 is a port without listener, 28 is a refusal by the program.",
            "a listener may refuse each request; private data may have the reason.",
        ),
        9 => (
            "The connection is established.",
            "messages of the peer may come, and be polled, before this event is read.",
        ),
        10 => (
            "The peer has ended the connection.",
            "flushed completions and TIMEWAIT_EXIT may come before or after this event.",
        ),
        11 => (
            "The device of the id is gone.",
            "a device may be removed at any time; the program destroys all ids of the device.",
        ),
        12 => (
            "The id has joined the multicast group.",
            "event->param.ud has the address handle's attributes, the queue pair number and the Q_Key.",
        ),
        13 => (
            "The id could not join the multicast group, or is no longer a member; event->status has the negative errno.",
            "a membership may end with the device or the port.",
        ),
        14 => (
            "The hardware address of the network interface has changed.",
            "bonding may move an address to another port; the program connects anew.",
        ),
        15 => (
            "The queue pair of the id is out of the timewait state.",
            "the connection's packets may live on for a time after its end; the queue pair may be used again after this event.",
        ),
        16 => (
            "rdma_resolve_addrinfo has found the addresses.",
            "rdma_query_addrinfo then has the result.",
        ),
        17 => (
            "rdma_resolve_addrinfo has failed; event->status has the reason.",
            "the name or the service is not known.",
        ),
        _ => (
            "An event that the program wrote itself with rdma_write_cm_event.",
            "event->param.arg has the program's number.",
        ),
    }
}
