//! A fourth instrument, used only by these tests.
use super::call::{Call, CallOutcome, Event, Fork, What};
use super::list::{LIST, nest, tell_each};
use super::observer::{ListedObserver, Observer, When};
use crate::abi::*;
use crate::verbs::caller::Caller;
use crate::verbs::{async_event, comp_channel, cq, device, pd, qp, srq};
use core::cell::{Cell, RefCell};
use core::ffi::c_int;
use core::ptr::null_mut;

/// Notes the calls of a thread that asks for it.
pub struct Fourth;

thread_local! {
    static IS_ON: Cell<bool> = const { Cell::new(false) };
    static REFUSES: Cell<bool> = const { Cell::new(false) };
    static SEEN: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

fn note(what: impl Into<String>) {
    SEEN.with_borrow_mut(|seen| seen.push(what.into()));
}

fn seen() -> Vec<String> {
    SEEN.take()
}

fn word(what: What<'_>) -> String {
    match what {
        What::Poll { .. } => "poll".into(),
        What::StartPoll { .. } => "start poll".into(),
        What::NextPoll { .. } => "next poll".into(),
        What::Arm { .. } => "arm".into(),
        What::PostSend { .. } => "post send".into(),
        What::PostRecv { .. } => "post recv".into(),
        What::PostSrqRecv { .. } => "post srq recv".into(),
        What::StartChain { .. } => "start chain".into(),
        What::CompleteChain { .. } => "complete chain".into(),
        What::CqEvent { .. } => "cq event".into(),
        What::AsyncEvent { .. } => "async event".into(),
        What::Named { name, .. } => name.to_str().expect("a name").into(),
    }
}

impl Observer for Fourth {
    /// The call.
    type Kept = String;

    fn begin(&self, _: When) {}

    fn is_on(&self) -> bool {
        IS_ON.get()
    }

    fn before(&self, call: &Call<'_>) -> Result<String, CallOutcome> {
        let word = word(call.what());
        note(format!("before {word}"));
        if REFUSES.get() { Err(CallOutcome::number(libc::EPERM)) } else { Ok(word) }
    }

    fn after(&self, call: &Call<'_>, outcome: &mut CallOutcome, kept: String) {
        assert_eq!(word(call.what()), kept);
        note(format!("after {kept}: {}", outcome.code()));
    }

    fn told(&self, event: &mut Event<'_>) {
        note(match event {
            Event::Made(kind, _) => format!("made {kind:?}"),
            Event::Ended(kind, _) => format!("ended {kind:?}"),
            Event::Fork(moment) => format!("fork {moment:?}"),
            _ => return,
        });
    }
}

/// An instrument of the list that counts as on, and notes its calls. The product's instruments are
/// off and do nothing.
struct Noted(&'static dyn ListedObserver);

impl ListedObserver for Noted {
    fn name(&self) -> &'static str {
        self.0.name()
    }
    fn begin(&self, _: When) {}
    fn is_on(&self) -> bool {
        true
    }
    fn around(&self, call: &Call<'_>, inner: &mut dyn FnMut() -> CallOutcome) -> CallOutcome {
        note(format!("{} before", self.name()));
        let outcome = self.0.around(call, inner);
        note(format!("{} after", self.name()));
        outcome
    }
    fn told(&self, _: &mut Event<'_>) {
        note(self.name());
    }
}

fn all_noted() -> Vec<Noted> {
    LIST.iter().map(|entry| Noted(*entry)).collect()
}

fn arm() -> Call<'static> {
    // SAFETY: the handle is null, which instruments detect.
    unsafe {
        Call::of(
            Caller { return_address: 0, frame: 0 },
            What::Arm { cq: null_mut(), solicited_only: false },
        )
    }
}

