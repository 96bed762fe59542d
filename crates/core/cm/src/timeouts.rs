//! Ends without a MAD from the peer: timeouts, and the end of a peer that another process has seen.
use crate::bits::MAD_LEN;
use crate::mad::{Answered, MadKind, Message};
use crate::reason::RejectReason;
use crate::receive::local_rejection;
use crate::route::gave_up;
use crate::table::Endpoint;
use crate::types::{Ending, Event, Id, Path, State};
use adverb_wire::Time;

impl Endpoint {
    /// Sends MADs again, gives up, and ends time-waits, as of `now`.
    pub fn handle_timeout(&mut self, now: Time) {
        while let Some(id) = self.take_expired(now) {
            let Some(conn) = self.conns.get_mut(&id) else { continue };
            if conn.state == State::Timewait {
                conn.sending = None;
                self.event(id, Event::TimewaitExit);
                self.go_idle(id);
                continue;
            }
            let Some(message) = unanswered(conn.state) else { continue };
            let retries = conn.pace.retries;
            let Some(sending) = &mut conn.sending else { continue };
            if sending.sent > retries {
                self.give_up(now, id, message);
                continue;
            }
            sending.sent += 1;
            let (mad, timeout) = (*sending.mad, sending.timeout);
            self.send(id, mad);
            self.set_timer(id, Some(now + timeout));
        }
    }

    /// Does the id wait for the answer to a MAD? The MAD is sent again until the answer comes, and
    /// an event reports the lack of an answer.
    #[must_use]
    pub fn awaits_answer(&self, id: Id) -> bool {
        let conn = self.conns.get(&id.0);
        conn.is_some_and(|conn| conn.sending.is_some() && unanswered(conn.state).is_some())
    }

    /// Handles a MAD of this connection, attempt or exchange that could not leave, because the
    /// transport has no route to the peer. If the id waits for the answer to this MAD, it ends at
    /// once, because sending the MAD again would be useless. The return value is the kind of the
    /// message. No event then reports the end, except for a DREQ: the connection ends as if the
    /// peer had not answered.
    pub fn not_sent(&mut self, now: Time, id: Id, mad: &[u8; MAD_LEN]) -> Option<MadKind> {
        let conn = self.conns.get_mut(&id.0)?;
        let message = unanswered(conn.state)?;
        if conn.sending.as_ref().is_none_or(|sending| *sending.mad != *mad) {
            return None;
        }
        conn.sending = None;
        if message == MadKind::Dreq {
            self.ended(now, id.0, Ending::Unanswered { sent: 0 });
        } else {
            self.go_idle(id.0);
        }
        Some(message)
    }

    /// Handles the lack of an answer after all retries.
    fn give_up(&mut self, now: Time, id: u32, message: MadKind) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let (sent, since) = conn.sending.take().map_or((0, now), |s| (s.sent, s.since));
        let (remote_id, guid, transaction) =
            (conn.remote_id.unwrap_or(0), conn.ca_guid, conn.transaction);
        if message == MadKind::Dreq {
            self.ended(now, id, Ending::Unanswered { sent });
            return;
        }
        self.event(id, Event::Unanswered { message, sent, waited: now.since(since) });
        if message != MadKind::SidrReq {
            // The peer may still have the REQ or REP, and may wait for its program or for the RTU.
            let rej = gave_up(id, remote_id, Answered::Other, guid);
            self.send_and_keep(id, Message::from(rej).emit(transaction));
        }
        self.go_idle(id);
    }

    /// Ends the connections to a process that has ended: all connections to ids with this prefix
    /// for which `here` returns `true`. `here` says whether a path leads to the host of that
    /// process. Call this if the transport sees processes of its own host end.
    pub fn peer_ended(&mut self, now: Time, prefix: u32, here: impl Fn(&Path) -> bool) {
        let shift = 32 - u32::from(self.config.prefix_bits);
        let of_prefix = |id: u32| u64::from(id) >> shift == u64::from(prefix);
        let ended =
            |conn: &crate::conn::Conn| conn.remote_id.is_some_and(of_prefix) && here(&conn.path);
        let ids: alloc::vec::Vec<u32> =
            self.conns.iter().filter(|(_, conn)| ended(conn)).map(|(&id, _)| id).collect();
        for id in ids {
            let Some(conn) = self.conns.get_mut(&id) else { continue };
            match conn.state {
                // The reasons are those that a kernel sends for its process.
                State::ReqReceived
                | State::RepSent
                | State::MraRepReceived
                | State::MraReqReceived => {
                    let only_asked = conn.state == State::ReqReceived;
                    let reason = if only_asked {
                        RejectReason::TIMEOUT
                    } else {
                        RejectReason::CONSUMER_DEFINED
                    };
                    conn.sending = None;
                    self.event(id, Event::Rejected(local_rejection(reason)));
                    self.go_idle(id);
                }
                State::RepReceived => {
                    let refused = local_rejection(RejectReason::CONSUMER_DEFINED);
                    self.ended(now, id, Ending::Rejected(refused));
                }
                State::Established | State::DreqSent => {
                    self.ended(now, id, Ending::PeerEnded);
                }
                State::SidrReqReceived => self.go_idle(id),
                _ => {}
            }
        }
    }
}

/// The message that awaits an answer in a state.
fn unanswered(state: State) -> Option<MadKind> {
    match state {
        State::ReqSent | State::MraReqReceived => Some(MadKind::Req),
        State::RepSent | State::MraRepReceived => Some(MadKind::Rep),
        State::DreqSent => Some(MadKind::Dreq),
        State::SidrReqSent => Some(MadKind::SidrReq),
        _ => None,
    }
}
