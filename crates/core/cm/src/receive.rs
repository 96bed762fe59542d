//! Incoming MADs.
use crate::conn::{Conn, Pace, RemoteKey};
use crate::mad::{
    Answered, Apr, AprStatus, Drep, Dreq, Lap, MadError, MadKind, Message, Mra, Rej, Rep, Req, Rtu,
    SidrRep, SidrReq,
};
use crate::reason::RejectReason;
use crate::route::refuse;
use crate::table::Endpoint;
use crate::types::{Ending, Event, Path, Rejection, State};
use adverb_wire::Time;
use alloc::boxed::Box;

/// Codes of path MTUs.
const MTU: core::ops::RangeInclusive<u8> = 1..=5;

fn rejection(rej: &Rej) -> Box<Rejection> {
    let info_len = rej.info_len.min(rej.info.len() as u8);
    Box::new(Rejection {
        reason: rej.reason(),
        info: rej.info,
        info_len,
        private_data: rej.private_data,
    })
}

/// A rejection that did not come by a REJ.
pub(crate) fn local_rejection(reason: RejectReason) -> Box<Rejection> {
    rejection(&Rej { reason: reason.0, ..Rej::default() })
}

impl Endpoint {
    /// Handles a MAD that arrived from `path.remote` at `path.local`. A MAD that matches no
    /// connection, listener or exchange changes nothing, but may get an answer.
    ///
    /// # Errors
    /// The bytes are not a MAD of the connection manager.
    pub fn handle_mad(&mut self, now: Time, path: Path, mad: &[u8]) -> Result<(), MadError> {
        let (transaction, message) = Message::parse(mad)?;
        let known = match &message {
            Message::Req(m) => self.on_req(now, path, transaction, m),
            Message::Mra(m) => self.on_mra(now, path, transaction, m),
            Message::Rej(m) => self.on_rej(now, path, transaction, m),
            Message::Rep(m) => self.on_rep(now, path, transaction, m),
            Message::Rtu(m) => self.on_rtu(now, path, m),
            Message::Dreq(m) => self.on_dreq(now, path, transaction, m),
            Message::Drep(m) => self.on_drep(now, path, m),
            Message::SidrReq(m) => self.on_sidr_req(path, transaction, m),
            Message::SidrRep(m) => self.on_sidr_rep(path, transaction, m),
            Message::Lap(m) => self.on_lap(path, transaction, m),
            // This crate never sends a LAP, so an APR answers nothing.
            Message::Apr(_) => Some(()),
        };
        if known.is_none()
            && let Some(answer) = refuse(&message, RejectReason::INVALID_SERVICE_ID)
        {
            self.answer(path, answer.emit(transaction));
        }
        Ok(())
    }

    /// The connection with this local id, if the MAD comes from its peer.
    fn of_peer(&self, path: Path, id: u32) -> Option<&Conn> {
        self.conns.get(&id).filter(|conn| conn.path.remote == path.remote)
    }

    /// The connection with these two communication ids, if the MAD comes from its peer.
    fn between(&self, path: Path, id: u32, remote_id: u32) -> Option<&Conn> {
        self.of_peer(path, id).filter(|conn| conn.remote_id == Some(remote_id))
    }

    fn refuse_req(&mut self, path: Path, transaction: u64, req: &Req, reason: RejectReason) {
        if let Some(answer) = refuse(&req.clone().into(), reason) {
            self.answer(path, answer.emit(transaction));
        }
    }