/// `before` follows the order of the list, and `after` the reverse order.
#[test]
fn the_order_of_instruments_is_that_of_the_list() {
    let all = all_noted();
    let list: Vec<&dyn ListedObserver> =
        all.iter().map(|noted| noted as &dyn ListedObserver).collect();
    let mut plain = || {
        note("plain");
        CallOutcome::number(7)
    };
    assert_eq!(nest(&list, &arm(), &mut plain).code(), 7);
    let expected = [
        "Tracing before",
        "Checking before",
        "Hunting before",
        "Fourth before",
        "before arm",
        "plain",
        "after arm: 7",
        "Fourth after",
        "Hunting after",
        "Checking after",
        "Tracing after",
    ];
    assert_eq!(seen(), expected);

    // Later instruments and the plain entry point do not see a refused call.
    REFUSES.set(true);
    let [trace, check, hunt, fourth] = list[..] else { panic!("four instruments") };
    assert_eq!(nest(&[trace, fourth, check, hunt], &arm(), &mut plain).code(), libc::EPERM);
    REFUSES.set(false);
    assert_eq!(
        seen(),
        ["Tracing before", "Fourth before", "before arm", "Fourth after", "Tracing after"]
    );

    // Locks taken before a fork are released in the reverse order.
    for (moment, expected) in [
        (Fork::Before, ["Tracing", "Checking", "Hunting", "Fourth"]),
        (Fork::Parent, ["Fourth", "Hunting", "Checking", "Tracing"]),
        (Fork::Child, ["Fourth", "Hunting", "Checking", "Tracing"]),
    ] {
        tell_each(&list, &mut Event::Fork(moment));
        assert_eq!(seen(), expected);
    }
}

/// Asserts how a call was seen, with its result.
#[track_caller]
fn saw(word: &str, result: c_int) {
    assert_eq!(seen(), [format!("before {word}"), format!("after {word}: {result}")]);
}

/// Makes reads of a descriptor non-blocking.
fn nonblocking(fd: c_int) {
    // SAFETY: the test's own descriptor.
    assert_eq!(unsafe { libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK) }, 0);
}

