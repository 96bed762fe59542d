//! Connecting, accepting, refusing and ending.
use crate::address::Address;
use crate::host::{Host, Tokens};
use crate::id::{Agreed, CmId, PKEY, Route, Standing};
use crate::param::{ConnParam, qp_type};
use crate::world::{World, errno};
use adverb_cm::ip::{IpHeader, service_id};
use adverb_cm::{
    Accept, ConnectRequest, Data, Ece, Id, Path, QpKind, RejectReason, SidrAnswer, SidrRequest,
    SidrStatus, State, Timing,
};
use nix::errno::Errno;

/// Time the device takes to acknowledge (code), as `ibv_query_device` says.
const ACK_DELAY: u8 = 15;
/// The asynchronous event COMM_EST: the program reports that data has arrived before the RTU.
const COMM_EST: u32 = 4;

/// Local ACK timeout (code) from the packet lifetime and the delay of the device that acknowledges.
pub fn ack_timeout(delay: u8, packet_lifetime: u8) -> u8 {
    let there_and_back = packet_lifetime.saturating_add(1);
    let sum = if there_and_back >= delay {
        there_and_back + u8::from(delay + 1 >= there_and_back)
    } else {
        delay + u8::from(there_and_back + 1 >= delay)
    };
    sum.min(31)
}

/// The transport of an id's queue pair.
pub fn transport(kind: u8) -> QpKind {
    match kind {
        qp_type::UC => QpKind::Uc,
        qp_type::XRC_INI | qp_type::XRC_TGT => QpKind::Xrc,
        _ => QpKind::Rc,
    }
}

/// Private data behind the IP header of annex A11, which names the source and destination address.
fn with_header<const N: usize>(id: &CmId, own: &[u8]) -> Result<Data<N>, Errno> {
    let (Some(Address::Ip(source)), Some(to)) = (id.source, id.destination.and_then(|a| a.ip()))
    else {
        return Err(Errno::EINVAL);
    };
    let header = IpHeader::new(source, to).ok_or(Errno::EINVAL)?.to_bytes();
    let all = [&header[..], own].concat();
    Data::new(&all).map_err(|_| {
        log::info!(
            "rdma_connect: {} bytes of private data, at most {} fit",
            own.len(),
            N - header.len()
        );
        Errno::EINVAL
    })
}

impl<D: Host, T: Tokens> World<D, T> {
    /// CONNECT: asks for a connection, or for a datagram service's queue pair.
    pub(crate) fn connect(
        &mut self,
        file: u64,
        number: u32,
        param: &ConnParam<&[u8]>,
        ece: Ece,
    ) -> Result<(), Errno> {
        if !param.valid {
            return Err(Errno::EINVAL);
        }
        let id = self.id(file, number)?;
        if id.standing != Standing::RouteResolved {
            return Err(Errno::EINVAL);
        }
        let (Some(route), Some(binding)) = (id.route, &id.binding) else {
            return Err(Errno::EINVAL);
        };
        let to = id.destination.ok_or(Errno::EINVAL)?;
        let path = Path { local: binding.address, remote: to.ip().ok_or(Errno::EINVAL)? };
        let service_id = service_id(id.port_space, to.port());
        let timing = Timing { packet_lifetime: route.packet_lifetime, ..Timing::LINUX };
        let conn = if id.is_datagram() {
            let private_data = with_header(id, param.private_data)?;
            let request = SidrRequest { path, service_id, pkey: PKEY, timing, private_data };
            let now = self.host.now();
            self.cm.sidr_request(now, &request).map_err(errno)?
        } else {
            let request = request(id, param, ece, path, service_id, timing, route)?;
            id.agreed = Agreed {
                responder_resources: param.responder_resources,
                initiator_depth: param.initiator_depth,
                retry_count: request.retry_count,
                rnr_retry_count: request.rnr_retry_count,
                timeout: ack_timeout(ACK_DELAY, route.packet_lifetime),
                ..Agreed::default()
            };
            let now = self.host.now();
            let conn = self.cm.connect(now, &request).map_err(errno)?;
            let reservation = self.host.reserve_qpn(param.qpn);
            self.reservations.insert(conn, reservation);
            conn
        };
        self.by_conn.insert(conn, number);
        if let Some(id) = self.ids.get_mut(&number) {
            id.qpn = param.qpn & 0xff_ffff;
            id.srq = param.srq;
            id.ece = ece;
            id.conn = Some((conn, path));
            id.standing = Standing::Connect;
        }
        self.watch(conn);
        Ok(())
    }

