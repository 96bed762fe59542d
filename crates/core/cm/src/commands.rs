//! The commands of a program.
use crate::bits::MAD_LEN;
use crate::conn::{Conn, Pace};
use crate::data::Data;
use crate::error::CommandError;
use crate::farewell::refusal;
use crate::ip::gid;
use crate::mad::{Answered, Drep, Dreq, MadKind, Message, Rej, Rep, Req, Rtu, SidrReq, SidrStatus};
use crate::reason::RejectReason;
use crate::table::Endpoint;
use crate::types::{
    Accept, ConnectRequest, Event, Id, Path, QpKind, SidrAnswer, SidrRequest, State, Timing,
};
use adverb_wire::Time;

/// LID on networks without LIDs.
const PERMISSIVE_LID: u16 = 0xffff;
/// "Failover not supported" of a REP.
const FAILOVER_NOT_SUPPORTED: u8 = 1;

type Done = Result<(), CommandError>;

fn fits(field: &'static str, value: impl Into<u64>, max: u64) -> Done {
    let value = value.into();
    if value <= max { Ok(()) } else { Err(CommandError::OutOfRange { field, value, max }) }
}

fn one_family(path: Path) -> Done {
    if path.local.is_ipv4() == path.remote.is_ipv4() {
        Ok(())
    } else {
        Err(CommandError::MixedAddresses(path))
    }
}

fn timing_fits(timing: &Timing) -> Done {
    fits("local response timeout", timing.local_response, 31)?;
    fits("remote response timeout", timing.remote_response, 31)?;
    fits("CM retries", timing.max_retries, 15)?;
    fits("packet lifetime", timing.packet_lifetime, 31)
}

impl ConnectRequest {
    fn check(&self) -> Done {
        one_family(self.path)?;
        timing_fits(&self.timing)?;
        fits("queue pair number", self.qpn, 0xff_ffff)?;
        fits("PSN", self.psn, 0xff_ffff)?;
        fits("retry count", self.retry_count, 7)?;
        fits("RNR retry count", self.rnr_retry_count, 7)?;
        fits("path MTU (code)", self.mtu, 5)?;
        fits("service level", self.service_level, 15)?;
        fits("flow label", self.flow_label, 0xf_ffff)?;
        fits("local ACK timeout", self.ack_timeout(), 31)?;
        fits("vendor id", self.ece.vendor_id, 0xff_ffff)
    }

    fn ack_timeout(&self) -> u8 {
        self.ack_timeout.unwrap_or((self.timing.packet_lifetime + 1).min(31))
    }

    fn req(&self, id: u32) -> Req {
        let (transport, extended_transport) = match self.kind {
            QpKind::Rc => (0, 0),
            QpKind::Uc => (1, 0),
            QpKind::Xrc => (3, 1),
        };
        Req {
            ece_attr_mod: self.ece.attr_mod,
            local_id: id,
            ece_vendor_id: self.ece.vendor_id,
            service_id: self.service_id,
            ca_guid: self.ca_guid,
            qpn: self.qpn,
            responder_resources: self.responder_resources,
            initiator_depth: self.initiator_depth,
            remote_response_timeout: self.timing.remote_response,
            transport,
            flow_control: self.flow_control,
            psn: self.psn,
            local_response_timeout: self.timing.local_response,
            retry_count: self.retry_count,
            pkey: self.pkey,
            mtu: self.mtu,
            rnr_retry_count: self.rnr_retry_count,
            max_cm_retries: self.timing.max_retries,
            srq: self.srq,
            extended_transport,
            primary_local_lid: PERMISSIVE_LID,
            primary_remote_lid: PERMISSIVE_LID,
            primary_local_gid: gid(self.path.local),
            primary_remote_gid: gid(self.path.remote),
            primary_flow_label: self.flow_label,
            primary_traffic_class: self.traffic_class,
            primary_hop_limit: self.hop_limit,
            primary_sl: self.service_level,
            primary_subnet_local: self.hop_limit <= 1,
            primary_ack_timeout: self.ack_timeout(),
            private_data: self.private_data,
            ..Req::default()
        }
    }
}

