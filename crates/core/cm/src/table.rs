//! The endpoint's connections, indexes, timers and queues, which commands, MADs and timeouts share.
use crate::bits::MAD_LEN;
use crate::conn::{Conn, QpKey, RemoteKey, Sending};
use crate::error::CommandError;
use crate::mad::{Drep, Dreq, MadKind, Message, Rej};
use crate::reason::RejectReason;
use crate::types::{Config, Ending, Event, Id, Listener, Path, State, Transmit};
use adverb_wire::Time;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::net::IpAddr;

/// Limit of answers that wait to be sent. Further answers are dropped, as if the network had lost
/// them, and the peers ask again.
const MAX_WAITING: usize = 4096;

/// The request of a kept answer: its kind, sender, transaction id and communication (or request)
/// id.
pub(crate) type AnswerKey = (MadKind, IpAddr, u64, u32);

/// The communication manager of a process: all listeners, connections and datagram exchanges. The
/// crate's documentation says how to drive an endpoint.
#[derive(Debug)]
pub struct Endpoint {
    pub(crate) config: Config,
    pub(crate) conns: BTreeMap<u32, Conn>,
    pub(crate) listeners: BTreeMap<(u64, Option<IpAddr>), Listener>,
    next_listener: u32,
    next_id: u32,
    /// Passive connections, by the values in their REQ.
    pub(crate) by_remote: BTreeMap<RemoteKey, u32>,
    /// Connections that are established or under way, by the queue pair of the peer.
    pub(crate) by_qp: BTreeMap<QpKey, u32>,
    timers: BTreeSet<(Time, u32)>,
    transmits: VecDeque<Transmit>,
    /// Ids with events, one entry per event. Entries of released ids are skipped.
    ready: VecDeque<u32>,
    answers: BTreeMap<AnswerKey, Box<[u8; MAD_LEN]>>,
    answer_order: VecDeque<AnswerKey>,
    /// Requests that the program has not answered yet.
    pub(crate) requests: usize,
    /// Ids that [`Endpoint::poll_forgotten`] has not returned yet.
    forgotten: Vec<Id>,
}

impl Endpoint {
    /// Creates an endpoint without connections.
    ///
    /// # Panics
    /// If [`Config::prefix_bits`] is more than 20, or the prefix has more bits.
    #[must_use]
    pub fn new(config: Config) -> Endpoint {
        assert!(
            config.prefix_bits <= 20,
            "{} bits of prefix, at most 20 leave room",
            config.prefix_bits
        );
        assert!(
            u64::from(config.prefix) < 1 << config.prefix_bits,
            "the prefix {:#x} has more than {} bits",
            config.prefix,
            config.prefix_bits
        );
        Endpoint {
            config,
            conns: BTreeMap::new(),
            listeners: BTreeMap::new(),
            next_listener: 1,
            next_id: config.first,
            by_remote: BTreeMap::new(),
            by_qp: BTreeMap::new(),
            timers: BTreeSet::new(),
            transmits: VecDeque::new(),
            ready: VecDeque::new(),
            answers: BTreeMap::new(),
            answer_order: VecDeque::new(),
            requests: 0,
            forgotten: Vec::new(),
        }
    }

    /// Accepts requests of peers for a service id. `local`: only requests to this address. A
    /// listener with an address comes before a listener without.
    ///
    /// # Errors
    /// [`CommandError::ServiceInUse`].
    pub fn listen(
        &mut self,
        service_id: u64,
        local: Option<IpAddr>,
    ) -> Result<Listener, CommandError> {
        let listener = Listener(self.next_listener);
        match self.listeners.entry((service_id, local)) {
            alloc::collections::btree_map::Entry::Occupied(_) => {
                Err(CommandError::ServiceInUse(service_id))
            }
            alloc::collections::btree_map::Entry::Vacant(place) => {
                self.next_listener = self.next_listener.wrapping_add(1).max(1);
                Ok(*place.insert(listener))
            }
        }
    }

