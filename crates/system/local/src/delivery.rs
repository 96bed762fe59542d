//! Connections between the processes of one user on one host.
//!
//! 1. The owner of a slot listens at the slot's name.
//! 2. To send to the slot, a process connects, and asks the kernel for the user of the other end
//!    before sending anything.
//! 3. The owner accepts the connection, and asks the kernel for the user of the other end before
//!    reading anything.
//!
//! Both answers hold for the lifetime of the connection. So a name gets nothing if the owner
//! changes between two messages, or if another user holds the name (TRU-1).

use std::collections::HashMap;
use std::hash::Hash;
use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use adverb_os::owner::{self, Proof};
use adverb_os::sys::{self, EVENTS, Fd, RawAddr};

use crate::connection::{
    Connection, ConnectionId, FRAMES, LISTENER, OUTGOING, SERVICE, Sender, TO_SERVICE, Taken,
    Taking, Untold, has_ended, received,
};
use crate::frame_queue::RawFrame;
use crate::local::Local;
use crate::message::{self, Message, ReceivedHandshake};
use crate::packet::{Arrived, Taker};
use crate::slot::{self, Slot};
use crate::stats::add;

/// The largest number of connections in each direction. Beyond it, the connection idle for the
/// longest time ends.
const MOST: usize = 256;
/// The bytes in flight over one connection, in the kernel's accounting (`SO_SNDBUF`).
const IN_FLIGHT: usize = 512 << 10;
/// The number of connections accepted at a time.
const ACCEPTS: usize = 64;
/// The number of messages taken from one connection before the other connections get a turn.
const IN_A_ROW: u32 = 32;
/// The largest number of looks at all connections in one call.
const ROUNDS: usize = 16;
/// The number of unsuccessful looks at the most recently busy connection. After these looks the
/// connection is looked at only together with all others.
const EMPTY_LOOKS: u32 = 16;
impl Local {
    /// Sends a message to the owner of a slot, and returns the id of the connection. Costs one
    /// system call if the connection exists.
    pub(crate) fn tell(
        &self,
        slot: Slot,
        parts: &[&[u8]],
        fds: &[BorrowedFd<'_>],
    ) -> Result<ConnectionId, Untold> {
        // A second attempt if the known owner has ended: another process may have the slot.
        for _ in 0..2 {
            let known = self.outgoing.connections.read().get(&slot).cloned();
            let connection = match known {
                Some(connection) => connection,
                None => self.connect(slot)?,
            };
            connection.used.store(self.outgoing.clock.fetch_add(1, Relaxed), Relaxed);
            loop {
                let Err(error) = sys::send_local(&connection.fd, parts, fds) else {
                    return Ok(connection.id);
                };
                match error.raw_os_error() {
                    Some(libc::EINTR) => continue,
                    Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => return Err(Untold::Full),
                    Some(
                        libc::EPIPE
                        | libc::ECONNRESET
                        | libc::ENOTCONN
                        | libc::ECONNREFUSED
                        | libc::EBADF,
                    ) => break,
                    _ => return Err(Untold::Other(error)),
                }
            }
            self.close_ended(slot, |known| Arc::ptr_eq(known, &connection));
        }
        Err(Untold::NoOwner)
    }

    /// Closes the connection to a slot's owner because the owner has ended, if `is_meant` accepts
    /// the connection.
    fn close_ended(&self, slot: Slot, is_meant: impl Fn(&Arc<Connection>) -> bool) {
        let mut connections = self.outgoing.connections.write();
        if connections.get(&slot).is_some_and(is_meant)
            && let Some(connection) = connections.remove(&slot)
        {
            self.unwatch(&connection.fd);
            self.keep_ended(connection.id);
        }
    }

    /// Stops watching a connection before the close. Closing is not enough, because a child of the
    /// program may still have the socket.
    pub(crate) fn unwatch(&self, fd: &Fd) {
        sys::unwatch(self.incoming.any.own(), fd.own());
    }

    /// Ends the connection idle for the longest time, if there are as many as `most`. The receiver
    /// still reads the messages in flight.
    pub(crate) fn make_room<K: Clone + Eq + Hash, C>(
        &self,
        connections: &mut HashMap<K, C>,
        most: usize,
        parts: impl Fn(&C) -> (&Fd, &AtomicU64),
    ) {
        let used = |(_, known): &(&K, &C)| parts(known).1.load(Relaxed);
        if connections.len() >= most
            && let Some(idle) = connections.iter().min_by_key(used).map(|(key, _)| key.clone())
            && let Some(known) = connections.remove(&idle)
        {
            self.unwatch(parts(&known).0);
        }
    }

    /// Connects to the owner of a slot, unless a connection exists.
    pub(crate) fn connection_to(&self, slot: Slot) -> Result<(), Untold> {
        let known = self.outgoing.connections.read().contains_key(&slot);
        if known { Ok(()) } else { self.connect(slot).map(drop) }
    }

    fn connect(&self, slot: Slot) -> Result<Arc<Connection>, Untold> {
        let name = slot::slot_name(self.uid(), slot);
        let (fd, pid) = self.prove_process(&name)?;
        sys::grow_buffer(&fd, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, IN_FLIGHT);
        let mut connections = self.outgoing.connections.write();
        if let Some(connection) = connections.get(&slot) {
            // Another thread has connected meanwhile. A single connection keeps the order of
            // messages.
            return Ok(connection.clone());
        }
        self.make_room(&mut connections, MOST, |known| (&known.fd, &known.used));
        // Nothing arrives on this connection except its end. The end closes the connection, so
        // ended processes leave nothing behind.
        let any = self.incoming.any.own();
        sys::watch_for(any, fd.own(), 0, OUTGOING | u64::from(slot)).map_err(Untold::Other)?;
        let id = ConnectionId { slot, number: self.outgoing.next.fetch_add(1, Relaxed) };
        let (used, carries_mads) = (AtomicU64::new(0), AtomicBool::new(false));
        let connection = Arc::new(Connection { fd, id, pid, used, carries_mads });
        connections.insert(slot, connection.clone());
        Ok(connection)
    }

    /// Connects to the process listening at a name, if the process belongs to the own user.
    ///
    /// # Errors
    /// The other user holding the name, or why there is no connection.
    pub fn prove_owner(&self, name: &str) -> Result<Fd, Untold> {
        self.prove_process(name).map(|(fd, _)| fd)
    }

    /// As [`prove_owner`](Self::prove_owner), with the process id of the other end.
    pub(crate) fn prove_process(&self, name: &str) -> Result<(Fd, i32), Untold> {
        if !self.tells_users_apart() {
            return Err(Untold::NoOwner);
        }
        let fd = sys::message_socket(&self.fds).map_err(Untold::Other)?;
        while let Err(error) = sys::connect(&fd, &RawAddr::abstract_name(name)) {
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                // The listener's backlog is full, if the listener is a process of this user.
                Some(libc::EAGAIN) => {
                    let other = self.other_holder(name);
                    return Err(other.map_or(Untold::Full, Untold::OtherUser));
                }
                // No process has the name, or its holder does not listen, or the socket type
                // differs.
                _ => return Err(Untold::NoOwner),
            }
        }
        match owner::prove(&fd, self.uid()).map_err(Untold::Other)? {
            // The other end still sees the connection, and so learns of the change.
            Proof::Own(pid) => {
                self.changed_user().map_or(Ok((fd, pid)), |changed| Err(Untold::Changed(changed)))
            }
            Proof::OtherUser(uid) => {
                add(&self.counters.local_refused_other_user, 1);
                Err(Untold::OtherUser(uid))
            }
        }
    }