    /// ACCEPT: accepts a request. Without parameters, confirms the reply to this id's own request.
    pub(crate) fn accept(
        &mut self,
        file: u64,
        number: u32,
        uid: u64,
        param: &ConnParam<&[u8]>,
        ece: Ece,
    ) -> Result<(), Errno> {
        let id = self.id(file, number)?;
        let (Standing::Connect, Some((conn, _))) = (id.standing, id.conn) else {
            return Err(Errno::EINVAL);
        };
        let done = if id.is_datagram() {
            self.answer_datagram(number, conn, param, ece)
        } else if param.valid {
            self.agree(number, conn, param, ece)
        } else {
            self.cm.established(conn).map_err(errno)
        };
        match done {
            Ok(()) if param.valid => {
                if let Some(id) = self.ids.get_mut(&number) {
                    id.uid = uid;
                }
            }
            Ok(()) => {}
            // Reject, so that the peer does not wait for a reply that never comes.
            Err(_) => {
                let _ = self.cm.reject(conn, RejectReason::CONSUMER_DEFINED, &[], &[]);
            }
        }
        self.watch(conn);
        done
    }

    fn agree(
        &mut self,
        number: u32,
        conn: Id,
        param: &ConnParam<&[u8]>,
        ece: Ece,
    ) -> Result<(), Errno> {
        let id = self.ids.get_mut(&number).ok_or(Errno::ENOENT)?;
        let accept = Accept {
            qpn: param.qpn,
            psn: id.psn,
            ca_guid: id.binding.as_ref().map_or(0, |binding| binding.guid),
            srq: param.srq,
            responder_resources: param.responder_resources,
            initiator_depth: param.initiator_depth,
            rnr_retry_count: param.rnr_retry_count.min(7),
            flow_control: param.flow_control,
            target_ack_delay: ACK_DELAY,
            private_data: Data::new(param.private_data).map_err(|e| errno(e.into()))?,
            ece,
        };
        let now = self.host.now();
        self.cm.accept(now, conn, &accept).map_err(errno)?;
        id.qpn = param.qpn;
        id.srq = param.srq;
        id.ece = ece;
        id.agreed.responder_resources = param.responder_resources;
        id.agreed.initiator_depth = param.initiator_depth;
        let reservation = self.host.reserve_qpn(param.qpn);
        self.reservations.insert(conn, reservation);
        Ok(())
    }

    fn answer_datagram(
        &mut self,
        number: u32,
        conn: Id,
        param: &ConnParam<&[u8]>,
        ece: Ece,
    ) -> Result<(), Errno> {
        let id = self.ids.get_mut(&number).ok_or(Errno::ENOENT)?;
        if param.qkey != 0 {
            if id.qkey.is_some_and(|set| set != param.qkey) {
                return Err(Errno::EINVAL);
            }
            id.qkey = Some(param.qkey);
        }
        let answer = SidrAnswer {
            status: SidrStatus::SUCCESS,
            qpn: param.qpn & 0xff_ffff,
            qkey: id.qkey(),
            private_data: Data::new(param.private_data).map_err(|e| errno(e.into()))?,
            ece,
            ..SidrAnswer::default()
        };
        self.cm.sidr_reply(conn, &answer).map_err(errno)
    }

