//! A queue pair's object as called by the node: its completion queues, its shared receives, its
//! events.
use super::QpObject;
use crate::async_event::AsyncEvent;
use crate::node::ports::Follower;
use crate::node::{AnyQp, CompletionQueue, Owner, SharedQueue};
use crate::objects::cq::Cq;
use crate::objects::pd::Xrcd;
use crate::objects::raw::Role;
use crate::objects::srq::Srq;
use adverb_engine::qp::NoRecv;
use adverb_engine::{Cause, Completion, CqRef, Gid, PdId, QpEvent, RecvWqe};
use adverb_steering::Frame;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Owner for QpObject {
    fn me(&self) -> Option<Arc<AnyQp>> {
        let me = self.me.upgrade()?;
        Some(me)
    }

    fn device(&self) -> &str {
        self.context.device().name()
    }

    #[inline(always)]
    fn complete(&self, to: CqRef, completion: Completion) -> Result<(), Cause> {
        match to {
            CqRef::Send => self.push(self.send_cq.as_ref(), completion),
            CqRef::Recv => self.push(self.recv_cq.as_ref(), completion),
            CqRef::XrcSrq(number) => {
                let srq: Option<Arc<Srq>> = self.context.node().registry.srq(number);
                self.push(srq.as_ref().and_then(|srq| srq.xrc_cq()), completion)
            }
        }
    }

    fn raise(&self, event: QpEvent) {
        let kind = match event {
            QpEvent::Fatal(_) => AsyncEvent::QpFatal,
            QpEvent::ReqErr(_) => AsyncEvent::QpReqErr,
            QpEvent::AccessErr(_) => AsyncEvent::QpAccessErr,
            QpEvent::CommEst => AsyncEvent::CommEst,
            QpEvent::SqDrained => AsyncEvent::SqDrained,
            QpEvent::LastWqeReached => AsyncEvent::QpLastWqeReached,
        };
        if let Some(me) = self.me.upgrade() {
            self.context.raise(kind, me);
        }
    }

    fn raise_injected(&self, event: AsyncEvent) {
        match (event, self.me.upgrade()) {
            (
                AsyncEvent::QpFatal
                | AsyncEvent::QpReqErr
                | AsyncEvent::QpAccessErr
                | AsyncEvent::CommEst
                | AsyncEvent::SqDrained
                | AsyncEvent::PathMig
                | AsyncEvent::PathMigErr
                | AsyncEvent::QpLastWqeReached,
                Some(me),
            ) => self.context.raise(event, me),
            _ => self.context.raise_of_port(event),
        }
    }

    fn queues(&self) -> [Option<Arc<dyn CompletionQueue>>; 2] {
        [&self.send_cq, &self.recv_cq].map(|cq| cq.clone().map(|cq| cq as Arc<dyn CompletionQueue>))
    }

    #[inline]
    fn shared(&self) -> Option<&SharedQueue> {
        self.srq.as_ref().map(|srq| srq.queue())
    }

    fn shared_receives(&self) -> Option<(u32, usize)> {
        let dry = || self.xrc_srq(self.dry.load(Ordering::Relaxed));
        let srq = self.srq.clone().or_else(dry)?;
        let waiting = srq.queue().lock().len();
        Some((srq.number(), waiting))
    }

    fn matches_tags(&self) -> bool {
        self.srq.as_ref().is_some_and(|srq| srq.matches_tags())
    }

    fn take_receive(&self, xrc_srqn: Option<u32>) -> Result<RecvWqe, NoRecv> {
        match xrc_srqn {
            None => self.srq.as_ref().ok_or(NoRecv::NoSuchSrq)?.pop(),
            Some(number) => {
                let taken = self.xrc_srq(number).ok_or(NoRecv::NoSuchSrq)?.pop();
                if taken.is_err() {
                    self.dry.store(number, Ordering::Relaxed);
                }
                taken
            }
        }
    }

    fn take_matching(&self, first: &[u8]) -> Result<RecvWqe, NoRecv> {
        self.srq.as_ref().ok_or(NoRecv::NoSuchSrq)?.pop_message(first)
    }

    fn xrc_pd(&self, xrc_srqn: u32) -> Option<PdId> {
        Some(self.xrc_srq(xrc_srqn)?.pd().id())
    }

    fn blocks_own(&self, number: u32, src: &Gid, src_qpn: u32) -> bool {
        // Numbers of queue pairs are unique within a host.
        self.blocks_own.load(Ordering::Relaxed)
            && src_qpn == number
            && self.context.gids().contains(src)
    }

    fn spread(&self, frame: &Frame) -> Option<Arc<AnyQp>> {
        match &self.role {
            Some(Role::Spread { over, hash, .. }) => over.choose(hash.of(frame)),
            _ => None,
        }
    }
}

impl QpObject {
    #[inline(always)]
    fn push(&self, cq: Option<&Arc<Cq>>, completion: Completion) -> Result<(), Cause> {
        cq.map_or(Ok(()), |cq| cq.push(completion, || self.context.node().now()))
    }

    /// The SRQ with this number, if it belongs to the XRC domain of the target QP (IBTA 9.7.4.1.4).
    fn xrc_srq(&self, number: u32) -> Option<Arc<Srq>> {
        let srq: Arc<Srq> = self.context.node().registry.srq(number)?;
        match (srq.xrcd(), &self.xrcd) {
            (Some(a), Some(b)) if Xrcd::same(a, b) => Some(srq),
            _ => None,
        }
    }
}
