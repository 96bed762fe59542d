//! Changes of state, and the end of a queue pair.
use super::Qp;
use crate::error::Error;
use crate::faults::Call;
use crate::host::Peer;
use crate::interfaces::ip_of;
use crate::node::carriers::DisconnectReason;
use crate::node::carriers::ring::{self, Handshake, Rings};
use crate::node::{QpInner, scope_of};
use crate::objects::cuts;
use crate::objects::raw::Role;
use adverb_engine::{AddressVector, AttrMask, QpAttr, QpState, QpType};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Time for a peer to fetch payloads before they are sent again as bytes.
const MOMENT: Duration = Duration::from_millis(10);

impl Qp {
    /// Changes attributes and state.
    ///
    /// # Errors
    /// EINVAL naming the attribute and the rule; EADDRINUSE and the like if the local address
    /// cannot be opened. Nothing was changed then.
    pub fn modify(&self, attr: &QpAttr, mask: AttrMask) -> Result<(), Error> {
        let node = self.own.context.node();
        node.check_alive()?;
        node.fault_call(Call::ModifyQp)?;
        let ends =
            mask.contains(AttrMask::STATE) && matches!(attr.state, QpState::Err | QpState::Reset);
        if !ends {
            self.own.context.check_device()?;
        }
        if matches!(self.own.role, Some(Role::Spread { .. })) {
            let text = "a queue pair that spreads frames over work queues has no state";
            return Err(Error::unsupported(text));
        }
        let nic = self.own.context.nic();
        let attr = &cuts::narrow(attr, mask, nic);
        // Open the local address before packets can arrive there.
        if mask.contains(AttrMask::AV) {
            self.open_addresses(&attr.av).inspect_err(|error| log::error!("{error}"))?;
        }
        if self.qp_type() == QpType::Ud
            && mask.contains(AttrMask::STATE)
            && attr.state == QpState::Init
        {
            self.own.context.open_all()?;
        }
        let peer = self.choose_path(attr, mask)?;
        if peer.is_none() && self.qp_type() != QpType::Ud && mask.contains(AttrMask::DEST_QPN) {
            node.look_for_loopback_peer(&attr.av.sgid, &attr.av.dgid, attr.dest_qpn);
        }
        if ends {
            self.take_arrived();
            self.part_in_peace();
        }
        let limits = self.own.context.limits_at(&attr.av);
        let result = node.with_tx(|tx| {
            let mut inner = self.inner.lock();
            if let Some(nic) = nic.filter(|_| mask.contains(AttrMask::STATE)) {
                nic.check_change(inner.engine.state(), attr.state)?;
            }
            inner.engine.modify(attr, mask, &limits, &mut tx.effects)?;
            if mask.contains(AttrMask::STATE) && attr.state == QpState::Reset {
                self.purge();
                // Packets of the old connection that still wait do not leave in the new connection.
                node.disconnect(&mut inner, DisconnectReason::Reset);
                inner.rendezvous.clear();
            }
            if let Some(peer) = peer {
                let QpInner { engine, carried, .. } = &mut *inner;
                carried.ring.meet(engine, peer);
            }
            ring::publish(node, self, &mut inner);
            node.pump(self, &mut inner, tx);
            Ok(())
        });
        self.settle(attr, mask);
        result
    }

    /// Opens the local address, and the peer's address if this machine has it.
    fn open_addresses(&self, av: &AddressVector) -> Result<(), Error> {
        let node = self.own.context.node();
        let AddressVector { sgid, dgid, scope_id, .. } = *av;
        node.addresses.open(node, ip_of(&sgid), scope_of(&sgid, scope_id))?;
        if self.qp_type() == QpType::Ud {
            return Ok(());
        }
        node.addresses.hear(node, ip_of(&dgid), scope_of(&dgid, scope_id))
    }

    /// The peer's process, if the queue pair is being connected and needs no network for this peer.
    ///
    /// # Errors
    /// EPERM if no connection to the peer's process is possible because a user has changed.
    fn choose_path(&self, attr: &QpAttr, mask: AttrMask) -> Result<Option<Arc<Peer>>, Error> {
        let connects = mask.contains(AttrMask::STATE | AttrMask::AV | AttrMask::DEST_QPN)
            && attr.state == QpState::Rtr
            && self.qp_type().is_reliable();
        if !connects {
            return Ok(None);
        }
        let node = self.own.context.node();
        let peer = Handshake(node).peer_of(ip_of(&attr.av.dgid), attr.dest_qpn)?;
        if let Some(peer) = &peer {
            peer.connect(self.number());
        }
        Ok(peer)
    }