    /// REJECT.
    pub(crate) fn reject(
        &mut self,
        file: u64,
        number: u32,
        reason: u8,
        data: &[u8],
    ) -> Result<(), Errno> {
        let reason = match RejectReason(reason.into()) {
            RejectReason(0) | RejectReason::CONSUMER_DEFINED => RejectReason::CONSUMER_DEFINED,
            RejectReason::VENDOR_OPTION_NOT_SUPPORTED => RejectReason::VENDOR_OPTION_NOT_SUPPORTED,
            _ => return Err(Errno::EINVAL),
        };
        let id = self.id(file, number)?;
        let (conn, _) = id.conn.ok_or(Errno::EINVAL)?;
        let done = if id.is_datagram() {
            let private_data = Data::new(data).map_err(|e| errno(e.into()))?;
            let answer =
                SidrAnswer { status: SidrStatus::REJECT, private_data, ..SidrAnswer::default() };
            self.cm.sidr_reply(conn, &answer).map_err(errno)
        } else {
            self.cm.reject(conn, reason, &[], data).map_err(errno)
        };
        self.watch(conn);
        done
    }

    /// DISCONNECT: ends a connection, or answers the peer's end. Succeeds without effect if the
    /// connection is over or not established yet.
    pub(crate) fn disconnect(&mut self, file: u64, number: u32) -> Result<(), Errno> {
        let (conn, _) = self.id(file, number)?.conn.ok_or(Errno::EINVAL)?;
        let now = self.host.now();
        if let Err(e) = self.cm.disconnect(now, conn, &[]) {
            log::debug!("rdma_disconnect: {e}");
        }
        self.watch(conn);
        Ok(())
    }

    /// NOTIFY: data arrived before the RTU.
    pub(crate) fn notify(&mut self, file: u64, number: u32, event: u32) -> Result<(), Errno> {
        let (conn, _) = self.id(file, number)?.conn.ok_or(Errno::EINVAL)?;
        match self.cm.state(conn) {
            Some(State::RepSent | State::MraRepReceived) if event == COMM_EST => {
                self.cm.established(conn).map_err(errno)
            }
            Some(State::Established) if event == COMM_EST => Err(Errno::EISCONN),
            _ => Err(Errno::EINVAL),
        }
    }
}

fn request(
    id: &CmId,
    param: &ConnParam<&[u8]>,
    ece: Ece,
    path: Path,
    service_id: u64,
    timing: Timing,
    route: Route,
) -> Result<ConnectRequest, Errno> {
    Ok(ConnectRequest {
        path,
        service_id,
        ca_guid: id.binding.as_ref().map_or(0, |binding| binding.guid),
        qpn: param.qpn,
        psn: id.psn,
        kind: transport(id.qp_type),
        srq: param.srq,
        responder_resources: param.responder_resources,
        initiator_depth: param.initiator_depth,
        retry_count: param.retry_count.min(7),
        rnr_retry_count: param.rnr_retry_count.min(7),
        flow_control: param.flow_control,
        mtu: route.mtu,
        pkey: PKEY,
        service_level: route.service_level,
        traffic_class: route.traffic_class,
        flow_label: route.flow_label,
        hop_limit: route.hop_limit,
        ack_timeout: Some(ack_timeout(ACK_DELAY, route.packet_lifetime)),
        timing,
        private_data: with_header(id, param.private_data)?,
        ece,
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn ucm_5_the_ack_timeout_covers_the_way_and_the_device() {
        // Codes are exponents: the sum of two times has the larger code, or the next code if the
        // two are near.
        let all =
            [(15, 16, 17), (0, 16, 17), (16, 16, 18), (20, 16, 20), (18, 16, 19), (31, 31, 31)];
        for (delay, lifetime, sum) in all {
            assert_eq!(super::ack_timeout(delay, lifetime), sum, "{delay} {lifetime}");
        }
    }
}
