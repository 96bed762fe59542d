//! Channels and events, and what they say of queue pairs.
use std::ffi::c_int;
use std::ptr::null_mut;

use super::rig::*;
use ibverbs::abi::*;
use ibverbs::handles::live;
use ibverbs::verbs::{async_event, comp_channel, cq, pd, port, qp, srq, xrcd};
use libc::{EAGAIN, EBUSY};

#[test]
fn channels_and_events() {
    let open = Open::new();
    unsafe {
        let channel = comp_channel::ibv_create_comp_channel(open.0);
        let queue = cq::ibv_create_cq(open.0, 4, channel.cast(), channel, 0);
        assert!(!queue.is_null());
        // CHN-6.
        assert_eq!(comp_channel::ibv_destroy_comp_channel(channel), EBUSY);
        libc::fcntl((*channel).fd, libc::F_SETFL, libc::O_NONBLOCK);
        let (mut found, mut context) = (null_mut(), null_mut());
        let got = comp_channel::ibv_get_cq_event(channel, &raw mut found, &raw mut context);
        assert_eq!((got, errno()), (-1, EAGAIN));
        assert_eq!(cq::ibv_destroy_cq(queue), 0);
        assert_eq!(comp_channel::ibv_destroy_comp_channel(channel), 0);
        let mut event = zeroed::<ibv_async_event>();
        libc::fcntl((*open.0).async_fd, libc::F_SETFL, libc::O_NONBLOCK);
        assert_eq!(
            (async_event::ibv_get_async_event(open.0, &raw mut event), errno()),
            (-1, EAGAIN)
        );
    }
}

/// A queue pair on an SRQ tells when it takes no more from it; destroying it waits for the
/// acknowledgement.
#[test]
fn an_asynchronous_event_names_its_queue_pair() {
    let open = Open::new();
    let pd = open.pd();
    unsafe {
        let (queue, srq) = (cq::ibv_create_cq(open.0, 4, null_mut(), null_mut(), 0), srq_of(pd));
        let mut init = zeroed::<ibv_qp_init_attr>();
        (init.send_cq, init.recv_cq, init.srq, init.qp_type) = (queue, queue, srq, IBV_QPT_RC);
        (init.cap.max_send_wr, init.cap.max_send_sge) = (1, 1);
        let pair = qp::ibv_create_qp(pd, &raw mut init);
        assert!(!pair.is_null());
        assert_eq!(srq::ibv_destroy_srq(srq), EBUSY);
        let mut attr = zeroed::<ibv_qp_attr>();
        (attr.qp_state, attr.port_num) = (IBV_QPS_INIT, PORT);
        let mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
        assert_eq!(qp::ibv_modify_qp(pair, &raw mut attr, mask as c_int), 0);
        attr.qp_state = IBV_QPS_ERR;
        assert_eq!(qp::ibv_modify_qp(pair, &raw mut attr, IBV_QP_STATE as c_int), 0);
        let mut event = zeroed::<ibv_async_event>();
        let mut fd = libc::pollfd { fd: (*open.0).async_fd, events: libc::POLLIN, revents: 0 };
        assert_eq!(libc::poll(&raw mut fd, 1, 2_000), 1, "no event");
        assert_eq!(async_event::ibv_get_async_event(open.0, &raw mut event), 0);
        assert_eq!((event.event_type, event.element.qp), (IBV_EVENT_QP_LAST_WQE_REACHED, pair));
        assert_eq!((*pair).events_completed, 0);
        async_event::ibv_ack_async_event(&raw mut event);
        assert_eq!((*pair).events_completed, 1, "CHN-9");
        assert_eq!(qp::ibv_destroy_qp(pair), 0);
        assert_eq!((srq::ibv_destroy_srq(srq), cq::ibv_destroy_cq(queue)), (0, 0));
        assert_eq!(pd::ibv_dealloc_pd(pd), 0);
    }
}

