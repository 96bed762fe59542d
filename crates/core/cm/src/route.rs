//! The destination of a MAD, and the answer if there is no destination. A transport that serves
//! several processes needs both.
use crate::bits::MAD_LEN;
use crate::data::Data;
use crate::mad::{
    Answered, Apr, AprStatus, Drep, MadError, MadKind, Message, Rej, SidrRep, SidrStatus,
};
use crate::reason::RejectReason;
use crate::types::Id;

/// The destination of a MAD.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Route {
    /// The endpoint with this local communication id; its upper bits are the endpoint's prefix.
    Id(Id),
    /// The endpoint that listens on this service id.
    Service(u64),
    /// Every endpoint that may hold a request of the sender. This is a REJ of a peer that gave up
    /// before it got our communication id.
    All,
}

/// Finds the destination of a MAD.
///
/// # Errors
/// The bytes are not a MAD of the connection manager.
pub fn route(mad: &[u8]) -> Result<Route, MadError> {
    let (kind, mad) = crate::mad::kind_of(mad)?;
    let id_at = |from: usize| u32::from_be_bytes(core::array::from_fn(|n| mad[from + n]));
    Ok(match kind {
        MadKind::Req | MadKind::SidrReq => {
            Route::Service(u64::from_be_bytes(core::array::from_fn(|n| mad[32 + n])))
        }
        MadKind::SidrRep => Route::Id(Id(id_at(24))),
        MadKind::Rej if id_at(28) == 0 => Route::All,
        _ => Route::Id(Id(id_at(28))),
    })
}

/// The MAD that tells the sender of `mad` that it has no destination here. `None` if the sender
/// expects no answer.
#[must_use]
pub fn answer_for_nobody(mad: &[u8]) -> Option<[u8; MAD_LEN]> {
    let (transaction, message) = Message::parse(mad).ok()?;
    Some(refuse(&message, RejectReason::INVALID_SERVICE_ID)?.emit(transaction))
}

/// The answer to a message of an unknown connection. `request` is the reason in the answer to a
/// REQ.
pub(crate) fn refuse(message: &Message, request: RejectReason) -> Option<Message> {
    Some(match message {
        Message::Req(m) => {
            let message = Answered::Req as u8;
            Rej { remote_id: m.local_id, message, reason: request.0, ..Rej::default() }.into()
        }
        Message::Rep(m) => {
            let reason = RejectReason::INVALID_COMMUNICATION_ID.0;
            let (local_id, remote_id, message) = (m.remote_id, m.local_id, Answered::Rep as u8);
            Rej { local_id, remote_id, message, reason, ..Rej::default() }.into()
        }
        Message::Dreq(m) => {
            Drep { local_id: m.remote_id, remote_id: m.local_id, ..Drep::default() }.into()
        }
        Message::SidrReq(m) => {
            let status = SidrStatus::UNSUPPORTED.0;
            let (request_id, service_id) = (m.request_id, m.service_id);
            SidrRep { request_id, status, service_id, ..SidrRep::default() }.into()
        }
        Message::Lap(m) => {
            let status = AprStatus::InvalidCommunicationId as u8;
            Apr { local_id: m.remote_id, remote_id: m.local_id, status, ..Apr::default() }.into()
        }
        // A REJ answers a REQ or a REP (IBTA 12.6.7). The sender of an RTU expects no answer, and
        // Linux sends none.
        Message::Rtu(_) | Message::Mra(_) | Message::Rej(_) => return None,
        Message::Drep(_) | Message::SidrRep(_) | Message::Apr(_) => return None,
    })
}

/// The REJ of an end that gave up waiting. The GUID in it identifies the sender even without ids.
pub(crate) fn gave_up(local_id: u32, remote_id: u32, message: Answered, guid: u64) -> Rej {
    let bytes = guid.to_be_bytes();
    let mut info = Data::EMPTY;
    info.0[..bytes.len()].copy_from_slice(&bytes);
    let reason = RejectReason::TIMEOUT.0;
    Rej {
        local_id,
        remote_id,
        message: message as u8,
        info_len: bytes.len() as u8,
        reason,
        info,
        ..Rej::default()
    }
}
