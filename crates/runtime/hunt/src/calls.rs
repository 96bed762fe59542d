//! The calls of the program, as the faces tell of them.
use crate::process::{Hunt, hunt};
use crate::queue::{HuntedQueue, Visibility, Why, of};
use adverb_choice::{Call, Choice, mix};
use adverb_device::engine::QpType;
use adverb_device::{CompChannel, Cq, Errno, Qp, own_id};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The rest of a message comes this long after its last line.
const REST: Duration = Duration::from_millis(2);
/// This many calls of a process return EINTR.
const INTERRUPTS: u64 = 8;
/// How long a call waits for a signal.
const SIGNAL: Duration = Duration::from_millis(400);

/// The choice at a call, for the time after the call.
#[derive(Clone, Copy, Debug)]
pub struct Chosen {
    hunt: &'static Hunt,
    choice: Option<Choice>,
    /// The messages of this post are lost.
    loses: bool,
}

impl Chosen {
    /// The program is about to make a call at `address` on an object. Makes the choice, and waits
    /// if the choice is a wait before the call.
    fn before(hunt: &'static Hunt, (call, address, object): (Call, usize, u64)) -> Chosen {
        let choice = hunt.at(call, address, object);
        if choice == Some(Choice::Before) {
            hunt.wait();
        }
        Chosen { hunt, choice, loses: false }
    }

    /// The call has returned. Waits if the choice is a wait after the call, and answers whether it
    /// waited.
    pub fn after(&self) -> bool {
        let waits = self.choice == Some(Choice::After);
        if waits {
            self.hunt.wait();
        }
        waits
    }
}

/// Does a schedule decide when completions of this queue come?
#[must_use]
pub fn is_hunted(cq: &Cq) -> bool {
    of(cq).is_some()
}

/// The program is about to make a call at `address` that concerns the process alone. The caller
/// ends the call with [`Chosen::after`].
#[must_use]
pub fn calling(call: Call, address: usize) -> Option<Chosen> {
    Some(Chosen::before(hunt()?, (call, address, 1)))
}

/// The choice at a call of the program at `address` that concerns the process alone. The choice is
/// no wait.
#[must_use]
pub fn choice(call: Call, address: usize) -> Option<Choice> {
    hunt()?.at(call, address, 1)
}

/// As [`calling`], for a call that concerns this queue.
#[must_use]
pub fn calling_on(cq: &Cq, call: Call, address: usize) -> Option<Chosen> {
    Some(Chosen::before(of(cq)?.hunt, (call, address, cq.number().into())))
}

/// The queue is about to be armed at `address`. The caller passes the answer to [`armed`].
#[must_use]
pub fn arming(cq: &Arc<Cq>, address: usize) -> Option<Chosen> {
    let queue = of(cq)?;
    let chosen = calling_on(cq, Call::Arm, address)?;
    if chosen.choice == Some(Choice::Before) {
        queue.let_go(cq, Why::Now);
    }
    Some(chosen)
}

/// The queue was armed.
pub fn armed(cq: &Arc<Cq>, chosen: &Chosen) {
    let Some(queue) = of(cq) else { return };
    if chosen.after() {
        queue.let_go(cq, Why::Now);
    } else {
        queue.note_arm();
    }
}

/// A poll at `address` found `found` completions.
pub fn polled(cq: &Cq, address: usize, found: usize) {
    let Some(queue) = of(cq) else { return };
    if found == 0 {
        queue.hunt.pollers.lock().insert(own_id(), Instant::now());
    }
    if !queue.note_poll(found) {
        return;
    }
    match queue.hunt.at(Call::Poll, address, cq.number().into()) {
        Some(Choice::After) => queue.hunt.wait(),
        Some(Choice::Hold) => queue.holds(Visibility::Together),
        Some(Choice::Drip) => queue.holds(Visibility::OneByOne),
        _ => {}
    }
}

/// A poll at `address` found a completion with undefined fields: a failed completion
/// ([`Call::Error`]), or a message without immediate data ([`Call::Message`]). Answers the value
/// for these fields.
#[must_use]
pub fn garbage(cq: &Cq, call: Call, address: usize) -> Option<u64> {
    let hunt = of(cq)?.hunt;
    let choice = hunt.at(call, address, cq.number().into())?;
    (choice == Choice::Garbage).then(|| mix(hunt.seed() ^ hunt.beats.load(Ordering::Relaxed)))
}

/// The program is about to get an event at `address`. The caller ends the call with
/// [`Chosen::after`].
#[must_use]
pub fn getting(channel: &CompChannel, address: usize) -> Option<Chosen> {
    match channel.first_queue() {
        Some(cq) if is_hunted(&cq) => calling_on(&cq, Call::Event, address),
        _ => Some(Chosen::before(hunt()?, (Call::Event, address, 0))),
    }
}

