//! What queue pairs count as their operations end.
use crate::error::Error;
use crate::uses::Uses;
use adverb_engine::Counted;
use nix::errno::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Counters of a process at most.
pub const MAX_COUNTERS: u32 = 1 << 16;

static LIVE: AtomicUsize = AtomicUsize::new(0);

/// What a counter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterType {
    /// Operations.
    Requests,
    /// Bytes of their messages.
    Bytes,
}

/// The counts of one counter.
#[derive(Debug)]
pub(crate) struct Counts {
    counter_type: CounterType,
    pub(crate) good: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) uses: Uses,
}

impl Counts {
    /// At zero.
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
        // Its drop takes the place back, also where there was none.
        if LIVE.fetch_add(1, Ordering::Relaxed) >= MAX_COUNTERS as usize {
            return Err(Error::new(Errno::ENOMEM, format!("{MAX_COUNTERS} completion counters are in use")));
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

/// The counters of a queue pair, by operation; the number of one is its bit in
/// `ibv_qp_attach_comp_cntr_op`.
#[derive(Debug, Default)]
pub(crate) struct Attached([Option<Arc<Counts>>; Attached::OPS]);

impl Attached {
    /// Operations there are.
    const OPS: usize = 6;
    /// Their bits.
    pub(crate) const ALL: u32 = (1 << Self::OPS) - 1;
    /// Those of the peer's that need no packet on one host otherwise.
    const REMOTE: u32 = 1 << 3 | 1 << 5;

    /// Attaches a counter to operations; EBUSY if one of them has one.
    pub(crate) fn attach(&mut self, counter: &Arc<Counts>, ops: u32) -> Result<(), Error> {
        if ops == 0 || ops & !Self::ALL != 0 {
            let errno = if ops == 0 { Errno::EINVAL } else { Errno::ENOTSUP };
            let known = Self::ALL;
            return Err(Error::new(
                errno,
                format!("op_mask is {ops:#x}: at least one bit of {known:#x} is needed"),
            ));
        }
        if ops & self.ops() != 0 {
            let text = format!("op_mask is {ops:#x}: {:#x} have a counter already", ops & self.ops());
            return Err(Error::new(Errno::EBUSY, text));
        }
        for (op, place) in self.0.iter_mut().enumerate().filter(|(op, _)| ops & 1 << op != 0) {
            debug_assert!(place.is_none(), "operation {op}");
            counter.uses.add();
            *place = Some(counter.clone());
        }
        Ok(())
    }
    /// The operations that are counted, as bits.
    fn ops(&self) -> u32 {
        self.0.iter().enumerate().filter(|(_, c)| c.is_some()).fold(0, |ops, (op, _)| ops | 1 << op)
    }
    /// Are operations of the peer's counted? Then it may not perform them by itself.
    pub(crate) fn counts_remote(&self) -> bool {
        self.ops() & Self::REMOTE != 0
    }
    /// Counts what has ended.
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