    /// Before an end: takes all records from the rings. They were sent to a living queue pair; a
    /// NIC would have received and reported them by now.
    fn take_arrived(&self) {
        if let Some(rings) = Rings::of(self.own.context.node()) {
            rings.take_arrived();
        }
    }

    /// Before an end: sends the last packets. A waiting ACK would be lost with the state, and the
    /// peer's request would fail although it was served. A payload that the peer still has to fetch
    /// would be lost, although a network would have carried it.
    fn part_in_peace(&self) {
        let node = self.own.context.node();
        let peer = node.with_tx(|tx| {
            let mut inner = self.inner.lock();
            node.pump(self, &mut inner, tx);
            inner.carried.ring.fetching_peer()
        });
        if let Some(peer) = peer.filter(|peer| !crate::host::let_fetch(peer, self.number(), MOMENT))
        {
            // Payloads that the peer has not fetched by then are sent again as bytes.
            if Rings::of(node).is_some_and(|rings| !rings.send_as_bytes(self)) {
                crate::host::let_fetch(&peer, self.number(), Duration::MAX);
            }
        }
    }

    /// After an end, or a change of rights: waits until no peer uses the old permissions any more.
    fn settle(&self, attr: &QpAttr, mask: AttrMask) {
        let state = mask.contains(AttrMask::STATE).then_some(attr.state);
        let ends = matches!(state, Some(QpState::Err | QpState::Reset));
        // No peer uses a queue pair that has just begun to be connected.
        let begins = matches!(state, Some(QpState::Init | QpState::Rtr));
        if ends || mask.contains(AttrMask::ACCESS_FLAGS) && !begins {
            ring::settle(self.own.context.node(), self);
        }
    }

    fn purge(&self) {
        for cq in [&self.own.send_cq, &self.own.recv_cq].into_iter().flatten() {
            cq.purge(self.number());
        }
    }

    /// Ends the queue pair (or a handle on an XRC target). Unfinished requests are forgotten, and
    /// their completions are removed from the CQs. Waits until the asynchronous events of the queue
    /// pair were acknowledged.
    ///
    /// # Errors
    /// EINVAL if the queue pair was destroyed already.
    pub fn destroy(&self) -> Result<(), Error> {
        self.end(|| self.purge())
    }

    /// As [`Qp::destroy`], but completions stay in the CQs, to be polled (DEF-5). By then the
    /// number may belong to another queue pair.
    ///
    /// # Errors
    /// EINVAL if the queue pair was destroyed already.
    pub fn retire(&self) -> Result<(), Error> {
        self.end(|| ())
    }

    fn end(&self, clean: impl FnOnce()) -> Result<(), Error> {
        let node = self.own.context.node();
        if node.is_stale() {
            return Ok(());
        }
        match self
            .own
            .handles
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1))
        {
            Ok(1) => {}
            Ok(_) => return Ok(()),
            Err(_) => return Err(Error::invalid("qp", "the queue pair was destroyed already")),
        }
        self.detach_all();
        self.take_arrived();
        self.part_in_peace();
        node.remove_qp(self.number());
        node.with_tx(|tx| {
            let mut inner = self.inner.lock();
            node.pump(self, &mut inner, tx);
            log::debug!("queue pair {:#08x} ends: {:?}", self.number(), inner.engine.counters());
            node.counters.keep(&inner, self.own.context.device().name());
            let reset = QpAttr { state: QpState::Reset, ..QpAttr::default() };
            // Any state may go to RESET.
            let _ = inner.engine.modify(
                &reset,
                AttrMask::STATE,
                self.own.context.limits(),
                &mut tx.effects,
            );
            tx.effects.completions.clear();
            tx.effects.events.clear();
            tx.effects.counted.clear();
            tx.effects.rendezvous.clear();
            inner.rendezvous.clear();
            inner.attached = None;
            ring::publish(node, self, &mut inner);
            node.disconnect(&mut inner, DisconnectReason::Destroyed);
        });
        ring::settle(node, self);
        clean();
        node.keys.write().release_qp(self.number());
        self.own.context.forget(self);
        self.own.async_acks.wait_all(|| format!("queue pair {:#08x}", self.number()));
        self.each_use(|uses| uses.remove());
        Ok(())
    }
}
