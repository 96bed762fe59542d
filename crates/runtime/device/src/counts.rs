//! Counts of finished operations of queue pairs.
use crate::error::Error;
use crate::uses::Uses;
use adverb_engine::Counted;
use nix::errno::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Most counters of a process.
pub const MAX_COUNTERS: u32 = 1 << 16;

static LIVE: AtomicUsize = AtomicUsize::new(0);

/// The unit of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterType {
    /// Operations.
    Requests,
    /// Bytes of the operations' messages.
    Bytes,
}

/// The counts of a counter.
#[derive(Debug)]
pub(crate) struct Counts {
    counter_type: CounterType,
    pub(crate) good: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) uses: Uses,
}

impl Counts {
    /// A counter at zero.
    ///
    /// # Errors
    /// ENOMEM beyond [`MAX_COUNTERS`].
    pub(crate) fn new(counter_type: CounterType) -> Result<Arc<Self>, Error> {
        let counts = Counts {
            counter_type,
            good: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            uses: Uses::new("the completion counter"),
        };
        // The drop undoes this increment, also after a refusal.
        if LIVE.fetch_add(1, Ordering::Relaxed) >= MAX_COUNTERS as usize {
            return Err(Error::no_memory(format!("{MAX_COUNTERS} completion counters are in use")));
        }
        Ok(Arc::new(counts))
    }

    fn add(&self, counted: &Counted) {
        match (counted.good, self.counter_type) {
            (true, CounterType::Requests) => self.good.fetch_add(1, Ordering::Release),
            (true, CounterType::Bytes) => self.good.fetch_add(counted.bytes, Ordering::Release),
            (false, _) => self.failed.fetch_add(1, Ordering::Release),
        };
    }
}

impl Drop for Counts {
    fn drop(&mut self) {
        LIVE.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The counters of a queue pair, by operation. The index is the operation's bit in
/// `ibv_qp_attach_comp_cntr_op`.
#[derive(Debug, Default)]
pub(crate) struct Attached([Option<Arc<Counts>>; Attached::OPS]);

impl Attached {
    /// Number of operations.
    const OPS: usize = 6;
    /// The bits of all operations.
    pub(crate) const ALL: u32 = (1 << Self::OPS) - 1;
    /// Operations of the peer that need no packet within a host.
    const REMOTE: u32 = 1 << 3 | 1 << 5;

    /// Attaches a counter to operations; EBUSY if any of these has a counter already.
    pub(crate) fn attach(&mut self, counter: &Arc<Counts>, ops: u32) -> Result<(), Error> {
        if ops == 0 || ops & !Self::ALL != 0 {
            let errno = if ops == 0 { Errno::EINVAL } else { Errno::ENOTSUP };
            let known = Self::ALL;
            let text = format!("op_mask is {ops:#x}: at least one bit of {known:#x} is needed");
            return Err(Error::new(errno, text));
        }
        if ops & self.ops() != 0 {
            let text =
                format!("op_mask is {ops:#x}: {:#x} have a counter already", ops & self.ops());
            return Err(Error::new(Errno::EBUSY, text));
        }
        for (op, place) in self.0.iter_mut().enumerate().filter(|(op, _)| ops & 1 << op != 0) {
            debug_assert!(place.is_none(), "operation {op}");
            counter.uses.add();
            *place = Some(counter.clone());
        }
        Ok(())
    }
    /// The counted operations as bits.
    fn ops(&self) -> u32 {
        self.0.iter().enumerate().filter(|(_, c)| c.is_some()).fold(0, |ops, (op, _)| ops | 1 << op)
    }
    /// Are operations of the peer counted? Then the peer may not perform them itself in this
    /// process's memory.
    pub(crate) fn counts_remote(&self) -> bool {
        self.ops() & Self::REMOTE != 0
    }
    /// Counts finished operations.
    pub(crate) fn add(&self, counted: &[Counted]) {
        for one in counted {
            if let Some(counter) = &self.0[one.op as usize] {
                counter.add(one);
            }
        }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        for counter in self.0.iter().flatten() {
            counter.uses.remove();
        }
    }
}
