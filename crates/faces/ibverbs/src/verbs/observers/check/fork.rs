//! Forks of a checked process.
//!
//! No code here allocates or frees, because allocators have fork handlers too and may hold their
//! locks meanwhile. A fork is noted in fixed fields, and reported with the next reports of the
//! parent.
use super::report::{Stack, stack};
use super::{Check, Known};
use crate::pure::fork::is_asked_for;
use crate::verbs::observers::call::Fork as Moment;
use crate::verbs::observers::uninterrupted;
use adverb_check::{Ledger, Report, Shared};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::sync::atomic::Ordering;

/// Most places with a noted fork. A place without room is noted at its next fork.
const PLACES: usize = 16;
/// Significant bytes of a line from the kernel: the range or the flags of a mapping.
const LINE: usize = 256;

/// Forks not reported yet, one for each place in the program, oldest first.
pub(super) struct Forks([Option<(Shared, Stack)>; PLACES]);

impl Forks {
    pub const NONE: Forks = Forks([None; PLACES]);

    /// Notes a fork, unless a fork of the same place waits. Allocates nothing.
    fn note(&mut self, shared: Shared, stack: Stack) {
        let same = |(_, other): &(Shared, Stack)| other.place() == stack.place();
        if let Some(slot) = self.0.iter_mut().find(|slot| slot.as_ref().is_none_or(same)) {
            slot.get_or_insert((shared, stack));
        }
    }

    /// Tells the forks to the ledger. Answers the resulting reports, each with the stack of its
    /// fork.
    pub fn take(&mut self, ledger: &mut Ledger) -> Vec<(Report, Option<Stack>)> {
        let mut all = Vec::new();
        for (shared, stack) in self.0.iter_mut().map_while(Option::take) {
            ledger.forked(shared, stack.place());
            all.extend(ledger.reports().into_iter().map(|report| (report, Some(stack))));
        }
        all
    }
}

impl Check {
    /// Handles a moment of a fork.
    pub(super) fn fork(&self, moment: Moment) {
        match moment {
            Moment::Before => self.before_fork(),
            // SAFETY: locked before the fork, by this thread.
            Moment::Parent => unsafe { self.unlock() },
            Moment::Child => self.after_in_child(),
        }
    }

    fn before_fork(&self) {
        self.posting.iter().for_each(|lock| core::mem::forget(lock.lock()));
        core::mem::forget(self.inside.lock());
        let mut known = self.known.lock();
        // A program that asked for fork protection takes care of memory shared with its children.
        if !is_asked_for() {
            let Known { ledger, forks, .. } = &mut *known;
            let mut shared = Shared::default();
            if let Some(ledger) = ledger {
                for_each_copied(|start, end| ledger.share(&mut shared, start, end));
            }
            if shared.any() {
                forks.note(shared, stack());
            }
        }
        core::mem::forget(known);
    }

    fn after_in_child(&self) {
        // SAFETY: locked before the fork by this thread, which is the only thread here.
        unsafe {
            // The parent's ledger is not the child's. The ledger is overwritten without a drop,
            // because its destructors may need locks of the parent's other threads.
            self.known.data_ptr().write(Known::NOTHING);
            self.unlock();
        }
        uninterrupted::forked();
        self.told.store(0, Ordering::Relaxed);
        // The child has only this thread.
        self.watches.store(false, Ordering::Relaxed);
        // SAFETY: only reads a number.
        self.process.store(unsafe { libc::getpid() }, Ordering::Relaxed);
    }

    /// # Safety
    /// This thread has locked all these locks.
    unsafe fn unlock(&self) {
        // SAFETY: the caller's promise.
        unsafe {
            self.known.force_unlock();
            self.posting.iter().for_each(|lock| lock.force_unlock());
            self.inside.force_unlock();
        }
    }
}

/// Calls `each` with the mappings that a child gets as copies on write, in address order.
fn for_each_copied(mut each: impl FnMut(u64, u64)) {
    let Ok(file) = File::open("/proc/self/smaps") else { return };
    let mut range = None;
    for_each_line(file, |line| {
        if let Some(flags) = line.strip_prefix("VmFlags:") {
            // The mapping is neither shared nor withheld from children.
            let copied = !flags.split_whitespace().any(|flag| flag == "sh" || flag == "dc");
            if let Some((start, end)) = range.take().filter(|_| copied) {
                each(start, end);
            }
        } else if let Some(found) = range_of(line) {
            range = Some(found);
        }
    });
}

fn range_of(line: &str) -> Option<(u64, u64)> {
    let (start, end) = line.split_once(' ')?.0.split_once('-')?;
    Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
}

/// Calls `each` with the lines of a file: the first [`LINE`] bytes of each line, as far as they are
/// text. The buffers are small, because a forking thread may have a small stack.
fn for_each_line(mut file: impl Read, mut each: impl FnMut(&str)) {
    let (mut read, mut line, mut len) = ([0_u8; 1024], [0_u8; LINE], 0);
    loop {
        let n = match file.read(&mut read) {
            Ok(0) => return,
            Ok(n) => n,
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            Err(_) => return,
        };
        for byte in &read[..n] {
            if *byte == b'\n' {
                each(line[..len].utf8_chunks().next().map_or("", |text| text.valid()));
                len = 0;
            } else if let Some(place) = line.get_mut(len) {
                *place = *byte;
                len += 1;
            }
        }
    }
}