impl Accept {
    fn check(&self) -> Done {
        fits("queue pair number", self.qpn, 0xff_ffff)?;
        fits("PSN", self.psn, 0xff_ffff)?;
        fits("RNR retry count", self.rnr_retry_count, 7)?;
        fits("target ACK delay", self.target_ack_delay, 31)?;
        fits("vendor id", self.ece.vendor_id, 0xff_ffff)
    }

    fn rep(&self, id: u32, conn: &Conn) -> Rep {
        let [_, ece_vendor_high, ece_vendor_middle, ece_vendor_low] =
            self.ece.vendor_id.to_be_bytes();
        let rep = Rep {
            ece_attr_mod: self.ece.attr_mod,
            local_id: id,
            remote_id: conn.remote_id.unwrap_or(0),
            ece_vendor_high,
            ece_vendor_middle,
            ece_vendor_low,
            psn: self.psn,
            responder_resources: self.responder_resources,
            target_ack_delay: self.target_ack_delay,
            failover: if conn.alternate { FAILOVER_NOT_SUPPORTED } else { 0 },
            rnr_retry_count: self.rnr_retry_count,
            ca_guid: self.ca_guid,
            private_data: self.private_data,
            ..Rep::default()
        };
        // An XRC target has no requester, and always has a shared receive queue.
        match conn.kind {
            QpKind::Xrc => Rep { eecn: self.qpn, srq: true, ..rep },
            QpKind::Rc | QpKind::Uc => Rep {
                qpn: self.qpn,
                initiator_depth: self.initiator_depth,
                flow_control: self.flow_control,
                srq: self.srq,
                ..rep
            },
        }
    }
}

impl Endpoint {
    fn conn(&self, id: Id) -> Result<&Conn, CommandError> {
        self.conns.get(&id.0).filter(|conn| !conn.released).ok_or(CommandError::UnknownId(id))
    }

    fn conn_in(
        &self,
        id: Id,
        command: &'static str,
        allowed: &[State],
    ) -> Result<&Conn, CommandError> {
        let conn = self.conn(id)?;
        if allowed.contains(&conn.state) {
            Ok(conn)
        } else {
            Err(CommandError::WrongState { command, state: conn.state })
        }
    }

    /// Requests a connection: sends the REQ until it is answered. The outcome is [`Event::Reply`],
    /// [`Event::Rejected`] or [`Event::Unanswered`].
    ///
    /// # Errors
    /// A value does not fit in the message, the addresses are of different families, or there are
    /// too many connections.
    pub fn connect(&mut self, now: Time, request: &ConnectRequest) -> Result<Id, CommandError> {
        request.check()?;
        let pace = Pace::of_request(&request.timing, request.ack_timeout());
        let mut conn = Conn::new(State::ReqSent, false, request.path, 0, pace);
        conn.kind = request.kind;
        conn.ca_guid = request.ca_guid;
        conn.local_qpn = request.qpn;
        conn.service_id = request.service_id;
        let id = self.insert(conn)?;
        let transaction = self.own_transaction(id);
        self.send_until_answered(now, id, Message::from(request.req(id)).emit(transaction));
        Ok(Id(id))
    }