    /// Ends a listener. Requests that have already arrived stay.
    ///
    /// # Errors
    /// [`CommandError::UnknownListener`].
    pub fn unlisten(&mut self, listener: Listener) -> Result<(), CommandError> {
        let before = self.listeners.len();
        self.listeners.retain(|_, l| *l != listener);
        if self.listeners.len() < before {
            Ok(())
        } else {
            Err(CommandError::UnknownListener(listener))
        }
    }

    pub(crate) fn listener_for(&self, service_id: u64, local: IpAddr) -> Option<Listener> {
        let exact = self.listeners.get(&(service_id, Some(local)));
        exact.or_else(|| self.listeners.get(&(service_id, None))).copied()
    }

    /// The state of an id; `None` if there is no such id, or it has been released.
    #[must_use]
    pub fn state(&self, id: Id) -> Option<State> {
        self.conns.get(&id.0).filter(|conn| !conn.released).map(|conn| conn.state)
    }

    /// The addresses of an id.
    #[must_use]
    pub fn path(&self, id: Id) -> Option<Path> {
        self.conns.get(&id.0).filter(|conn| !conn.released).map(|conn| conn.path)
    }

    /// The communication id of the peer and the queue pairs of both ends; `None` before the peer's
    /// id is known.
    #[must_use]
    pub fn remote(&self, id: Id) -> Option<Remote> {
        let conn = self.conns.get(&id.0)?;
        let remote_id = conn.remote_id?;
        Some(Remote {
            path: conn.path,
            remote_id,
            remote_qpn: conn.remote_qpn,
            local_qpn: conn.local_qpn,
        })
    }

    /// Is there a connection of this local queue pair that may be established, or is in time-wait?
    /// If so, the number must not be used again yet.
    #[must_use]
    pub fn reserves_qpn(&self, qpn: u32) -> bool {
        let held =
            |conn: &Conn| conn.local_qpn == qpn && (conn.stands() || conn.state == State::Timewait);
        self.conns.values().any(held)
    }

    /// Number of connections, attempts and exchanges, including released connections that are not
    /// over.
    #[must_use]
    pub fn len(&self) -> usize {
        self.conns.len()
    }