/// Calls go through the tables of a context and of extended objects. An instrument in the list sees
/// each kind of call, objects, and the child of a fork.
#[test]
fn a_fourth_instrument_sees_each_kind_of_call() {
    // SAFETY: the calls are made in sequence, as a program makes them.
    unsafe {
        let mut n = -1;
        let list = device::ibv_get_device_list(&raw mut n);
        assert!(n > 0, "no device");
        IS_ON.set(true);
        super::init(When::Use);
        let context = device::ibv_open_device(*list);
        let table: *mut verbs_context =
            context.byte_sub(core::mem::offset_of!(verbs_context, context)).cast();
        let ops = &(*context).ops;

        let pd = pd::ibv_alloc_pd(context);
        let channel = comp_channel::ibv_create_comp_channel(context);
        let srq = srq::ibv_create_srq(pd, core::ptr::from_mut(&mut srq_attr()));
        assert_eq!(seen(), ["made Domain", "made Channel", "made Srq"]);

        // A function in the extended table, with its name.
        let mut attr = ibv_cq_init_attr_ex::zeroed();
        (attr.cqe, attr.channel) = (4, channel);
        let cq = (*table).create_cq_ex.expect("the slot")(context, &raw mut attr);
        let answer = (cq as usize as u32).cast_signed();
        let expected = [
            "before ibv_create_cq_ex".into(),
            "made Cq".into(),
            format!("after ibv_create_cq_ex: {answer}"),
        ];
        assert_eq!(seen(), expected);
        let plain: *mut ibv_cq = cq.cast();

        let mut init = ibv_qp_init_attr_ex::zeroed();
        (init.qp_type, init.send_cq, init.recv_cq, init.pd) = (IBV_QPT_RC, plain, plain, pd);
        init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        init.send_ops_flags = IBV_QP_EX_WITH_SEND;
        (
            init.cap.max_send_wr,
            init.cap.max_recv_wr,
            init.cap.max_send_sge,
            init.cap.max_recv_sge,
        ) = (1, 1, 1, 1);
        let qp = qp::create_qp_ex(context, &raw mut init);
        assert!(!qp.is_null());
        assert_eq!(seen(), ["made QueuePair"]);
        let extended = qp::ibv_qp_to_qp_ex(qp);

        assert_eq!(
            ops.poll_cq.expect("the slot")(plain, 1, core::ptr::from_mut(&mut ibv_wc::zeroed())),
            0
        );
        saw("poll", 0);
        assert_eq!((*cq).start_poll.expect("the slot")(cq, null_mut()), libc::ENOENT);
        saw("start poll", libc::ENOENT);
        assert_eq!((*cq).next_poll.expect("the slot")(cq), libc::EINVAL);
        saw("next poll", libc::EINVAL);
        assert_eq!(ops.req_notify_cq.expect("the slot")(plain, 0), 0);
        saw("arm", 0);

        // A queue pair in RESET accepts no request.
        let (mut send, mut receive) = (ibv_send_wr::zeroed(), ibv_recv_wr::zeroed());
        let (mut bad_send, mut bad_receive) = (null_mut(), null_mut());
        assert_eq!(
            ops.post_send.expect("the slot")(qp, &raw mut send, &raw mut bad_send),
            libc::EINVAL
        );
        assert_eq!(bad_send, &raw mut send);
        saw("post send", libc::EINVAL);
        assert_eq!(
            ops.post_recv.expect("the slot")(qp, &raw mut receive, &raw mut bad_receive),
            libc::EINVAL
        );
        assert_eq!(bad_receive, &raw mut receive);
        saw("post recv", libc::EINVAL);
        assert_eq!(
            ops.post_srq_recv.expect("the slot")(srq, &raw mut receive, &raw mut bad_receive),
            0
        );
        saw("post srq recv", 0);
        (*extended).wr_start.expect("the slot")(extended);
        saw("start chain", 0);
        assert_eq!((*extended).wr_complete.expect("the slot")(extended), 0);
        saw("complete chain", 0);

        // A refused chain is over, so another chain may begin.
        (*extended).wr_start.expect("the slot")(extended);
        REFUSES.set(true);
        assert_eq!((*extended).wr_complete.expect("the slot")(extended), libc::EPERM);
        REFUSES.set(false);
        assert_eq!(seen()[2..], ["before complete chain"]);
        assert_eq!((*extended).wr_complete.expect("the slot")(extended), libc::EINVAL);
        saw("complete chain", libc::EINVAL);

        nonblocking((*channel).fd);
        nonblocking((*context).async_fd);
        let (mut of, mut cookie, mut event) = (null_mut(), null_mut(), ibv_async_event::zeroed());
        assert_eq!(comp_channel::ibv_get_cq_event(channel, &raw mut of, &raw mut cookie), -1);
        assert_eq!(crate::errno::last(), libc::EAGAIN);
        saw("cq event", -1);
        assert_eq!(async_event::ibv_get_async_event(context, &raw mut event), -1);
        assert_eq!(crate::errno::last(), libc::EAGAIN);
        saw("async event", -1);

        let child = libc::fork();
        if child == 0 {
            libc::_exit(if seen() == ["fork Before", "fork Child"] { 0 } else { 1 });
        }
        let mut status = -1;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        assert_eq!(status, 0, "the child saw the fork");
        assert_eq!(seen(), ["fork Before", "fork Parent"]);

        assert_eq!(qp::ibv_destroy_qp(qp), 0);
        assert_eq!(cq::ibv_destroy_cq(plain), 0);
        assert_eq!(seen(), ["ended QueuePair", "ended Cq"]);

        // Without an instrument the same entry points are plain.
        IS_ON.set(false);
        assert_eq!(ops.poll_cq.expect("the slot")(null_mut(), 1, null_mut()), -libc::EINVAL);
        assert!(seen().is_empty());
    }
}

fn srq_attr() -> ibv_srq_init_attr {
    let mut attr = ibv_srq_init_attr::zeroed();
    (attr.attr.max_wr, attr.attr.max_sge) = (1, 1);
    attr
}