    fn on_req(&mut self, now: Time, path: Path, transaction: u64, req: &Req) -> Option<()> {
        if let Some(mad) = self.kept_answer(&(MadKind::Req, path.remote, transaction, req.local_id))
        {
            self.answer(path, mad);
            return Some(());
        }
        let key = RemoteKey::Connection(path.remote, req.ca_guid, req.local_id);
        let same = self.by_remote.get(&key).copied();
        if let Some(id) = same
            && self.conns.get(&id).is_some_and(|conn| conn.transaction == transaction)
        {
            self.repeated_req(now, id);
            return Some(());
        }
        let Some(kind) = req.qp_kind() else {
            self.refuse_req(path, transaction, req, RejectReason::INVALID_TRANSPORT);
            return Some(());
        };
        if !MTU.contains(&req.mtu) {
            self.refuse_req(path, transaction, req, RejectReason::INVALID_MTU);
            return Some(());
        }
        let listener = self.listener_for(req.service_id, path.local)?;
        // A peer that uses the ids or the queue pair of an older connection for a new REQ has
        // forgotten the older connection.
        let qp_key = (path.remote, req.ca_guid, req.qpn);
        let older = same.or_else(|| self.by_qp.get(&qp_key).copied());
        if let Some(older) = older
            && self.forgotten_by_peer(now, older)
        {
            self.refuse_req(path, transaction, req, RejectReason::STALE_CONNECTION);
            return Some(());
        }
        if self.requests >= self.config.max_requests {
            return Some(());
        }
        let pace =
            Pace::of_peer(req.local_response_timeout, req.primary_ack_timeout, req.max_cm_retries);
        let mut conn = Conn::new(State::Idle, true, path, transaction, pace);
        conn.kind = kind;
        conn.remote_guid = req.ca_guid;
        conn.remote_id = Some(req.local_id);
        conn.remote_qpn = req.qpn;
        conn.service_id = req.service_id;
        conn.alternate = req.alternate_local_lid != 0;
        conn.arrived = now;
        let Ok(id) = self.insert(conn) else {
            self.refuse_req(path, transaction, req, RejectReason::NO_RESOURCES);
            return Some(());
        };
        self.set_state(id, State::ReqReceived);
        self.by_remote.insert(key, id);
        self.by_qp.insert(qp_key, id);
        self.event(id, Event::Request { listener, path, req: Box::new(req.clone()) });
        Some(())
    }

    /// Handles a repeated REQ: the answer is late, or was lost.
    fn repeated_req(&mut self, now: Time, id: u32) {
        let Some(conn) = self.conns.get(&id) else { return };
        match conn.state {
            State::ReqReceived if conn.is_echo(now) => {}
            State::ReqReceived => self.say_wait(id, Answered::Req),
            State::RepSent | State::MraRepReceived => self.send_again(id),
            State::Timewait => {
                let rej = Rej {
                    local_id: id,
                    remote_id: conn.remote_id.unwrap_or(0),
                    reason: RejectReason::STALE_CONNECTION.0,
                    ..Rej::default()
                };
                let (path, mad) = (conn.path, Message::from(rej).emit(conn.transaction));
                self.answer(path, mad);
            }
            // The peer has answered the REP, so it has received the REP.
            _ => {}
        }
    }

    /// Sends an MRA: the program has not decided yet.
    pub(crate) fn say_wait(&mut self, id: u32, message: Answered) {
        let Some(conn) = self.conns.get(&id) else { return };
        let mra = Mra {
            local_id: id,
            remote_id: conn.remote_id.unwrap_or(0),
            message: message as u8,
            service_timeout: self.config.service_timeout.min(31),
            ..Mra::default()
        };
        let (path, mad) = (conn.path, Message::from(mra).emit(conn.transaction));
        self.answer(path, mad);
    }

    /// Handles a REQ that reuses the ids or the queue pair of the connection `older`. If `older`
    /// was only requested, it ends at once. If `older` was established, it ends as stale. Returns
    /// whether the new REQ must be rejected.
    fn forgotten_by_peer(&mut self, now: Time, older: u32) -> bool {
        let Some(conn) = self.conns.get(&older) else { return false };
        match conn.state {
            State::ReqReceived => {
                self.event(older, Event::Rejected(local_rejection(RejectReason::TIMEOUT)));
                self.go_idle(older);
                false
            }
            State::Established | State::DreqSent => {
                self.begin_disconnect(now, older, Dreq::default());
                self.ended(now, older, Ending::Stale);
                true
            }
            // This connection is not known to be established, so there is nothing to disconnect;
            // Linux does the same. The new REQ may be a REQ that the peer gave up long ago and the
            // network delayed, and the peer may have confirmed this connection. If the peer has
            // forgotten this connection, it rejects the REP.
            State::RepSent | State::MraRepReceived => {
                self.send_again(older);
                true
            }
            // The program has to answer the DREQ still, but the next connection need not wait for
            // the program.
            State::DreqReceived => {
                self.forget_qp(older);
                true
            }
            State::RepReceived | State::Timewait => true,
            _ => false,
        }
    }

    fn on_rep(&mut self, now: Time, path: Path, transaction: u64, rep: &Rep) -> Option<()> {
        let id = rep.remote_id;
        let conn = self.of_peer(path, id)?;
        let same = conn.remote_id == Some(rep.local_id);
        match conn.state {
            State::ReqSent | State::MraReqReceived if conn.transaction == transaction => {
                self.first_rep(now, id, rep);
            }
            // An echo gets no MRA: an MRA makes the peer wait long if the RTU after it is lost.
            State::RepReceived if same && conn.is_echo(now) => {}
            State::RepReceived if same => self.say_wait(id, Answered::Rep),
            // The peer repeats the REP because it did not get the RTU or the REJ.
            State::Established if same && !conn.passive => self.send_again(id),
            State::Idle if conn.sending.is_some() => self.send_again(id),
            State::DreqSent | State::Timewait if same => {}
            _ => return None,
        }
        Some(())
    }

