//! The state of the process, for [`adverb_check::Ledger::examine`].
use super::threads;
use adverb_check::{Armed, Occasion, PairScene, QueueScene, Scene};
use adverb_device::node::of_this_process;
use adverb_device::snapshot::{Arm, Pair, Queue};

/// The state of the process now. Takes locks of the device, and never waits long for one.
/// `polling`: the CQs that the program polls.
pub(super) fn scene(occasion: Occasion, polling: Vec<u32>) -> Scene {
    // First: what the threads do is not changed by the looks at the device.
    let threads = threads::all();
    let page = of_this_process().unwrap_or_default();
    Scene {
        occasion,
        interrupted: false,
        queues: page.queues.into_iter().map(queue).collect(),
        pairs: page.queue_pairs.into_iter().filter(|pair| !pair.busy).map(pair).collect(),
        polling,
        threads,
    }
}

fn queue(queue: Queue) -> QueueScene {
    QueueScene {
        number: queue.number,
        waiting: queue.waiting,
        unannounced: queue.unannounced,
        unread: queue.unread,
        armed: match queue.arm {
            Arm::None => Armed::No,
            Arm::Next => Armed::Next,
            Arm::Solicited | Arm::Errors => Armed::Solicited,
        },
        arms: queue.arms,
        channel: queue.channel,
        overflowed: queue.broken,
        waiter: queue.waiter,
        lost: queue.stuck,
        poller: queue.poller.cast_signed(),
    }
}

fn pair(pair: Pair) -> PairScene {
    PairScene {
        number: pair.number,
        state: pair.state_name(),
        peer: pair.peer_pid,
        dest: pair.dest,
        open: pair.open,
        receives: pair.receives,
        srq: pair.srq,
        unknown_key: pair.unknown_key,
        send_cq: pair.send_cq,
        recv_cq: pair.recv_cq,
        rnr_naks: pair.rnr_naks,
        refused: pair.refused,
        unfit: pair.unfit,
        error: pair.error,
    }
}
