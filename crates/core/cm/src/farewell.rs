//! Farewells: the MAD that another process sends for a process that ended without telling its peer.
use crate::conn::Conn;
use crate::mad::{Answered, Drep, Dreq, Message, Rej, SidrStatus};
use crate::reason::RejectReason;
use crate::route::gave_up;
use crate::table::Endpoint;
use crate::types::{Id, SidrAnswer, State, Transmit};

/// The REJ that ends what this end has requested, was asked for or has accepted. The reasons are
/// those of Linux.
pub(crate) fn refusal(id: u32, conn: &Conn) -> Option<Rej> {
    let remote_id = conn.remote_id.unwrap_or(0);
    let (local_id, message) = match conn.state {
        State::ReqSent | State::MraReqReceived => {
            return Some(gave_up(id, remote_id, Answered::Other, conn.ca_guid));
        }
        State::ReqReceived => (0, Answered::Req),
        State::RepReceived => (id, Answered::Rep),
        State::RepSent | State::MraRepReceived => (id, Answered::Other),
        _ => return None,
    };
    let (message, reason) = (message as u8, RejectReason::CONSUMER_DEFINED.0);
    Some(Rej { local_id, remote_id, message, reason, ..Rej::default() })
}

impl Endpoint {
    /// The MAD to send to the peer of an id if this process ends without telling the peer. `None`:
    /// no MAD is needed. The MAD changes with each state of the id, also after
    /// [`Endpoint::release`]. It is meant for another process that speaks for this process after a
    /// kill; the sender expects no answer.
    #[must_use]
    pub fn farewell(&self, id: Id) -> Option<Transmit> {
        let conn = self.conns.get(&id.0)?;
        let (message, transaction) = match conn.state {
            State::Established | State::DreqSent => {
                let (remote_id, remote_qpn) = (conn.remote_id?, conn.remote_qpn);
                let dreq = Dreq { local_id: id.0, remote_id, remote_qpn, ..Dreq::default() };
                (Message::from(dreq), self.transaction(id.0))
            }
            State::DreqReceived => {
                let remote_id = conn.remote_id?;
                let drep = Drep { local_id: id.0, remote_id, ..Drep::default() };
                (Message::from(drep), conn.dreq_transaction)
            }
            State::SidrReqReceived => {
                let refused = SidrAnswer { status: SidrStatus::REJECT, ..SidrAnswer::default() };
                (conn.sidr_rep(&refused).into(), conn.transaction)
            }
            _ => (refusal(id.0, conn)?.into(), conn.transaction),
        };
        Some(Transmit { path: conn.path, mad: message.emit(transaction), of: None })
    }
}