    /// The other user holding a name, if there is one.
    pub(crate) fn other_holder(&self, name: &str) -> Option<u32> {
        owner::holders(|held| held == name).into_keys().find(|uid| *uid != self.uid())
    }

    /// Takes messages of this user's other processes, without waiting. Each message is received
    /// into `buffer`, which must have room for [`message::MAX_MESSAGE`] bytes. Packets go to
    /// `take`, until `take` has given about `budget` packets to its receiver. Returns this number.
    ///
    /// Only one thread takes messages at a time. Meanwhile the call returns 0 in other threads.
    pub fn receive(&self, buffer: &mut [u8], budget: usize, take: Taker<'_>) -> usize {
        let Some(mut taking) = self.incoming.taking.try_lock() else { return 0 };
        let taking = &mut *taking;
        let mut tokens = [0; EVENTS];
        let mut done = 0;
        // For the most recently busy connection: one call for each message, and one call to see no
        // further message.
        while let Some(hot) = taking.hot.filter(|_| taking.row < IN_A_ROW && done < budget) {
            match self.take_from(taking, hot, buffer, take) {
                Some(n) => {
                    done += n;
                    (taking.row, taking.vain) = (taking.row + 1, 0);
                }
                None if done > 0 => return done,
                None => {
                    taking.vain += 1;
                    taking.hot = taking.hot.filter(|_| taking.vain < EMPTY_LOOKS);
                    break;
                }
            }
        }
        for _ in 0..ROUNDS {
            if done >= budget {
                break;
            }
            taking.row = 0;
            let n = match sys::wait_any(&self.incoming.any, &mut tokens) {
                Ok(n) => n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    self.errors.note("wait for the connections of other processes", &error);
                    break;
                }
            };
            if n == 0 {
                break;
            }
            for &token in &tokens[..n] {
                if token >= FRAMES {
                    self.recv_frames(token, buffer);
                } else if token >= SERVICE {
                    if let Some(fd) = self.services.get(token) {
                        self.accept(taking, &fd, Some(token));
                    }
                } else if token & LISTENER != 0 {
                    let slot = (token & !LISTENER) as Slot;
                    if let Some(claim) = self.claims().iter().find(|claim| claim.slot() == slot) {
                        self.accept(taking, &claim.fd, None);
                    }
                } else if (TO_SERVICE..LISTENER).contains(&token) {
                    self.forget_asked(|asked| asked.token == token && has_ended(&asked.fd));
                } else if token & OUTGOING != 0 {
                    self.close_ended((token & !OUTGOING) as Slot, |known| has_ended(&known.fd));
                } else if let Some(n) = self.take_from(taking, token, buffer, take) {
                    done += n;
                    (taking.hot, taking.vain) = (Some(token), 0);
                }
            }
        }
        done
    }

    /// Takes one message; `None` if there is none.
    fn take_from(
        &self,
        taking: &mut Taking,
        token: u64,
        buffer: &mut [u8],
        take: Taker<'_>,
    ) -> Option<usize> {
        let Some(connection) = taking.connections.get_mut(&token) else {
            taking.hot = taking.hot.filter(|hot| *hot != token);
            return None;
        };
        let local = loop {
            match sys::recv_local(&connection.fd, buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Ok(local) if local.len > 0 => break local,
                // End of the connection. ECONNRESET: the process ended and left something unread.
                ended => {
                    if let Err(error) = ended
                        && error.raw_os_error() != Some(libc::ECONNRESET)
                    {
                        self.errors.note("receive from another process of this host", &error);
                    }
                    self.unwatch(&connection.fd);
                    taking.connections.remove(&token);
                    return None;
                }
            }
        };
        taking.clock += 1;
        (connection.used, taking.clock) = (taking.clock, taking.clock);
        if local.cut {
            add(&self.counters.local_drop_malformed, 1);
            return Some(0);
        }
        let sender = Sender { pid: connection.pid, token, fds: local.fds, transit: local.transit };
        Some(self.take_message(received(buffer, local.len), sender, take))
    }

    /// Handles a message. Packets go to `take`; handshake messages and frames are kept.
    pub(crate) fn take_message(&self, bytes: &[u8], sender: Sender, take: Taker<'_>) -> usize {
        match message::parse(bytes) {
            Some(Message::Packets { envelope, from_sender, packets }) => {
                return take(Arrived::Packets { envelope, from_sender, packets });
            }
            Some(Message::Refresh { ip }) => return take(Arrived::Refresh { ip }),
            Some(Message::Handshake(message)) => {
                let Sender { pid, fds, transit, .. } = sender;
                self.keep_handshake(ReceivedHandshake { message, pid, fds, transit });
            }
            Some(Message::Question(question)) => self.keep_question(sender.token, question),
            Some(Message::Frame { interface, bytes }) => {
                add(&self.counters.frames_in, 1);
                self.keep_frame(RawFrame { interface, leaving: false, bytes: bytes.to_vec() });
            }
            Some(Message::Answer { .. }) | None => self.note_malformed(),
        }
        0
    }

    /// Tells the owner of a slot that this process's socket at an address is closed. Returns
    /// `false` if the message was not sent.
    pub fn tell_refresh(&self, slot: Slot, ip: IpAddr) -> bool {
        self.tell(slot, &[&message::refresh(ip)], &[]).is_ok()
    }

    /// Answers a steering test of this user's process listening at a name, with the slots of this
    /// process. Returns `false` if the answer was not sent.
    pub fn answer_steering_test(&self, name: &str, nonce: u64, index: u32) -> bool {
        let answer = message::answer(nonce, index, &self.slots());
        self.prove_owner(name).is_ok_and(|tester| sys::send_local(&tester, &[&answer], &[]).is_ok())
    }

    /// Accepts a connection at a listener of this process. `None`: the connection was another
    /// user's, and was closed.
    ///
    /// # Errors
    /// No connection is waiting, or another error of the kernel.
    pub fn accept_proved(&self, listener: &Fd) -> io::Result<Option<Fd>> {
        let fd = sys::accept(&self.fds, listener)?;
        if matches!(owner::prove(&fd, self.uid()), Ok(Proof::Own(_))) {
            return Ok(Some(fd));
        }
        add(&self.counters.local_drop_other_user, 1);
        Ok(None)
    }

    /// Accepts connections at the name of a slot or a service. Connections of other users end
    /// before a byte is read.
    fn accept(&self, taking: &mut Taking, listener: &Fd, service: Option<u64>) {
        if taking.spare.is_none() {
            taking.spare = sys::message_socket(&self.fds).ok();
        }
        for _ in 0..ACCEPTS {
            let fd = match sys::accept(&self.fds, listener) {
                Ok(fd) => fd,
                Err(error) => match error.raw_os_error() {
                    Some(libc::EINTR | libc::ECONNABORTED | libc::E2BIG) => continue,
                    Some(libc::EMFILE | libc::ENFILE) if taking.spare.take().is_some() => {
                        // Out of descriptors: accept and close the connection with the spare
                        // descriptor. Otherwise the connection would stay in the backlog, and keep
                        // the listener readable.
                        drop(sys::accept(&self.fds, listener));
                        taking.spare = sys::message_socket(&self.fds).ok();
                        continue;
                    }
                    _ => return self.errors.note("accept another process of this host", &error),
                },
            };
            let proof = owner::prove(&fd, self.uid()).ok().filter(|_| self.tells_users_apart());
            let Some(Proof::Own(pid)) = proof else {
                if let (Some(Proof::OtherUser(uid)), Ok((_, pid))) = (proof, sys::peer(&fd)) {
                    self.remember_sent_away(pid, uid);
                }
                let before = self.counters.local_drop_other_user.fetch_add(1, Relaxed);
                if let (Some(Proof::OtherUser(uid)), true) = (proof, before == 0) {
                    log::warn!(
                        "{} connected to {} of this process and was sent away",
                        adverb_os::User(uid),
                        if service.is_some() { "a service" } else { "a slot" }
                    );
                }
                continue;
            };
            self.forget_sent_away(pid);
            if taking.connections.len() >= MOST
                && let Some(idle) =
                    taking.connections.values_mut().filter(|l| !l.leaving).min_by_key(|l| l.used)
            {
                idle.leaving = true;
                sys::take_no_more(&idle.fd);
            }
            if taking.connections.len() >= 2 * MOST {
                continue;
            }
            (taking.next, taking.clock) = (taking.next + 1, taking.clock + 1);
            let token = taking.next;
            match sys::watch(&self.incoming.any, &fd, token) {
                Ok(()) => {
                    let taken = Taken { fd, pid, used: taking.clock, leaving: false, service };
                    taking.connections.insert(token, taken);
                }
                Err(error) => self.errors.note("watch another process of this host", &error),
            }
        }
    }
}
