//! Receive side scaling: work queues, tables of work queues, and queue pairs that spread frames
//! over a table by a hash.
use crate::error::Error;
use crate::node::AnyQp;
use crate::objects::context::Context;
use crate::objects::cq::Cq;
use crate::objects::pd::Pd;
use crate::objects::qp::{Qp, QpInit};
use crate::objects::raw::port::Port;
use crate::objects::raw::role::{Role, Spread};
use crate::ranks;
use crate::uses::Uses;
use adverb_engine::{AttrMask, QpAttr, QpCap, QpState, RecvWr};
use adverb_steering::Hash;
use adverb_sync::Ranked;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Most queues of a table.
pub const MAX_TABLE: usize = 1 << 12;
/// Most tables of a process.
pub const MAX_TABLES: u32 = 1 << 16;

static TABLES: AtomicUsize = AtomicUsize::new(0);

/// States of a work queue; discriminants of `ibv_wq_state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs)]
pub enum WqState {
    Reset = 0,
    Rdy = 1,
    Err = 2,
}

impl WqState {
    /// From the verbs value 0..=2.
    #[must_use]
    pub fn from_code(code: u32) -> Option<WqState> {
        [WqState::Reset, WqState::Rdy, WqState::Err].into_iter().find(|state| *state as u32 == code)
    }
}

/// A work queue: receives, and the CQ for their completions.
#[derive(Debug)]
pub struct Wq {
    /// The receiving half of a queue pair. RESET of the work queue is INIT of the queue pair, so
    /// that receives can be posted before the start.
    qp: Arc<Qp>,
    state: Ranked<WqState, ranks::WorkQueue>,
    uses: Uses,
}

impl Wq {
    /// Makes a work queue in RESET.
    ///
    /// # Errors
    /// EINVAL naming the bad argument, ENOMEM when all numbers are in use.
    pub fn new(
        context: &Arc<Context>,
        pd: &Arc<Pd>,
        cq: &Arc<Cq>,
        max_wr: u32,
        max_sge: u32,
    ) -> Result<Arc<Wq>, Error> {
        let cap = QpCap { max_recv_wr: max_wr, max_recv_sge: max_sge, ..QpCap::default() };
        let init = QpInit::of_frames(cap, Some(cq.clone()));
        let qp = Qp::with_role(context, Some(pd), &init, Some(Role::Queue))?;
        let wq = Wq { qp, state: Ranked::new(WqState::Reset), uses: Uses::new("the work queue") };
        wq.step(QpState::Init)?;
        Ok(Arc::new(wq))
    }
    /// The number.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.qp.number()
    }
    /// The state.
    #[must_use]
    pub fn state(&self) -> WqState {
        *self.state.lock()
    }

    /// Queues a receive.
    ///
    /// # Errors
    /// ENOMEM when the queue is full, EINVAL for a bad request. The receive is not queued then.
    pub fn post_recv(&self, wr: &RecvWr<'_>) -> Result<(), Error> {
        self.qp.post_recv(wr)
    }

    /// Changes the state: to RDY from RESET; to RESET and ERR from every state. ERR flushes.
    ///
    /// # Errors
    /// EINVAL if the state is not `claimed`, or does not allow the change.
    pub fn modify(&self, claimed: Option<WqState>, to: Option<WqState>) -> Result<(), Error> {
        self.qp.context().check_usable()?;
        let mut state = self.state.lock();
        if let Some(claimed) = claimed.filter(|claimed| *claimed != *state) {
            let what = format!("curr_wq_state is {claimed:?}");
            return Err(Error::invalid(what, format!("it is {:?}", *state)));
        }
        let Some(to) = to else { return Ok(()) };
        match (*state, to) {
            (WqState::Err, WqState::Rdy) => {
                let rule = "a work queue in ERR goes to RESET first";
                return Err(Error::invalid("wq_state is Rdy", rule));
            }
            (WqState::Reset, WqState::Rdy) => self.step(QpState::Rtr)?,
            (_, WqState::Err) => self.step(QpState::Err)?,
            (_, WqState::Reset) => {
                self.step(QpState::Reset)?;
                self.step(QpState::Init)?;
            }
            (WqState::Rdy, WqState::Rdy) => {}
        }
        *state = to;
        Ok(())
    }

    fn step(&self, state: QpState) -> Result<(), Error> {
        let port = if state == QpState::Init { AttrMask::PORT } else { AttrMask::empty() };
        let attr = QpAttr { state, port_num: crate::objects::device::PORT, ..QpAttr::default() };
        self.qp.modify(&attr, AttrMask::STATE | port)
    }

    /// Ends the work queue.
    ///
    /// # Errors
    /// EBUSY while tables contain the work queue, EINVAL if the work queue was destroyed already.
    pub fn destroy(&self) -> Result<(), Error> {
        if self.qp.context().node().is_stale() {
            return Ok(());
        }
        self.uses.check_unused()?;
        self.qp.destroy()
    }
}

