//! The questions of other processes that wait for a reply: see [`crate::ask`].

use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

use adverb_sync::Mutex;

use crate::message::Question;

/// The questions to this process.
#[derive(Default)]
pub(crate) struct Questions {
    /// Each with the token of its connection.
    pub(crate) kept: Mutex<Vec<(u64, Question)>>,
    pub(crate) any: AtomicBool,
    pub(crate) waker: OnceLock<Box<dyn Fn() + Send + Sync>>,
}