/// OBJ-7: a queue pair that fails by itself shows it to callers that ask for its state, and nowhere
/// else. CHN-9: what was acknowledged is counted in the structure.
#[test]
fn obj_7_chn_9_the_structures_fields_follow_the_programs_own_calls() {
    let open = Open::new();
    let pd = open.pd();
    unsafe {
        let channel = comp_channel::ibv_create_comp_channel(open.0);
        let queue = cq::ibv_create_cq(open.0, 4, null_mut(), channel, 0);
        let mut init = zeroed::<ibv_qp_init_attr>();
        (init.send_cq, init.recv_cq, init.qp_type) = (queue, queue, IBV_QPT_RC);
        (init.cap.max_send_wr, init.cap.max_send_sge) = (1, 1);
        let pair = qp::ibv_create_qp(pd, &raw mut init);
        let mut attr = zeroed::<ibv_qp_attr>();
        (attr.qp_state, attr.port_num) = (IBV_QPS_INIT, PORT);
        let mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
        assert_eq!(qp::ibv_modify_qp(pair, &raw mut attr, mask as c_int), 0);
        (attr.qp_state, attr.path_mtu, attr.dest_qp_num) =
            (IBV_QPS_RTR, IBV_MTU_1024, (*pair).qp_num);
        (attr.ah_attr.is_global, attr.ah_attr.port_num) = (1, PORT);
        attr.ah_attr.grh.sgid_index = open.ipv4_gid();
        assert_eq!(
            port::ibv_query_gid(
                open.0,
                PORT,
                open.ipv4_gid().into(),
                &raw mut attr.ah_attr.grh.dgid
            ),
            0
        );
        let mask = IBV_QP_STATE
            | IBV_QP_AV
            | IBV_QP_PATH_MTU
            | IBV_QP_DEST_QPN
            | IBV_QP_RQ_PSN
            | IBV_QP_MAX_DEST_RD_ATOMIC
            | IBV_QP_MIN_RNR_TIMER;
        assert_eq!(qp::ibv_modify_qp(pair, &raw mut attr, mask as c_int), 0);
        (attr.qp_state, attr.timeout) = (IBV_QPS_RTS, 14);
        let mask = IBV_QP_STATE
            | IBV_QP_TIMEOUT
            | IBV_QP_RETRY_CNT
            | IBV_QP_RNR_RETRY
            | IBV_QP_SQ_PSN
            | IBV_QP_MAX_QP_RD_ATOMIC;
        assert_eq!(qp::ibv_modify_qp(pair, &raw mut attr, mask as c_int), 0);
        assert_eq!((*pair).state, IBV_QPS_RTS);

        // A write without permission: the queue pair fails.
        let context = &(*open.0).ops;
        assert_eq!((context.req_notify_cq.expect("an entry"))(queue, 0), 0);
        let mut wr = zeroed::<ibv_send_wr>();
        (wr.opcode, wr.send_flags) = (IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED);
        let mut bad = null_mut();
        assert_eq!((context.post_send.expect("an entry"))(pair, &raw mut wr, &raw mut bad), 0);
        let (mut of, mut own) = (null_mut(), null_mut());
        assert_eq!(comp_channel::ibv_get_cq_event(channel, &raw mut of, &raw mut own), 0);
        assert_eq!((of, (*queue).comp_events_completed), (queue, 0));
        comp_channel::ibv_ack_cq_events(queue, 1);
        assert_eq!((*queue).comp_events_completed, 1);
        assert_eq!((*pair).state, IBV_QPS_RTS, "nobody asked");
        assert_eq!(qp::ibv_query_qp(pair, &raw mut attr, IBV_QP_AV as c_int, &raw mut init), 0);
        assert_eq!((*pair).state, IBV_QPS_RTS, "nor now");
        assert_eq!(qp::ibv_query_qp(pair, &raw mut attr, IBV_QP_STATE as c_int, &raw mut init), 0);
        assert_eq!((attr.qp_state, (*pair).state), (IBV_QPS_ERR, IBV_QPS_ERR));
        assert_eq!((qp::ibv_destroy_qp(pair), cq::ibv_destroy_cq(queue)), (0, 0));
        assert_eq!(
            (comp_channel::ibv_destroy_comp_channel(channel), pd::ibv_dealloc_pd(pd)),
            (0, 0)
        );
    }
}

#[test]
fn events_name_a_living_handle_of_a_shared_queue_pair() {
    let open = Open::new();
    unsafe {
        let mut domain = zeroed::<ibv_xrcd_init_attr>();
        (domain.comp_mask, domain.fd, domain.oflags) = (3, -1, libc::O_CREAT);
        let xrcd = xrcd::open_xrcd(open.0, &raw mut domain);
        let mut init = zeroed::<ibv_qp_init_attr_ex>();
        (init.qp_type, init.comp_mask, init.xrcd) = (IBV_QPT_XRC_RECV, IBV_QP_INIT_ATTR_XRCD, xrcd);
        let first = qp::create_qp_ex(open.0, &raw mut init);
        assert!(!first.is_null());
        let mut attr = zeroed::<ibv_qp_open_attr>();
        attr.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD;
        (attr.qp_num, attr.xrcd) = ((*first).qp_num, xrcd);
        let [second, third] = [(); 2].map(|()| qp::open_qp(open.0, &raw mut attr));
        assert!(!second.is_null() && !third.is_null());
        let shared = live(third).unwrap().qp.clone();
        let named = || shared.cookie() as *mut ibv_qp;
        assert_eq!(named(), first);
        assert_eq!((qp::ibv_destroy_qp(first), named()), (0, second));
        assert_eq!((qp::ibv_destroy_qp(second), named()), (0, third));
        assert_eq!(qp::ibv_destroy_qp(third), 0);
        assert_eq!(xrcd::close_xrcd(xrcd), 0);
    }
}