/// A table of work queues. The number of queues is a power of two.
#[derive(Debug)]
pub struct IndTable {
    context: Arc<Context>,
    queues: Vec<Arc<Wq>>,
    uses: Uses,
}

impl IndTable {
    /// Makes a table.
    ///
    /// # Errors
    /// EINVAL: not a power of two, or more than [`MAX_TABLE`]. ENOMEM beyond [`MAX_TABLES`].
    pub fn new(context: &Arc<Context>, queues: Vec<Arc<Wq>>) -> Result<Arc<IndTable>, Error> {
        context.check_usable()?;
        if !queues.len().is_power_of_two() || queues.len() > MAX_TABLE {
            let rule = format!("a power of two, {MAX_TABLE} at most, is needed");
            let what = format!("the table has {} work queues", queues.len());
            return Err(Error::invalid(what, rule));
        }
        queues.iter().for_each(|wq| wq.uses.add());
        let table =
            IndTable { context: context.clone(), queues, uses: Uses::new("the indirection table") };
        // The drop undoes this increment, also after a refusal.
        if TABLES.fetch_add(1, Ordering::Relaxed) >= MAX_TABLES as usize {
            return Err(Error::no_memory(format!("{MAX_TABLES} indirection tables are in use")));
        }
        Ok(Arc::new(table))
    }

    /// Ends the table.
    ///
    /// # Errors
    /// EBUSY while queue pairs spread over the table.
    pub fn destroy(&self) -> Result<(), Error> {
        if self.context.node().is_stale() {
            return Ok(());
        }
        self.uses.check_unused()
    }
}

impl Spread for IndTable {
    fn choose(&self, hash: u32) -> Option<Arc<AnyQp>> {
        let qp: Arc<Qp> = self.queues[hash as usize & (self.queues.len() - 1)].qp.clone();
        Some(qp)
    }
    fn uses(&self) -> &Uses {
        &self.uses
    }
}

impl Drop for IndTable {
    fn drop(&mut self) {
        self.queues.iter().for_each(|wq| wq.uses.remove());
        TABLES.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Qp {
    /// Makes a queue pair that spreads frames of its flows over the work queues of a table. The
    /// queue pair sends nothing and has no receives and no state of its own.
    ///
    /// # Errors
    /// As of any raw packet queue pair.
    pub fn spreading(
        context: &Arc<Context>,
        pd: &Arc<Pd>,
        table: &Arc<IndTable>,
        hash: Hash,
    ) -> Result<Arc<Qp>, Error> {
        context.check_usable()?;
        let init = QpInit::of_frames(QpCap::default(), None);
        let over: Arc<IndTable> = table.clone();
        let role = Role::Spread { port: Port::of(context)?, over, hash };
        Qp::with_role(context, Some(pd), &init, Some(role))
    }
}
