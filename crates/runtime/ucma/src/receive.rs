//! Translates events of the connection manager to events of ids.
use crate::address::Address;
use crate::attr;
use crate::connect::ack_timeout;
use crate::event::{Event, EventKind, Param, Queued};
use crate::explain;
use crate::host::{Host, NotSent, Tokens};
use crate::id::{Agreed, CmId, Route, Standing};
use crate::param::{ConnParam, qp_type};
use crate::world::World;
use adverb_cm::ip::{IpHeader, service_id};
use adverb_cm::mad::{Rep, Req, SidrRep, SidrReq};
use adverb_cm::{
    Ending, Id, Listener, MadKind, Path, QpKind, RejectReason, Rejection, State, Transmit,
};
use nix::errno::Errno;
use std::net::SocketAddr;
use std::time::Duration;

/// Status of an event that reports "the peer did not answer".
const TIMED_OUT: i32 = -(Errno::ETIMEDOUT as i32);

impl<D: Host, T: Tokens> World<D, T> {
    pub(crate) fn on_event(&mut self, conn: Id, event: adverb_cm::Event) {
        use adverb_cm::Event as Cm;
        match event {
            Cm::Request { listener, path, req } => {
                return self.on_request(conn, listener, path, &req);
            }
            Cm::SidrRequest { listener, path, req } => {
                return self.on_lookup(conn, listener, path, &req);
            }
            _ => {}
        }
        match event {
            // The farewell is the answer to the peer's DREQ now.
            Cm::Disconnected(Ending::Peer(_)) => self.watch(conn),
            Cm::Rejected(_) | Cm::Unanswered { .. } | Cm::Disconnected(_) => self.withdraw(conn),
            _ => {}
        }
        let Some(&number) = self.by_conn.get(&conn) else { return };
        match event {
            Cm::Request { .. } | Cm::SidrRequest { .. } => {}
            // An MRA names the answering process, which can be watched now.
            Cm::Delayed(_) => self.watch(conn),
            Cm::Reply(rep) => self.on_reply(conn, number, &rep),
            Cm::Established => {
                self.watch(conn);
                self.event(number, Event::conn(EventKind::Established, 0, &[]));
            }
            Cm::Rejected(rejection) => {
                // A reject of a stale connection leads to a time-wait, and the queue pair number
                // stays reserved.
                if self.cm.state(conn) == Some(State::Idle) {
                    self.reservations.remove(&conn);
                }
                self.on_rejected(number, &rejection);
            }
            Cm::Unanswered { message, sent, waited } => {
                self.reservations.remove(&conn);
                self.on_silence(number, message, sent, waited);
            }
            Cm::Disconnected(ending) => self.on_ending(number, ending),
            Cm::SidrReply(rep) => self.on_lookup_answer(number, &rep),
            Cm::TimewaitExit => {
                self.reservations.remove(&conn);
                // As in Linux, a time-wait after a reject ends without an event.
                if self.ids.get(&number).is_some_and(|id| id.standing == Standing::Disconnect) {
                    self.event(number, Event::conn(EventKind::TimewaitExit, 0, &[]));
                }
            }
        }
    }

    /// Called whenever a connection has changed its state. A peer process on this host is watched
    /// for its end. For a peer on another host, the farewell is entrusted to the survivor, which
    /// sends it if this process is killed.
    pub(crate) fn watch(&mut self, conn: Id) {
        let remote = self.cm.remote(conn).filter(|remote| self.host.is_local(remote.path.remote));
        if let Some(remote) = remote {
            return self.host.watch_peer(remote.remote_id);
        }
        match self.cm.farewell(conn) {
            None => self.withdraw(conn),
            // The peer is on this host, so its process watches this process for its end.
            Some(farewell) if self.host.is_local(farewell.path.remote) => {}
            Some(farewell) => {
                if self.entrusted.insert(conn, farewell.mad) != Some(farewell.mad) {
                    self.host.entrust(conn, &farewell);
                }
            }
        }
    }