    fn first_rep(&mut self, now: Time, id: u32, rep: &Rep) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        conn.remote_id = Some(rep.local_id);
        conn.remote_guid = rep.ca_guid;
        conn.remote_qpn = rep.queue_pair(conn.kind);
        conn.arrived = now;
        conn.sending = None;
        let (qp_key, transaction, path) = (conn.qp_key(), conn.transaction, conn.path);
        self.set_timer(id, None);
        if let Some(&older) = self.by_qp.get(&qp_key)
            && self.forgotten_by_peer(now, older)
        {
            let reason = RejectReason::STALE_CONNECTION;
            let message = Answered::Rep as u8;
            let rej = Rej {
                local_id: id,
                remote_id: rep.local_id,
                message,
                reason: reason.0,
                ..Rej::default()
            };
            self.answer(path, Message::from(rej).emit(transaction));
            self.event(id, Event::Rejected(local_rejection(reason)));
            self.enter_timewait(now, id);
            return;
        }
        self.by_qp.insert(qp_key, id);
        self.set_state(id, State::RepReceived);
        self.event(id, Event::Reply(Box::new(rep.clone())));
    }

    fn on_rtu(&mut self, now: Time, path: Path, rtu: &Rtu) -> Option<()> {
        let id = rtu.remote_id;
        let conn = self.between(path, id, rtu.local_id)?;
        match conn.state {
            State::RepSent | State::MraRepReceived => {
                let released = conn.released;
                if let Some(conn) = self.conns.get_mut(&id) {
                    conn.sending = None;
                }
                self.set_timer(id, None);
                self.set_state(id, State::Established);
                self.event(id, Event::Established);
                if released {
                    self.begin_disconnect(now, id, Dreq::default());
                }
            }
            State::Idle if conn.sending.is_some() => self.send_again(id),
            State::Idle => return None,
            _ => {}
        }
        Some(())
    }

    fn on_mra(&mut self, now: Time, path: Path, transaction: u64, mra: &Mra) -> Option<()> {
        let id = mra.remote_id;
        let conn = self.of_peer(path, id)?;
        let next = match conn.state {
            State::ReqSent
                if mra.message == Answered::Req as u8 && conn.transaction == transaction =>
            {
                State::MraReqReceived
            }
            State::RepSent
                if mra.message == Answered::Rep as u8 && conn.remote_id == Some(mra.local_id) =>
            {
                State::MraRepReceived
            }
            _ => return Some(()),
        };
        let wait = conn.pace.after_mra(mra.service_timeout);
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.remote_id = Some(mra.local_id);
            if let Some(sending) = &mut conn.sending {
                sending.timeout = wait;
            }
        }
        self.set_state(id, next);
        self.set_timer(id, Some(now + wait));
        self.event(id, Event::Delayed(wait));
        Some(())
    }

    /// The connection that a REJ refers to.
    fn rejected_id(&self, path: Path, transaction: u64, rej: &Rej) -> Option<u32> {
        if rej.remote_id == 0 {
            // A peer that gave up before it got our communication id names itself by its GUID.
            let guid: [u8; 8] = rej.info().get(..8)?.try_into().ok()?;
            let key = RemoteKey::Connection(path.remote, u64::from_be_bytes(guid), rej.local_id);
            let gave_up = rej.reason() == RejectReason::TIMEOUT;
            return self.by_remote.get(&key).copied().filter(|_| gave_up);
        }
        let conn = self.of_peer(path, rej.remote_id)?;
        let ours = match conn.state {
            // The REJ of a REQ may come without the peer's id, but it carries the transaction id of
            // the REQ.
            State::ReqSent | State::MraReqReceived => conn.transaction == transaction,
            _ => conn.remote_id == Some(rej.local_id),
        };
        ours.then_some(rej.remote_id)
    }

    fn on_rej(&mut self, now: Time, path: Path, transaction: u64, rej: &Rej) -> Option<()> {
        let id = self.rejected_id(path, transaction, rej)?;
        match self.conns.get(&id)?.state {
            State::ReqSent
            | State::MraReqReceived
            | State::ReqReceived
            | State::RepSent
            | State::MraRepReceived => {
                self.event(id, Event::Rejected(rejection(rej)));
                if let Some(conn) = self.conns.get_mut(&id) {
                    conn.sending = None;
                }
                // Packets of the older connection of this queue pair may still be in flight.
                if rej.reason() == RejectReason::STALE_CONNECTION {
                    self.enter_timewait(now, id);
                } else {
                    self.go_idle(id);
                }
            }
            State::RepReceived | State::Established | State::DreqSent => {
                self.ended(now, id, Ending::Rejected(rejection(rej)));
            }
            _ => {}
        }
        Some(())
    }

    fn on_dreq(&mut self, now: Time, path: Path, transaction: u64, dreq: &Dreq) -> Option<()> {
        let id = dreq.remote_id;
        let conn = self.between(path, id, dreq.local_id)?;
        if conn.local_qpn != dreq.remote_qpn {
            return Some(());
        }
        let path = conn.path;
        match conn.state {
            State::RepSent | State::MraRepReceived | State::Established | State::DreqSent => {
                self.first_dreq(now, id, transaction, dreq);
            }
            // The DREP was lost.
            State::Timewait if conn.sending.is_some() => self.send_again(id),
            // The connection is over at this end, so no program has to decide.
            State::Timewait | State::Idle => {
                let drep = Drep { local_id: id, remote_id: dreq.local_id, ..Drep::default() };
                self.answer(path, Message::from(drep).emit(transaction));
            }
            // The program decides: about the DREQ, or first about the REP. The peer repeats the
            // DREQ.
            _ => {}
        }
        Some(())
    }

    /// Handles the DREQ of a connection. The program answers it, unless the program has released
    /// the id.
    fn first_dreq(&mut self, now: Time, id: u32, transaction: u64, dreq: &Dreq) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        conn.dreq_transaction = transaction;
        conn.sending = None;
        let released = conn.released;
        self.set_timer(id, None);
        self.set_state(id, State::DreqReceived);
        self.event(id, Event::Disconnected(Ending::Peer(Box::new(dreq.private_data))));
        if released {
            self.confirm_disconnect(now, id, Drep::default());
        }
    }

    fn on_drep(&mut self, now: Time, path: Path, drep: &Drep) -> Option<()> {
        let conn = self.between(path, drep.remote_id, drep.local_id)?;
        match conn.state {
            State::DreqSent => {
                self.ended(now, drep.remote_id, Ending::Confirmed(Box::new(drep.private_data)));
            }
            // The DREQs of both ends have crossed. The program knows of the end.
            State::DreqReceived => self.enter_timewait(now, drep.remote_id),
            _ => {}
        }
        Some(())
    }

    fn on_sidr_req(&mut self, path: Path, transaction: u64, req: &SidrReq) -> Option<()> {
        if let Some(mad) =
            self.kept_answer(&(MadKind::SidrReq, path.remote, transaction, req.request_id))
        {
            self.answer(path, mad);
            return Some(());
        }
        let key = RemoteKey::Datagram(path.remote, transaction, req.request_id);
        if self.by_remote.contains_key(&key) {
            return Some(());
        }
        let listener = self.listener_for(req.service_id, path.local)?;
        if self.requests >= self.config.max_requests {
            return Some(());
        }
        let mut conn = Conn::new(State::Idle, true, path, transaction, Pace::of_peer(0, 0, 0));
        conn.datagram = true;
        conn.remote_id = Some(req.request_id);
        conn.service_id = req.service_id;
        // The table is full. The sender will repeat the request.
        let Ok(id) = self.insert(conn) else { return Some(()) };
        self.set_state(id, State::SidrReqReceived);
        self.by_remote.insert(key, id);
        self.event(id, Event::SidrRequest { listener, path, req: Box::new(req.clone()) });
        Some(())
    }

    fn on_sidr_rep(&mut self, path: Path, transaction: u64, rep: &SidrRep) -> Option<()> {
        let conn = self.of_peer(path, rep.request_id)?;
        if conn.state == State::SidrReqSent && conn.transaction == transaction {
            self.event(rep.request_id, Event::SidrReply(Box::new(rep.clone())));
            self.go_idle(rep.request_id);
        }
        Some(())
    }

    fn on_lap(&mut self, path: Path, transaction: u64, lap: &Lap) -> Option<()> {
        let path = self.between(path, lap.remote_id, lap.local_id)?.path;
        let status = AprStatus::NotSupported as u8;
        let (local_id, remote_id) = (lap.remote_id, lap.local_id);
        let apr = Apr { local_id, remote_id, status, ..Apr::default() };
        self.answer(path, Message::from(apr).emit(transaction));
        Some(())
    }
}