    /// Sets the transaction id of an exchange that this end begins.
    fn own_transaction(&mut self, id: u32) -> u64 {
        let transaction = self.transaction(id);
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.transaction = transaction;
        }
        transaction
    }

    /// Accepts a request: sends the REP until it is answered. The outcome is
    /// [`Event::Established`], [`Event::Rejected`], [`Event::Unanswered`] or
    /// [`Event::Disconnected`].
    ///
    /// # Errors
    /// The id does not wait for an answer, or a value does not fit in the message.
    pub fn accept(&mut self, now: Time, id: Id, accept: &Accept) -> Done {
        accept.check()?;
        let conn = self.conn_in(id, "accept", &[State::ReqReceived])?;
        let mad = Message::from(accept.rep(id.0, conn)).emit(conn.transaction);
        if let Some(conn) = self.conns.get_mut(&id.0) {
            conn.local_qpn = accept.qpn;
            conn.ca_guid = accept.ca_guid;
        }
        self.set_state(id.0, State::RepSent);
        self.send_until_answered(now, id.0, mad);
        Ok(())
    }

    /// Rejects a request, or the reply to this end's own request. The id stays until it is
    /// released.
    ///
    /// # Errors
    /// There is nothing to reject, or the data is too long (72 bytes of information, 148 bytes of
    /// private data).
    pub fn reject(
        &mut self,
        id: Id,
        reason: RejectReason,
        info: &[u8],
        private_data: &[u8],
    ) -> Done {
        let conn = self.conn_in(id, "reject", &[State::ReqReceived, State::RepReceived])?;
        let (message, local_id) = match conn.state {
            State::ReqReceived => (Answered::Req, 0),
            _ => (Answered::Rep, id.0),
        };
        let rej = Rej {
            local_id,
            remote_id: conn.remote_id.unwrap_or(0),
            message: message as u8,
            info_len: info.len() as u8,
            reason: reason.0,
            info: Data::new(info)?,
            private_data: Data::new(private_data)?,
        };
        self.refuse(id.0, rej);
        Ok(())
    }

    /// Sends a REJ, keeps the REJ in case the peer repeats its message, and ends the connection.
    fn refuse(&mut self, id: u32, rej: Rej) {
        let Some(conn) = self.conns.get(&id) else { return };
        let key = (MadKind::Req, conn.path.remote, conn.transaction, rej.remote_id);
        let passive = conn.passive;
        let mad = Message::from(rej).emit(conn.transaction);
        self.send_and_keep(id, mad);
        if passive {
            self.keep_answer(key, mad);
        }
        self.go_idle(id);
    }

    /// Sends an MRA before the peer repeats its request. The MRA says that the program is deciding.
    /// It also carries this end's communication id, which tells the peer which process will answer.
    ///
    /// # Errors
    /// The id does not wait for an answer.
    pub fn delay(&mut self, id: Id) -> Done {
        self.conn_in(id, "delay", &[State::ReqReceived])?;
        self.say_wait(id.0, Answered::Req);
        Ok(())
    }

    /// Drops a request without an answer, as for a full backlog. The peer repeats the request after
    /// its timeout, and the repetition counts as a new request. The id is released.
    ///
    /// # Errors
    /// The id does not wait for an answer.
    pub fn drop_request(&mut self, id: Id) -> Done {
        self.conn_in(id, "drop_request", &[State::ReqReceived, State::SidrReqReceived])?;
        self.remove(id.0);
        Ok(())
    }

    /// Confirms a reply (sends the RTU). On the passive side, reports that data of the peer arrived
    /// before the RTU; [`Event::Established`] then follows as if the RTU had arrived.
    ///
    /// # Errors
    /// There is nothing to confirm.
    pub fn established(&mut self, id: Id) -> Done {
        let expected = [State::RepReceived, State::RepSent, State::MraRepReceived];
        let conn = self.conn_in(id, "established", &expected)?;
        let active = conn.state == State::RepReceived;
        let rtu = Rtu { local_id: id.0, remote_id: conn.remote_id.unwrap_or(0), ..Rtu::default() };
        let mad = Message::from(rtu).emit(conn.transaction);
        self.set_timer(id.0, None);
        self.set_state(id.0, State::Established);
        if active {
            self.send_and_keep(id.0, mad);
        } else {
            self.event(id.0, Event::Established);
        }
        Ok(())
    }

    /// Ends a connection: sends the DREQ until it is answered, or answers the DREQ of the other
    /// end. [`Event::Disconnected`] comes once, whichever end began. In time-wait this call does
    /// nothing.
    ///
    /// # Errors
    /// The connection was never established, or there are more than 220 bytes of private data (224
    /// in an answer).
    pub fn disconnect(&mut self, now: Time, id: Id, private_data: &[u8]) -> Done {
        let over = [State::Established, State::DreqSent, State::DreqReceived, State::Timewait];
        match self.conn_in(id, "disconnect", &over)?.state {
            State::Established => {
                let private_data = Data::new(private_data)?;
                self.begin_disconnect(now, id.0, Dreq { private_data, ..Dreq::default() });
            }
            State::DreqReceived => {
                let private_data = Data::new(private_data)?;
                self.confirm_disconnect(now, id.0, Drep { private_data, ..Drep::default() });
            }
            _ => {}
        }
        Ok(())
    }

    /// Releases an id in any state; no further event comes for the id. The endpoint disconnects an
    /// established connection, and answers a peer that waits for an answer, also the peer's DREQ.
    /// The endpoint continues until the peer knows.
    ///
    /// # Errors
    /// [`CommandError::UnknownId`].
    pub fn release(&mut self, now: Time, id: Id) -> Done {
        let conn = self.conn(id)?;
        let (state, path, transaction) = (conn.state, conn.path, conn.transaction);
        let target = conn.passive && conn.kind == QpKind::Xrc;
        let refusal = refusal(id.0, conn);
        if let Some(conn) = self.conns.get_mut(&id.0) {
            conn.released = true;
            conn.events.clear();
        }
        let id = id.0;
        match (state, refusal) {
            (State::ReqSent | State::MraReqReceived, Some(rej)) => {
                self.send(id, Message::from(rej).emit(transaction));
                self.remove(id);
            }
            (State::ReqReceived | State::RepReceived, Some(rej)) => self.refuse(id, rej),
            // The REJ may be lost, so the endpoint continues to send the REP until it is answered.
            // A peer that got the REJ answers the REP with a REJ. Another peer answers with an RTU,
            // and then the endpoint disconnects the established connection.
            (_, Some(rej)) => self.send(id, Message::from(rej).emit(transaction)),
            // An XRC target outlives the id, as in Linux, because other processes may receive
            // through it.
            (State::Established, _) if target => self.enter_timewait(now, id),
            (State::Established, _) => self.begin_disconnect(now, id, Dreq::default()),
            (State::DreqReceived, _) => self.confirm_disconnect(now, id, Drep::default()),
            (State::SidrReqReceived, _) => {
                self.answer_sidr(
                    id,
                    path,
                    &SidrAnswer { status: SidrStatus::REJECT, ..SidrAnswer::default() },
                );
                self.remove(id);
            }
            // The running timer ends everything that is left.
            (State::DreqSent | State::Timewait, _) => {}
            _ => self.remove(id),
        }
        Ok(())
    }

    /// Looks up a datagram service. The outcome is [`Event::SidrReply`] or [`Event::Unanswered`].
    ///
    /// # Errors
    /// A value does not fit in the message, the addresses are of different families, or there are
    /// too many connections.
    pub fn sidr_request(&mut self, now: Time, request: &SidrRequest) -> Result<Id, CommandError> {
        one_family(request.path)?;
        timing_fits(&request.timing)?;
        let pace = Pace::of_request(&request.timing, 0);
        let id = self.insert(Conn::new(State::SidrReqSent, false, request.path, 0, pace))?;
        let transaction = self.own_transaction(id);
        let sidr_req = SidrReq {
            request_id: id,
            pkey: request.pkey,
            service_id: request.service_id,
            private_data: request.private_data,
        };
        self.send_until_answered(now, id, Message::from(sidr_req).emit(transaction));
        Ok(Id(id))
    }

    /// Answers a datagram request. The endpoint keeps the answer for a while, for a peer that asks
    /// again.
    ///
    /// # Errors
    /// The id does not wait for a datagram answer, or a value does not fit in the message.
    pub fn sidr_reply(&mut self, id: Id, answer: &SidrAnswer) -> Done {
        fits("queue pair number", answer.qpn, 0xff_ffff)?;
        fits("length of the information", answer.info_len, 72)?;
        fits("vendor id", answer.ece.vendor_id, 0xff_ffff)?;
        let path = self.conn_in(id, "sidr_reply", &[State::SidrReqReceived])?.path;
        self.answer_sidr(id.0, path, answer);
        self.go_idle(id.0);
        Ok(())
    }

    fn answer_sidr(&mut self, id: u32, path: Path, answer: &SidrAnswer) {
        let Some(conn) = self.conns.get(&id) else { return };
        let (transaction, request_id) = (conn.transaction, conn.remote_id.unwrap_or(0));
        let mad: [u8; MAD_LEN] = Message::from(conn.sidr_rep(answer)).emit(transaction);
        self.send(id, mad);
        self.keep_answer((MadKind::SidrReq, path.remote, transaction, request_id), mad);
    }
}