    fn on_request(&mut self, conn: Id, listener: Listener, path: Path, req: &Req) {
        if let Some(reason) = self.host.refuses() {
            return self.refuse(conn, reason);
        }
        let (header, private_data) = match IpHeader::parse(&req.private_data.0) {
            Ok(parsed) => parsed,
            Err(e) => {
                let line = || format!("rdma_cm: a request from {} is refused: {e}", path.remote);
                self.limited.warn(self.host.now(), line);
                return self.refuse(conn, RejectReason::UNSUPPORTED_REQUEST);
            }
        };
        let kind = match req.qp_kind() {
            Some(QpKind::Uc) => qp_type::UC,
            Some(QpKind::Xrc) => qp_type::XRC_TGT,
            _ => qp_type::RC,
        };
        let made = self.child(conn, listener, path, &header, kind);
        let (number, listener) = match made {
            Ok(made) => made,
            Err(None) => return self.leave_alone(conn),
            Err(Some(reason)) => return self.refuse(conn, reason),
        };
        // From here on, a peer that dies while the program decides is noticed. For a peer on this
        // host, send an MRA at once: the MRA names this process, so the peer can watch it for its
        // end.
        self.watch(conn);
        if self.host.is_local(path.remote) {
            let _ = self.cm.delay(conn);
        }
        let Some(id) = self.ids.get_mut(&number) else { return };
        let lifetime = req.primary_ack_timeout.saturating_sub(1);
        id.route = Some(Route {
            mtu: req.mtu,
            traffic_class: req.primary_traffic_class,
            flow_label: req.primary_flow_label,
            hop_limit: req.primary_hop_limit,
            service_level: req.primary_sl,
            packet_lifetime: lifetime,
        });
        id.agreed = Agreed {
            remote_qpn: req.qpn,
            sq_psn: req.psn,
            // RDMA reads sent by the peer are answered by this end, and the other way round.
            responder_resources: req.initiator_depth,
            initiator_depth: req.responder_resources,
            retry_count: req.retry_count,
            rnr_retry_count: req.rnr_retry_count,
            timeout: ack_timeout(0, lifetime),
        };
        let param = ConnParam {
            qpn: req.qpn,
            private_data: private_data.to_vec(),
            srq: req.srq,
            responder_resources: req.initiator_depth,
            initiator_depth: req.responder_resources,
            flow_control: req.flow_control,
            retry_count: req.retry_count,
            rnr_retry_count: req.rnr_retry_count,
            ..ConnParam::default()
        };
        let event = Event {
            param: Param::Conn(param),
            ece: req.ece(),
            ..Event::new(EventKind::ConnectRequest, 0)
        };
        self.announce(listener, number, event);
    }

    fn on_lookup(&mut self, conn: Id, listener: Listener, path: Path, req: &SidrReq) {
        let Ok((header, private_data)) = IpHeader::parse(&req.private_data.0) else {
            let line = || {
                format!(
                    "rdma_cm: a datagram request from {} without addresses is refused",
                    path.remote
                )
            };
            self.limited.warn(self.host.now(), line);
            return self.drop_conn(conn);
        };
        let private_data = private_data.to_vec();
        match self.child(conn, listener, path, &header, qp_type::UD) {
            Ok((number, listener)) => {
                self.watch(conn);
                if let Some(id) = self.ids.get_mut(&number) {
                    id.route = id.binding.as_ref().map(|binding| id.route_over(binding));
                }
                let param = Param::Datagram { qpn: 0, qkey: 0, ah: None, private_data };
                let event = Event { param, ..Event::new(EventKind::ConnectRequest, 0) };
                self.announce(listener, number, event);
            }
            Err(None) => self.leave_alone(conn),
            Err(Some(_)) => self.drop_conn(conn),
        }
    }

    /// Rejects a request without an id.
    fn refuse(&mut self, conn: Id, reason: RejectReason) {
        let _ = self.cm.reject(conn, reason, &[], &[]);
        self.drop_conn(conn);
    }

    /// Leaves a request unanswered; the peer asks again.
    fn leave_alone(&mut self, conn: Id) {
        let _ = self.cm.drop_request(conn);
    }

    /// Releases a connection without an id. If the request was not answered, this rejects the
    /// request.
    fn drop_conn(&mut self, conn: Id) {
        let now = self.host.now();
        let _ = self.cm.release(now, conn);
    }

