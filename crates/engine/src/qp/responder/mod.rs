//! The responder.
use super::recv_queue::RecvQueue;
use super::{Counters, Env, QpConfig, QpCtx, RecvSource, Verdict};
use crate::attr::QpAttr;
use crate::cause::Cause;
use crate::effects::Effects;
use crate::keys::KeyTable;
use crate::memory::{Memory, MemoryFault};
use crate::packet::{Packet, Transmit};
use crate::time::Time;
use crate::wr::{PostError, RecvWr};
use alloc::sync::Arc;

#[derive(Debug)]
pub(crate) struct Responder {
    pub(crate) rq: RecvQueue,
}

impl Responder {
    pub(crate) fn new(config: &QpConfig) -> Self {
        Responder { rq: RecvQueue::new(config.pd, config.cap.max_recv_wr, config.cap.max_recv_sge) }
    }
    pub(crate) fn reset(&mut self) {}
    pub(crate) fn start(&mut self, _attr: &QpAttr) {}
    pub(crate) fn update(&mut self, _attr: &QpAttr) {}
    pub(crate) fn post_recv(&mut self, _config: &QpConfig, wr: &RecvWr<'_>) -> Result<(), PostError> {
        self.rq.post(wr)
    }
    pub(crate) fn handle_request<M: Memory + ?Sized, S: RecvSource + ?Sized>(
        &mut self,
        _ctx: &QpCtx<'_>,
        _env: &mut Env<'_, M, S>,
        _packet: &Packet<'_>,
        _counters: &mut Counters,
    ) -> Verdict {
        Verdict::Ok
    }
    pub(crate) fn poll_response<'a, M: Memory + ?Sized>(
        &'a mut self,
        _ctx: &QpCtx<'a>,
        _now: Time,
        _keys: &KeyTable,
        _memory: &M,
        _effects: &mut Effects,
    ) -> Option<Transmit<'a>> {
        None
    }
    pub(crate) fn take_fatal(&mut self) -> Option<Verdict> {
        None
    }
    pub(crate) fn transmit_failed(&mut self, _ctx: &QpCtx<'_>, _fault: MemoryFault, _effects: &mut Effects) -> Verdict {
        Verdict::Ok
    }
    pub(crate) fn has_output(&self) -> bool {
        false
    }
    pub(crate) fn flush(&mut self, _config: &QpConfig, _cause: &Arc<Cause>, _effects: &mut Effects) {}
}
