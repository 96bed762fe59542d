//! The wrong programs, and the facts of a right report.
use crate::Finder::{Check, Hunt, Log};
use crate::{Finder, Mistake};

const fn wrong(program: &'static str, kind: &'static str) -> Mistake {
    Mistake {
        program,
        define: "WRONG",
        kind,
        threads: &[],
        finders: &[],
        line: "",
        words: &[],
        elsewhere: false,
        risk: false,
        open: false,
    }
}

impl Mistake {
    const fn variant(mut self, define: &'static str) -> Self {
        self.define = define;
        self
    }
    const fn from(mut self, threads: &'static [&'static str]) -> Self {
        self.threads = threads;
        self
    }
    const fn found_by(mut self, finders: &'static [Finder]) -> Self {
        self.finders = finders;
        self
    }
    const fn named_elsewhere(mut self) -> Self {
        self.elsewhere = true;
        self
    }
    const fn not_found_yet(mut self) -> Self {
        self.open = true;
        self
    }
    const fn a_risk(mut self) -> Self {
        self.risk = true;
        self
    }
    const fn names(mut self, line: &'static str, words: &'static [&'static str]) -> Self {
        self.line = line;
        self.words = words;
        self
    }
}

/// All wrong programs.
pub const MISTAKES: &[Mistake] = &[
    wrong("loop", "lost wake-up: polled before it armed")
        .variant("SWAPPED")
        .from(&["beegfs #133", "libfabric #795", "libfabric #796"])
        .found_by(&[Hunt])
        .names("\"arm late\"", &["lost wake-up"]),
    wrong("loop", "lost wake-up: one batch polled, not until empty")
        .variant("ONE_POLL")
        .from(&["libfabric #875"])
        .found_by(&[Hunt])
        .names("n = ibv_poll_cq(d.b.rcq, BATCH, wc)", &["lost wake-up"]),
    wrong("loop", "lost wake-up: returned before the queue was empty")
        .variant("EARLY")
        .from(&["beegfs #133"])
        .found_by(&[Hunt])
        .named_elsewhere()
        .names("if (last)", &["lost wake-up"]),
    wrong("loop", "events never acknowledged")
        .variant("NEVER_ACKS")
        .from(&["rpma #905"])
        .found_by(&[Log, Check])
        .names("\"get event\"", &["not acknowledged"]),
    wrong("loop_ex", "lost wake-up of an extended CQ: polled before it armed")
        .from(&["libfabric #795", "libfabric #875"])
        .found_by(&[Hunt])
        .names("\"arm late\"", &["lost wake-up"]),
    wrong("solicited", "sleeps for solicited messages that nobody marks")
        .from(&["libfabric #875"])
        .found_by(&[Hunt])
        .names("\"arm for solicited ones\"", &["solicited"]),
    wrong("edge", "edge-triggered completion channel not drained")
        .from(&["rust-rdma-io", "libvalkey #301"])
        .found_by(&[Hunt, Check])
        .names("take_event(); // one event", &["edge", "events left"]),
    wrong("async_edge", "edge-triggered asynchronous events not drained")
        .from(&["Mooncake #3236"])
        .found_by(&[Hunt, Check])
        .names("take_event(); // one event", &["edge", "events left"]),
    wrong("leaves_early", "queue pair destroyed before its peer has its acknowledgements")
        .from(&["ucx #5199", "spdk #2436"])
        .found_by(&[Hunt])
        .not_found_yet()
        .names("destroy the receiver's queue pair", &["no answer", "destroyed"]),
    wrong("not_global", "an address without a GRH on RoCE")
        .from(&["smart #2", "Mooncake #204"])
        .found_by(&[Log])
        .names("return ibv_modify_qp(qp, &a,", &["is_global"]),
    wrong("ledger", "send queue's free places counted wrongly")
        .from(&["brpc #3132", "brpc #3202", "spdk #3195"])
        .found_by(&[Hunt, Check])
        .names("r = ibv_post_send(d.a.qp, &wr, &bad)", &["send queue was full", "frees"]),
    wrong("chain_again", "bad_wr ignored: what was taken is posted again")
        .from(&["FastDeploy #8091"])
        .found_by(&[Hunt, Check])
        .names("ibv_post_send(d.a.qp, todo, &bad)", &["bad_wr", "again"]),
    wrong("flush_only", "a write beyond the region; its peer sees a flush alone")
        .from(&["spdk #298", "ompi #95"])
        .found_by(&[Log, Hunt])
        .names("\"post the record\"", &["leave the", "remote access"]),
    wrong("other_ack", "events acknowledged on another queue")
        .from(&["ucx #1039"])
        .found_by(&[Hunt, Check])
        .names("whichever it was of", &["not acknowledged"]),
    wrong("async_ack", "asynchronous event never acknowledged")
        .from(&["rpma #905"])
        .found_by(&[Log, Hunt, Check])
        .names("\"get async event\"", &["not acknowledged"]),
    wrong("taken_event", "another queue's event taken and dropped")
        .from(&["libfabric #796", "ucx #1039"])
        .found_by(&[Hunt, Check])
        .named_elsewhere()
        .names("the event is of the other thread's queue", &["lost wake-up", "dropped"]),
    wrong("opcode_on_error", "opcode read of a failed completion")
        .from(&["spdk #3212", "spdk #3214", "DeepEP #558"])
        .found_by(&[Hunt, Check])
        .named_elsewhere()
        .names("also of failed ones", &["undefined", "opcode"]),
    wrong("opcode_ex", "opcode read of a failed completion of an extended CQ")
        .from(&["spdk #3212", "spdk #3214"])
        .found_by(&[Hunt, Check])
        .named_elsewhere()
        .names("also of failed ones", &["undefined", "opcode"]),
    wrong("repost_flushed", "flushed receives posted again, for ever")
        .from(&["nbs #4533"])
        .found_by(&[Hunt, Check])
        .named_elsewhere()
        .names("wc.status == IBV_WC_SUCCESS || wc.byte_len", &["byte_len", "posted in"]),
    wrong("batch_rest", "the rest of a poll's batch dropped")
        .from(&["rust-rdma-io", "perftest #137"])
        .found_by(&[Hunt, Check])
        .names("n = ibv_poll_cq(d.a.rcq, BATCH, wc)", &["batch"]),
    wrong("reply_first", "the send's completion taken for granted when the answer is there")
        .from(&["QEMU migration"])
        .found_by(&[Hunt])
        .names("CHECK(sent, ", &["after the answer", "after the peer's answer"]),
    wrong("unchecked_mr", "a registration used although it failed")
        .from(&["nccl-tests #206", "byteps #295"])
        .found_by(&[Hunt])
        .names("*own = ibv_reg_mr(", &["ibv_reg_mr failed"]),
    wrong("leaked_mr", "a registration left behind on one way out")
        .from(&["async-rdma #107", "Mooncake #1382"])
        .found_by(&[Check])
        .a_risk()
        .names("*own = ibv_reg_mr(", &["never deregistered", "left at exit"]),
    wrong("dereg_early", "a region deregistered while a request uses it")
        .from(&["spdk #961", "ucx #857"])
        .found_by(&[Hunt, Check])
        .names("\"dereg at once\"", &["deregistered", "names no memory region"]),
    wrong("short_region", "a region shorter than what is sent of it")
        .from(&["ucx #6414", "spdk #3807"])
        .found_by(&[Log, Check])
        .names("blocks = ibv_reg_mr(", &["leave the"]),
    wrong("rnr_once", "a receive posted after the answer, with no retries")
        .from(&["spdk #2429", "Nugine/rdma #2"])
        .found_by(&[Hunt, Log])
        .named_elsewhere()
        .names("after the answer", &["no receive posted"]),
    wrong("rnr_timer", "an RNR timer of 655 ms")
        .from(&["spdk #2429"])
        .found_by(&[Check])
        .named_elsewhere()
        .a_risk()
        .names("a.min_rnr_timer = RNR_TIMER", &["655"]),
    wrong("lost_on_error", "a request lost when its post fails")
        .from(&["nbs #2690", "nbs #4533"])
        .found_by(&[Hunt, Check])
        .names("int r = put(d.a.qp, request", &["ENOMEM", "refused"]),
    wrong("chain_lost", "a request lost when its chain is refused")
        .from(&["nbs #2690", "nbs #4533"])
        .found_by(&[Hunt, Check])
        .names("whether it was posted", &["ENOMEM", "refused"]),
    wrong("small_cq", "a CQ smaller than what may complete")
        .from(&["libfabric #4913", "ucx #7143", "ucx #11933"])
        .found_by(&[Hunt, Check])
        .a_risk()
        .names("cq = cq_new(&port, ENTRIES", &["overflowed", "may complete"]),
    wrong("fork_pages", "registered pages shared with a forked child")
        .from(&["rdma-core #1222", "rdma-core #1129", "Mooncake #3660"])
        .found_by(&[Check])
        .a_risk()
        .names("child = fork()", &["fork"]),
    wrong("early_receive", "a message taken for a mistake as ESTABLISHED was not read yet")
        .from(&["ucx #4719", "libfabric #12362"])
        .found_by(&[Hunt])
        .names("// taken for granted", &["connection"]),
    wrong("uc_lost", "messages of an unreliable connection counted on")
        .from(&["valkey #916"])
        .found_by(&[Hunt])
        .named_elsewhere()
        .a_risk()
        .names("until all have come", &["if it is lost"]),
    wrong("small_inline", "inline data on a queue pair made for none")
        .from(&["Mooncake #721"])
        .found_by(&[Log, Check])
        .names("r = ibv_post_send(qp, &wr, &bad)", &["inline data"]),
    wrong("zero_element", "an element of length 0")
        .from(&["ucx #6414", "spdk #3195"])
        .found_by(&[Check])
        .a_risk()
        .names("CHECK(!ibv_post_send(qp, &wr, &bad)", &["length 0"]),
    wrong("reused_buffer", "a posted buffer filled again")
        .found_by(&[Hunt, Check])
        .named_elsewhere()
        .names("the message of four before may still lie here", &["changed while", "posted"]),
    wrong("uc_reused", "the buffer of an unreliable connection filled again after the post")
        .found_by(&[Check])
        .named_elsewhere()
        .names("// too early", &["changed while"]),
    wrong("freed_buffer", "a posted buffer freed")
        .from(&["spdk #961"])
        .found_by(&[Hunt, Check])
        .named_elsewhere()
        .names("still posted", &["freed while", "changed while", "posted"]),
    wrong("flag_in_memory", "the last byte of a write taken for all of it")
        .found_by(&[Hunt])
        .named_elsewhere()
        .names("the last byte is there", &["order"]),
    wrong("read_tail", "the last byte of a READ taken for all of it")
        .found_by(&[Hunt])
        .named_elsewhere()
        .names("the last byte is there", &["order"]),
    wrong("send_first", "a send's completion expected before the answer in one queue")
        .found_by(&[Hunt])
        .named_elsewhere()
        .names("// in this order", &["no common order"]),
    wrong("unflagged_credit", "imm_data read without its flag")
        .found_by(&[Hunt])
        .names("// a message", &["imm_data is defined only"]),
    wrong("acked_data", "private data of an event read after the acknowledgement")
        .found_by(&[Hunt])
        .names("\"ack the request\"", &["rdma_ack_cm_event frees"]),
    wrong("read_sent_on", "bytes of a READ sent on without a fence")
        .from(&["ucx #7215"])
        .found_by(&[Hunt, Check])
        .names("\"send on\"", &["IBV_SEND_FENCE"]),
    wrong("read_released", "\"taken\" said of a READ without a fence")
        .from(&["ucx #8221"])
        .found_by(&[Hunt])
        .names("\"read, and say so\"", &["fence"]),
    wrong("two_pairs", "the order of two queue pairs counted on")
        .from(&["RDMA-example #3"])
        .found_by(&[Hunt])
        .named_elsewhere()
        .names("// over which queue pair", &["queue pair"]),
    wrong("srq_dry", "a shared receive queue that is not filled again")
        .from(&["StepMesh #36", "ucx #10505"])
        .found_by(&[Hunt])
        .names("ibv_post_srq_recv(srq, &wr, &bad)", &["no receive"]),
    wrong("interrupted", "EINTR taken for a failure")
        .from(&["ib #3", "libfabric #4829"])
        .found_by(&[Hunt])
        .names("// the only try", &["EINTR"]),
    wrong("plain_flag", "a plain variable waited for in a loop")
        .from(&["derecho #1"])
        .found_by(&[Hunt])
        .names("while (!there) // a plain variable", &["loop"]),
    wrong("freed_at_reply", "a send buffer filled again at the answer")
        .from(&["nfs-ganesha #14"])
        .found_by(&[Hunt, Check])
        .named_elsewhere()
        .names("\"request\"", &["changed while"]),
    wrong("stale_flush", "a flushed completion of an old queue pair taken for a new one")
        .from(&["spdk #3859"])
        .found_by(&[Hunt])
        .named_elsewhere()
        .names("// until it is empty", &["late", "queue pair"]),
    wrong("short_limit", "milliseconds taken for seconds")
        .from(&["disni #11", "libfabric #3460"])
        .found_by(&[Hunt])
        .names("// the limit", &["nothing within 2ms"]),
    wrong("reset_orphans", "completions of a reset queue pair waited for")
        .from(&["Mooncake #2427"])
        .found_by(&[Hunt])
        .names("\"drop the connection\"", &["RESET"]),
    wrong("first_queue", "events of two queues taken for those of one")
        .from(&["rpma #1643"])
        .found_by(&[Hunt])
        .names("\"get event\"", &["not polled", "armed once", "no thread polls", "not again"]),
    wrong("short_grh", "datagrams received without room for the GRH")
        .found_by(&[Hunt, Check])
        .names("// a receive", &["40 bytes of GRH"]),
    wrong("late_cm_ack", "an id of rdma_cm destroyed before its event is acknowledged")
        .found_by(&[Hunt, Check])
        .names("destroy the id of the connection", &["waits for the acknowledgement"]),
    wrong("xrc_dry", "a shared receive queue of an XRC target that is not filled again")
        .found_by(&[Hunt, Check])
        .names("ibv_post_srq_recv(srq, &wr, &bad)", &["shared receive queue 2"]),
    wrong("late_write", "a region deregistered before the peer's last write")
        .found_by(&[Hunt, Check])
        .names("\"deregister the table\"", &["was deregistered before"]),
    wrong("lost_signal", "a signal of a condition variable lost between a poll and the wait")
        .found_by(&[Hunt])
        .names("// whatever was signaled before", &["was not woken after the arm"]),
];