    /// Creates the id for a request. Returns the numbers of the new id and of its listener.
    /// `Err(Some)`: the reason for a reject. `Err(None)`: the backlog is full, and the peer must
    /// ask again.
    fn child(
        &mut self,
        conn: Id,
        listener: Listener,
        path: Path,
        header: &IpHeader,
        kind: u8,
    ) -> Result<(u32, u32), Option<RejectReason>> {
        let nobody = Some(RejectReason::INVALID_SERVICE_ID);
        let service = self.listeners.service(listener).ok_or(nobody)?;
        let scope = self.scope;
        let scoped = |ip, port| Address::Ip(SocketAddr::new(ip, port)).with_scope(scope);
        let to = scoped(header.destination, service as u16);
        let Some(number) = self.listener_for(service, to) else {
            log::info!(
                "rdma_cm: {} asked for {} at {}, but the listeners are bound to other addresses",
                path.remote,
                explain::service(service),
                header.destination
            );
            return Err(nobody);
        };
        let binding =
            self.host.binding_of(path.local, scope).map_err(|_| Some(RejectReason::INVALID_GID))?;
        let psn = self.host.random();
        let listening = self.ids.get_mut(&number).ok_or(nobody)?;
        if listening.is_datagram() != (kind == qp_type::UD) {
            return Err(Some(RejectReason::INVALID_TRANSPORT));
        }
        if listening.backlog == 0 {
            self.limited.warn(self.host.now(), || {
                format!(
                    "rdma_cm: a request of {} for {} is left alone: as many as the backlog allows wait to be read",
                    path.remote,
                    explain::service(service)
                )
            });
            return Err(None);
        }
        listening.backlog -= 1;
        let mut id = CmId::new(listening.file, 0, listening.port_space, kind, psn);
        (id.tos, id.ack_timeout) = (listening.tos, listening.ack_timeout);
        id.listener = Some(number);
        id.standing = Standing::Connect;
        id.source = Some(to);
        id.destination = Some(scoped(header.source.ip(), header.source.port()));
        id.binding = Some(binding);
        id.conn = Some((conn, path));
        let child = self.ids.add(id);
        self.by_conn.insert(conn, child);
        Ok((child, number))
    }

    /// Queues a request in the event queue of its listener.
    fn announce(&mut self, listener: u32, request: u32, event: Event) {
        let Some(id) = self.ids.get(&listener) else { return };
        let queued =
            Queued { owner: listener, uid: id.uid, group: None, request: Some(request), event };
        self.files.push(id.file, queued);
    }

    fn on_reply(&mut self, conn: Id, number: u32, rep: &Rep) {
        self.watch(conn);
        let Some(id) = self.ids.get_mut(&number) else { return };
        let kind = if id.qp_type == qp_type::XRC_INI { QpKind::Xrc } else { QpKind::Rc };
        let remote_qpn = rep.queue_pair(kind);
        let lifetime = id.route.map_or(0, |route| route.packet_lifetime);
        id.agreed = Agreed {
            remote_qpn,
            sq_psn: rep.psn,
            responder_resources: rep.initiator_depth,
            initiator_depth: rep.responder_resources,
            retry_count: id.agreed.retry_count,
            rnr_retry_count: rep.rnr_retry_count,
            timeout: ack_timeout(rep.target_ack_delay, lifetime),
        };
        let param = ConnParam {
            qpn: remote_qpn,
            private_data: rep.private_data.to_vec(),
            srq: rep.srq,
            responder_resources: rep.initiator_depth,
            initiator_depth: rep.responder_resources,
            flow_control: rep.flow_control,
            rnr_retry_count: rep.rnr_retry_count,
            ..ConnParam::default()
        };
        let event = Event {
            param: Param::Conn(param),
            ece: rep.ece(),
            ..Event::new(EventKind::ConnectResponse, 0)
        };
        self.event(number, event);
    }

    fn on_rejected(&mut self, number: u32, rejection: &Rejection) {
        if let Some((path, service)) = self.asked(number) {
            log::info!("rdma_cm: {}", explain::rejected(path, service, rejection));
        }
        let status = rejection.reason.0.into();
        self.event(number, Event::conn(EventKind::Rejected, status, &rejection.private_data));
    }

    /// The path and the requested service id of an id.
    fn asked(&self, number: u32) -> Option<(Path, u64)> {
        let id = self.ids.get(&number)?;
        let port = if id.listener.is_some() { id.source } else { id.destination }?.port();
        Some((id.conn?.1, service_id(id.port_space, port)))
    }

