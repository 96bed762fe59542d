//! The places in the program from which calls come, for [`testing::hunt`].
//!
//! [`testing::hunt`]: crate::testing::hunt()
use crate::error::{Error, Result};
use adverb_choice::Call;
use adverb_device::{CompChannel, Cq, Qp};
use adverb_hunt as hunt;
use adverb_sync::Mutex;
use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

type CallSite = &'static Location<'static>;

/// Whether a hunt has begun in this process. If not, each function here only reads this flag.
static ON: AtomicBool = AtomicBool::new(false);
/// The places by their address.
static PLACES: Mutex<BTreeMap<usize, CallSite>> = Mutex::new(BTreeMap::new());

/// Notes places from now on.
pub fn begin() {
    hunt::set_namers(name, name);
    ON.store(true, Ordering::Relaxed);
}

fn name(address: usize) -> String {
    PLACES.lock().get(&address).map_or_else(|| format!("{address:#x}"), ToString::to_string)
}

fn address_of(at: CallSite) -> usize {
    let address = std::ptr::from_ref(at).addr();
    PLACES.lock().insert(address, at);
    address
}

fn is_hunted(cq: &Cq) -> bool {
    ON.load(Ordering::Relaxed) && hunt::is_hunted(cq)
}

/// A poll has found `found` completions.
pub fn polled(cq: &Arc<Cq>, found: usize, at: CallSite) {
    if is_hunted(cq) {
        hunt::polled(cq, address_of(at), found);
    }
}

/// Runs an arm.
pub fn armed(cq: &Arc<Cq>, at: CallSite, arm: impl FnOnce() -> Result<()>) -> Result<()> {
    if !is_hunted(cq) {
        return arm();
    }
    let chosen = hunt::arming(cq, address_of(at));
    let result = arm();
    if let Some(chosen) = chosen {
        hunt::armed(cq, &chosen);
    }
    result
}

/// Runs a post to a send queue. `errno_of` gives the errno of an error, `refused` makes an error of
/// the post.
pub fn posted<E>(
    qp: &Qp,
    cq: Option<&Arc<Cq>>,
    at: CallSite,
    post: impl FnOnce() -> Result<(), E>,
    errno_of: impl Fn(&E) -> i32,
    refused: impl FnOnce(Error) -> E,
) -> Result<(), E> {
    if !cq.is_some_and(|cq| is_hunted(cq)) {
        return post();
    }
    let mut result = None;
    hunt::post(qp, address_of(at), || {
        let posted = post();
        let errno = posted.as_ref().err().map_or(0, &errno_of);
        result = Some(posted);
        errno
    });
    let depth = || qp.query().cap.max_send_wr;
    result.unwrap_or_else(|| {
        Err(refused(Error::QueueFull { queue: "the send queue", depth: depth() }))
    })
}

/// Runs a post of a receive.
pub fn received(
    cq: Option<&Arc<Cq>>,
    at: CallSite,
    post: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let hunted = cq.filter(|cq| is_hunted(cq));
    around(hunted.and_then(|cq| hunt::calling_on(cq, Call::Receive, address_of(at))), post)
}

/// Runs a call that takes an event of a channel.
pub fn event<R>(channel: &CompChannel, at: CallSite, get: impl FnOnce() -> R) -> R {
    let is_on = ON.load(Ordering::Relaxed);
    around(is_on.then(|| hunt::getting(channel, address_of(at))).flatten(), get)
}

fn around<R>(chosen: Option<hunt::Chosen>, call: impl FnOnce() -> R) -> R {
    let result = call();
    if let Some(chosen) = chosen {
        chosen.after();
    }
    result
}
