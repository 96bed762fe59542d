//! The questions that this process has not answered yet.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use adverb_sync::Mutex;

use crate::message::Question;

/// The largest number of kept questions. Further questions get no reply.
pub(crate) const KEPT: usize = 16;

/// The questions to this process.
#[derive(Default)]
pub(crate) struct Questions {
    /// Each question with the token of its connection.
    kept: Mutex<Vec<(u64, Question)>>,
    any: AtomicBool,
    /// Is called after each question.
    pub(crate) waker: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Questions {
    /// Keeps a question, if there is room.
    pub(crate) fn keep(&self, token: u64, question: Question) {
        let mut kept = self.kept.lock();
        if kept.len() < KEPT {
            kept.push((token, question));
            self.any.store(true, Relaxed);
        }
    }

    /// Removes the questions that arrived since the last call.
    pub(crate) fn take(&self) -> Vec<(u64, Question)> {
        if !self.any.load(Relaxed) {
            return Vec::new();
        }
        let mut kept = self.kept.lock();
        self.any.store(false, Relaxed);
        std::mem::take(&mut *kept)
    }
}