    fn on_silence(&mut self, number: u32, message: MadKind, sent: u32, waited: Duration) {
        if let Some((path, service_id)) = self.asked(number) {
            let device = self.ids.get(&number).and_then(|id| id.binding.as_ref());
            let silence = explain::Silence {
                message,
                sent,
                waited,
                path,
                service_id,
                device: device.map_or_else(String::new, |binding| binding.name.clone()),
                local: self.host.is_local(path.remote),
                mads: self.heard.all,
                from_peer: self.heard.from(path.remote),
            };
            log::warn!("rdma_cm: {}", explain::silence(&silence));
        }
        self.event(number, self.of_kind(number, EventKind::Unreachable, TIMED_OUT));
    }

    /// A MAD cannot leave this machine. A connection that waits for an answer to the MAD ends at
    /// once. Linux does the same for a failed send (`cm_process_send_error`).
    pub(crate) fn on_not_sent(&mut self, transmit: &Transmit, e: &NotSent) {
        let (now, to) = (self.host.now(), transmit.path.remote);
        let ended =
            transmit.of.and_then(|conn| Some((conn, self.cm.not_sent(now, conn, &transmit.mad)?)));
        let Some((conn, message)) = ended else {
            return log::debug!("rdma_cm: a MAD to {to} did not leave: {}", e.why);
        };
        let line = || format!("rdma_cm: the {message} to {to} did not leave: {}", e.why);
        match message {
            // Only the program's own call causes this line, and no peer can. The rate limit is not
            // needed here.
            MadKind::Req | MadKind::SidrReq => log::error!("{}", line()),
            _ => self.limited.warn(now, line),
        }
        if message == MadKind::Dreq {
            // The `Disconnected` event follows.
            return;
        }
        self.withdraw(conn);
        self.reservations.remove(&conn);
        if let Some(&number) = self.by_conn.get(&conn) {
            let status = -(e.errno as i32);
            self.event(number, self.of_kind(number, EventKind::Unreachable, status));
        }
    }

    /// An event without data, as a datagram event or a connection event, by the kind of the id.
    fn of_kind(&self, number: u32, kind: EventKind, status: i32) -> Event {
        if self.ids.get(&number).is_some_and(CmId::is_datagram) {
            Event::new(kind, status)
        } else {
            Event::conn(kind, status, &[])
        }
    }

    fn on_ending(&mut self, number: u32, ending: Ending) {
        if self.ids.get(&number).is_none_or(|id| id.standing != Standing::Connect) {
            return;
        }
        let event = match ending {
            Ending::Peer(data) => Event::conn(EventKind::Disconnected, 0, &data[..]),
            Ending::Confirmed(data) => Event::conn(EventKind::Disconnected, 0, &data[..]),
            // `sent: 0` means that the DREQ could not leave, and `on_not_sent` has logged the
            // reason.
            Ending::Unanswered { sent: 0 } => Event::conn(EventKind::Disconnected, TIMED_OUT, &[]),
            Ending::Unanswered { sent } => {
                log::warn!(
                    "rdma_cm: the peer of a connection did not answer the DREQ (sent {sent} \
                     times): the peer is dead or cannot be reached"
                );
                Event::conn(EventKind::Disconnected, TIMED_OUT, &[])
            }
            Ending::PeerEnded => {
                log::info!("rdma_cm: the process at the other end of a connection has ended");
                Event::conn(EventKind::Disconnected, 0, &[])
            }
            Ending::Stale => {
                log::info!(
                    "rdma_cm: the peer has forgotten a connection, and uses its queue pair for \
                     another connection"
                );
                Event::conn(EventKind::Disconnected, 0, &[])
            }
            Ending::Rejected(rejection) => return self.on_rejected(number, &rejection),
        };
        if let Some(id) = self.ids.get_mut(&number) {
            id.standing = Standing::Disconnect;
        }
        self.event(number, event);
    }

    fn on_lookup_answer(&mut self, number: u32, rep: &SidrRep) {
        if rep.status != 0 {
            if let Some((path, service)) = self.asked(number) {
                log::info!(
                    "rdma_cm: {} for {}: {}",
                    path.remote,
                    explain::service(service),
                    rep.status()
                );
            }
            let status = i32::from(rep.status);
            return self.event(number, self.of_kind(number, EventKind::Unreachable, status));
        }
        let Some(id) = self.ids.get(&number) else { return };
        let param = Param::Datagram {
            qpn: rep.qpn,
            qkey: rep.qkey,
            ah: attr::address(id),
            private_data: rep.private_data.to_vec(),
        };
        let event = Event { param, ece: rep.ece(), ..Event::new(EventKind::Established, 0) };
        self.event(number, event);
    }
}