    /// Is there no connection at all?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.conns.is_empty()
    }

    /// The next MAD to send.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }

    /// The next event. Events of the same id come in order.
    pub fn poll_event(&mut self) -> Option<(Id, Event)> {
        while let Some(id) = self.ready.pop_front() {
            if let Some(event) = self.conns.get_mut(&id).and_then(|conn| conn.events.pop_front()) {
                return Some((Id(id), event));
            }
        }
        None
    }

    /// Returns a released id that has left the endpoint since the last call. Its peer knows of the
    /// end or cannot be reached, and its time-wait is over. Each id is returned once, in any order.
    pub fn poll_forgotten(&mut self) -> Option<Id> {
        self.forgotten.pop()
    }

    /// When to call [`Endpoint::handle_timeout`]; `None`: no timer runs.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        self.timers.first().map(|&(at, _)| at)
    }

    /// Number of running timers.
    #[cfg(test)]
    pub(crate) fn running_timers(&self) -> usize {
        self.timers.len()
    }

    /// Number of kept answers.
    #[cfg(test)]
    pub(crate) fn kept_answers(&self) -> usize {
        self.answers.len().max(self.answer_order.len())
    }

    /// Adds a connection under a new id.
    pub(crate) fn insert(&mut self, conn: Conn) -> Result<u32, CommandError> {
        let low_bits = 32 - u32::from(self.config.prefix_bits);
        let low_mask = u32::MAX >> u32::from(self.config.prefix_bits);
        let max = self.config.max_connections.min(low_mask as usize - 1);
        if self.conns.len() >= max {
            return Err(CommandError::TooManyConnections(max));
        }
        let prefix = if low_bits == 32 { 0 } else { self.config.prefix << low_bits };
        loop {
            let id = prefix | self.next_id & low_mask;
            self.next_id = self.next_id.wrapping_add(1);
            if id != 0 && !self.conns.contains_key(&id) {
                self.conns.insert(id, conn);
                return Ok(id);
            }
        }
    }

    /// Removes a connection and all index entries for it.
    pub(crate) fn remove(&mut self, id: u32) {
        self.unlink(id);
        self.take_out(id);
    }

    fn take_out(&mut self, id: u32) {
        if self.conns.remove(&id).is_some() {
            self.forgotten.push(Id(id));
        }
    }

    /// Removes everything of a connection except the id.
    fn unlink(&mut self, id: u32) {
        self.set_timer(id, None);
        self.forget_qp(id);
        if let Some(key) = self.conns.get(&id).and_then(Conn::remote_key)
            && self.by_remote.get(&key) == Some(&id)
        {
            self.by_remote.remove(&key);
        }
        self.set_state(id, State::Idle);
    }

    pub(crate) fn forget_qp(&mut self, id: u32) {
        let Some(key) = self.conns.get(&id).map(Conn::qp_key) else { return };
        if self.by_qp.get(&key) == Some(&id) {
            self.by_qp.remove(&key);
        }
    }

    pub(crate) fn set_timer(&mut self, id: u32, at: Option<Time>) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        if let Some(old) = conn.deadline.take() {
            self.timers.remove(&(old, id));
        }
        conn.deadline = at;
        if let Some(at) = at {
            self.timers.insert((at, id));
        }
    }

    /// Returns a connection with a timer that has expired by `now`, and stops the timer.
    pub(crate) fn take_expired(&mut self, now: Time) -> Option<u32> {
        let &(_, id) = self.timers.first().filter(|(at, _)| *at <= now)?;
        self.set_timer(id, None);
        Some(id)
    }

    pub(crate) fn event(&mut self, id: u32, event: Event) {
        if let Some(conn) = self.conns.get_mut(&id).filter(|conn| !conn.released) {
            conn.events.push_back(event);
            self.ready.push_back(id);
        }
    }

    /// Changes the state, and updates the count of requests that wait for the program.
    pub(crate) fn set_state(&mut self, id: u32, state: State) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let waits = |state| matches!(state, State::ReqReceived | State::SidrReqReceived);
        self.requests -= usize::from(waits(conn.state));
        conn.state = state;
        self.requests += usize::from(waits(state));
    }

    /// Sends a MAD of a connection once.
    pub(crate) fn send(&mut self, id: u32, mad: [u8; MAD_LEN]) {
        if let Some(conn) = self.conns.get(&id) {
            self.transmits.push_back(Transmit { path: conn.path, mad, of: Some(Id(id)) });
        }
    }

    /// Sends an answer without a connection.
    pub(crate) fn answer(&mut self, path: Path, mad: [u8; MAD_LEN]) {
        if self.transmits.len() < MAX_WAITING {
            self.transmits.push_back(Transmit { path, mad, of: None });
        }
    }

    /// Sends a MAD repeatedly, until it is answered or the endpoint gives up.
    pub(crate) fn send_until_answered(&mut self, now: Time, id: u32, mad: [u8; MAD_LEN]) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let timeout = conn.pace.timeout;
        conn.sending = Some(Sending { mad: Box::new(mad), sent: 1, since: now, timeout });
        self.send(id, mad);
        self.set_timer(id, Some(now + timeout));
    }

    /// Sends a MAD once. Keeps the MAD, to send it again if the peer repeats its own message.
    pub(crate) fn send_and_keep(&mut self, id: u32, mad: [u8; MAD_LEN]) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let timeout = conn.pace.timeout;
        conn.sending = Some(Sending { mad: Box::new(mad), sent: 1, since: Time::ZERO, timeout });
        self.send(id, mad);
    }

    /// Sends the kept MAD of a connection once more, independent of the timer.
    pub(crate) fn send_again(&mut self, id: u32) {
        let kept =
            self.conns.get(&id).and_then(|conn| Some((conn.path, *conn.sending.as_ref()?.mad)));
        if let Some((path, mad)) = kept {
            self.answer(path, mad);
        }
    }

    /// Keeps an answer for a peer that repeats its request with the same transaction id.
    pub(crate) fn keep_answer(&mut self, key: AnswerKey, mad: [u8; MAD_LEN]) {
        if self.config.max_answers == 0 {
            return;
        }
        if self.answers.insert(key, Box::new(mad)).is_none() {
            self.answer_order.push_back(key);
        }
        if self.answer_order.len() > self.config.max_answers
            && let Some(oldest) = self.answer_order.pop_front()
        {
            self.answers.remove(&oldest);
        }
    }

    pub(crate) fn kept_answer(&self, key: &AnswerKey) -> Option<[u8; MAD_LEN]> {
        self.answers.get(key).map(|mad| **mad)
    }

    /// Keeps only the id, for the program to release. The kept answer also prevents late copies of
    /// the REQ from becoming a new request.
    pub(crate) fn go_idle(&mut self, id: u32) {
        self.unlink(id);
        let Some(conn) = self.conns.get(&id) else { return };
        let (released, transaction, remote_id) =
            (conn.released, conn.transaction, conn.remote_id.unwrap_or(0));
        let key = (MadKind::Req, conn.path.remote, transaction, remote_id);
        if conn.passive && !conn.datagram && !self.answers.contains_key(&key) {
            let reason = RejectReason::INVALID_COMMUNICATION_ID.0;
            let rej = Rej { local_id: id, remote_id, reason, ..Rej::default() };
            self.keep_answer(key, Message::from(rej).emit(transaction));
        }
        if released {
            self.take_out(id);
        }
    }

    pub(crate) fn enter_timewait(&mut self, now: Time, id: u32) {
        self.forget_qp(id);
        self.set_state(id, State::Timewait);
        let Some(conn) = self.conns.get_mut(&id) else { return };
        conn.sending = None;
        let at = now + conn.pace.timewait;
        self.set_timer(id, Some(at));
    }

    /// Ends an established connection.
    pub(crate) fn ended(&mut self, now: Time, id: u32, how: Ending) {
        self.event(id, Event::Disconnected(how));
        self.enter_timewait(now, id);
    }

    /// Sends the DREQ until it is answered.
    pub(crate) fn begin_disconnect(&mut self, now: Time, id: u32, mut dreq: Dreq) {
        let Some(conn) = self.conns.get(&id) else { return };
        dreq.local_id = id;
        dreq.remote_id = conn.remote_id.unwrap_or(0);
        dreq.remote_qpn = conn.remote_qpn;
        let transaction = self.transaction(id);
        self.set_state(id, State::DreqSent);
        self.send_until_answered(now, id, Message::from(dreq).emit(transaction));
    }

    /// Answers the peer's DREQ (DREP). The endpoint keeps the answer for a peer that asks again.
    pub(crate) fn confirm_disconnect(&mut self, now: Time, id: u32, mut drep: Drep) {
        let Some(conn) = self.conns.get(&id) else { return };
        drep.local_id = id;
        drep.remote_id = conn.remote_id.unwrap_or(0);
        let mad = Message::from(drep).emit(conn.dreq_transaction);
        self.enter_timewait(now, id);
        self.send_and_keep(id, mad);
    }

    /// The transaction id of an exchange that this end begins.
    pub(crate) const fn transaction(&self, id: u32) -> u64 {
        (self.config.transaction as u64) << 32 | id as u64
    }
}

/// The peer's identifiers of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Remote {
    /// Addresses.
    pub path: Path,
    /// Communication id of the peer.
    pub remote_id: u32,
    /// Queue pair of the peer.
    pub remote_qpn: u32,
    /// Queue pair of this end.
    pub local_qpn: u32,
}