/// Does the call for an event return EINTR? The call waits for a signal of the program, and returns
/// EINTR after a handler without SA_RESTART has run in this thread. Only a call that would sleep
/// waits.
#[must_use]
pub fn interrupts(channel: &CompChannel, chosen: &Chosen) -> bool {
    chosen.choice == Some(Choice::Interrupt)
        && channel.would_sleep()
        && adverb_os::signals_interrupt()
        && chosen.hunt.interrupts.fetch_add(1, Ordering::Relaxed) < INTERRUPTS
        && adverb_os::await_signal(SIGNAL)
}

/// The program is about to read an event of a connection at `address`. With `true` the caller calls
/// [`read_connection_event`] after the read.
#[must_use]
pub fn read_connection_event_at(address: usize) -> bool {
    // The process may have no queue yet, and its exchanges must be told.
    hunt().iter().for_each(|hunt| hunt.see_to_thread());
    calling(Call::Connection, address).is_some_and(|chosen| chosen.choice == Some(Choice::After))
}

/// Waits until all packets on their way have come.
pub fn read_connection_event() {
    if let Some(hunt) = hunt() {
        hunt.wait();
    }
}

/// The program is about to post at `address`. The caller passes the answer to [`posted`].
///
/// # Errors
/// ENOMEM: the post is refused and must not happen.
pub fn posting(qp: &Qp, address: usize) -> Result<Option<Chosen>, Errno> {
    let Some(cq) = qp.send_cq() else { return Ok(None) };
    let Some(queue) = of(cq) else { return Ok(None) };
    let hunt = queue.hunt;
    let choice = hunt.at(Call::Post, address, cq.number().into());
    match choice {
        Some(Choice::Full) => {
            hunt.sends.lock().ledger(qp.number()).strict = true;
            // So that the send queue may fill.
            queue.holds_more(Visibility::Shortly);
            if hunt.sends.lock().refused.again(address) {
                return Err(Errno::ENOMEM);
            }
        }
        // A datagram's queue pair has no connection that would keep late messages.
        _ if matches!(qp.qp_type(), QpType::Ud | QpType::RawPacket) => {}
        Some(Choice::Late) => keep_requests(hunt, qp, None),
        Some(Choice::TailFirst) => keep_requests(hunt, qp, Some(REST)),
        Some(Choice::ReadLate) => {
            queue.holds_more(Visibility::Together);
            queue.withheld.lock().reads.begin(qp.number());
        }
        _ => {}
    }
    let also = |call| hunt.at(call, address, cq.number().into());
    let is_shared = qp.recv_cq().is_some_and(|other| Arc::ptr_eq(cq, other));
    if is_shared && also(Call::Shared) == Some(Choice::ReceiveFirst) {
        queue.holds_more(Visibility::ReceiveFirst);
    }
    let is_unreliable = matches!(qp.qp_type(), QpType::Uc | QpType::Ud);
    let loses = is_unreliable && also(Call::Unreliable) == Some(Choice::Lose);
    if loses {
        qp.lose(true);
    }
    Ok(Some(Chosen { hunt, choice, loses }))
}

/// The queue pair carries out its requests late from now on: after this time, or when the program
/// sleeps.
fn keep_requests(hunt: &'static Hunt, qp: &Qp, at_latest: Option<Duration>) {
    let Some(longest) = hunt.next_hold() else { return };
    if qp.keep_requests() {
        hunt.add_late(qp.number(), at_latest.unwrap_or(longest), at_latest.is_none());
    }
}

/// A post at `address` is refused because the send queue is full, before the post reaches the queue
/// pair.
pub fn note_refused(address: usize) {
    if let Some(hunt) = hunt() {
        hunt.sends.lock().refused.note(address);
    }
}

/// The program has posted at `address` with this result.
pub fn posted(qp: &Qp, address: usize, chosen: &Chosen, result: i32) {
    if chosen.choice == Some(Choice::TailFirst) {
        qp.place_tail();
    }
    if chosen.loses {
        qp.lose(false);
    }
    if result == Errno::ENOMEM as i32 {
        chosen.hunt.sends.lock().refused.note(address);
    }
    if result == 0 {
        chosen.hunt.beat();
    }
    chosen.after();
}

/// Posts at `address`, between [`posting`] and [`posted`].
pub fn post(qp: &Qp, address: usize, post: impl FnOnce() -> i32) -> i32 {
    let chosen = match posting(qp, address) {
        Ok(chosen) => chosen,
        Err(e) => return e as i32,
    };
    let result = post();
    if let Some(chosen) = chosen {
        posted(qp, address, &chosen, result);
    }
    result
}

/// The program is about to move the queue pair to the error state at `address`.
pub fn failing(qp: &Qp, address: usize) {
    let queues = || [qp.recv_cq(), qp.send_cq()].into_iter().flatten();
    let Some(first) = queues().next() else { return };
    let at = |h: &HuntedQueue| h.hunt.at(Call::Modify, address, first.number().into());
    if of(first).and_then(at) == Some(Choice::Late) {
        queues().filter_map(|cq| of(cq)).for_each(|h| h.holds_more(Visibility::Together));
    }
}
