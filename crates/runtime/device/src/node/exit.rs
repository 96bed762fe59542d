//! The end of the process: packets deferred for a later packet leave before the end.
use super::carriers::Relay;
use super::core::Node;
use std::time::{Duration, Instant};

/// Longest wait of an ending process for the receiving thread.
const PATIENCE: Duration = Duration::from_millis(20);
/// Longest wait of an ending process for other processes of this host to take its packets, over
/// transports without retransmission.
const LAST_DELIVERY: Duration = Duration::from_millis(500);
/// Interval of new attempts.
const NAP: Duration = Duration::from_micros(50);

/// Sends deferred packets. The process may end in a signal handler that interrupted a call of the
/// device. Such a call never releases its locks, so objects under these locks stay as they are.
pub(super) fn send_at_last(node: &Node) {
    if node.is_stale() || !keys_can_be_read(node) {
        return;
    }
    let waiting =
        node.pending.try_lock_for(PATIENCE).map(|mut pending| std::mem::take(&mut *pending));
    let mut waiting = waiting.unwrap_or_default();
    let until = Instant::now() + LAST_DELIVERY;
    loop {
        waiting.retain(|qp| {
            qp.inner.try_lock_for(PATIENCE).is_some_and(|mut inner| {
                node.with_tx(|tx| node.pump(qp, &mut inner, tx));
                !inner.carried.relay.is_sent()
            })
        });
        let leaves = Relay(node).send_leaving();
        if !leaves && waiting.is_empty() || Instant::now() >= until {
            break;
        }
        std::thread::sleep(NAP);
    }
    let Some(mut rx) = node.receiver.try_lock_for(PATIENCE) else { return };
    let batch = &mut rx.batch;
    for qp in batch.take_owing() {
        if let Some(mut inner) = qp.inner.try_lock_for(PATIENCE) {
            node.pump(&qp, &mut inner, &mut batch.tx);
        }
    }
}

/// Can the keys be read within [`PATIENCE`]?
fn keys_can_be_read(node: &Node) -> bool {
    let until = Instant::now() + PATIENCE;
    while node.keys.try_read().is_none() {
        if Instant::now() >= until {
            return false;
        }
        std::thread::sleep(NAP);
    }
    true
}
