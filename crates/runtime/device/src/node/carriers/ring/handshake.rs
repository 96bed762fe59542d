//! How two processes of a host come to share memory.
//!
//! Each process gives the other a ring to write to, the published tables, the shared file and a
//! doorbell. The doorbell is made for this peer alone. A repeated handshake message to the same
//! peer carries the same doorbell. The peer counts the giver as alive as long as the giver keeps
//! its end of the doorbell. A handshake message lists the slots of the sender. The receiver accepts
//! only slots confirmed by the kernel, so no process can pass for another (TRU-3).
use super::rings::Rings;
use crate::error::Error;
use crate::host::{COPIES, Given, HandshakeFds, HostConnections, MTU, Peer};
use crate::node::core::Node;
use adverb_link::RxFrom;
use adverb_local::{ConnectionId, Doorbell, HandshakeMessage, ReceivedHandshake, Slot};
use adverb_os::Transit;
use adverb_shm::{Consumer, Producer};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a process waits for the answer to a handshake message. The peer's background thread
/// answers.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(2);
/// The largest number of unanswered handshake messages kept after the wait has timed out. A late
/// answer to a kept handshake message is still accepted.
const UNANSWERED: usize = 16;
/// The largest number of slots that the kernel is asked about for a handshake message. Slots at
/// which this process has sent a handshake message do not count.
const ASKED: usize = 64;

/// Handshakes of a node. A node without shared memory answers handshake messages as well, by a
/// refusal.
#[derive(Clone, Copy)]
pub(crate) struct Handshake<'a>(pub(crate) &'a Node);

impl<'a> Handshake<'a> {
    fn rings(&self, host: &'a HostConnections) -> Rings<'a> {
        Rings { node: self.0, host }
    }

    /// The peer that owns the queue pair `qpn` at `ip`, if packets to the queue pair need no
    /// network. Starts the handshake with an unknown peer and waits for the answer.
    ///
    /// # Errors
    /// EPERM if the queue pair belongs to another process of this host, and one of the two
    /// processes has changed its user. No new connection can be made between them.
    pub(crate) fn peer_of(&self, ip: IpAddr, qpn: u32) -> Result<Option<Arc<Peer>>, Error> {
        let Some(slot) = adverb_local::slot_of_qpn(qpn).filter(|_| self.0.is_own_address(ip))
        else {
            return Ok(None);
        };
        let host = self.0.host.as_ref();
        if let Some(peer) = host.and_then(|host| self.known_peer(host, slot)) {
            return Ok(Some(peer));
        }
        if self.0.link.owns(slot) {
            return Ok(host.and_then(|host| self.own_peer(host)));
        }
        if let Some(changed) = self.0.link.changed_user() {
            return Err(Error::new(Errno::EPERM, changed.to_string()));
        }
        let peer = host.and_then(|host| self.meet(host, slot));
        match self.0.link.changed_owner(slot).filter(|_| peer.is_none()) {
            Some(changed) => {
                log::error!("{changed}");
                Err(Error::new(Errno::EPERM, changed.to_string()))
            }
            None => Ok(peer),
        }
    }

    fn known_peer(&self, host: &'a HostConnections, slot: Slot) -> Option<Arc<Peer>> {
        let peer = host.known(slot).filter(|p| !p.was_left())?;
        if peer.links.has_ended() {
            // Another process may own the slot by now, before the background thread has seen the
            // end of the peer.
            self.rings(host).see_end(&peer);
            return None;
        }
        Some(peer)
    }

    /// Starts the handshake with the process of a slot, unless the process has refused, and waits
    /// for the answer.
    fn meet(&self, host: &'a HostConnections, slot: Slot) -> Option<Arc<Peer>> {
        if host.refuses(slot) {
            return None;
        }
        let _one = host.handshaking.lock();
        if let Some(peer) = host.known(slot).filter(|p| !p.was_left()) {
            return Some(peer);
        }
        self.offer(host, slot)
    }

    /// This process as its own peer.
    fn own_peer(&self, host: &'a HostConnections) -> Option<Arc<Peer>> {
        let _one = host.handshaking.lock();
        let _transit = Transit::begin();
        let slots = self.0.link.slots();
        let known = slots.iter().find_map(|slot| host.known(*slot).filter(|p| p.is_own));
        let peer = match known {
            Some(peer) => peer,
            None => {
                let own =
                    Peer::own(host).and_then(|peer| peer.watch(&host.doorbells).map(|()| peer));
                Arc::new(own.inspect_err(|e| log::info!("no ring within the process: {e}")).ok()?)
            }
        };
        host.enter(&slots, &peer);
        Some(peer)
    }

    fn own_message(&self, host: &'a HostConnections, wants_answer: bool) -> HandshakeMessage {
        HandshakeMessage { nonce: host.nonce, wants_answer, mtu: MTU, slots: self.0.link.slots() }
    }

    /// Makes a ring for a process, and sends the ring with all other shared objects.
    fn send_objects(
        &self,
        host: &'a HostConnections,
        slot: Slot,
        wants_answer: bool,
        doorbell: &Doorbell,
    ) -> io::Result<(ConnectionId, Consumer)> {
        let _transit = Transit::begin();
        let (ring, fd) = Consumer::create().map_err(io::Error::other)?;
        let handle = doorbell.to_give().ok_or(io::ErrorKind::NotConnected)?;
        let tables = host.tables.borrow().ok_or(io::ErrorKind::NotConnected)?;
        let fds = [fd.as_fd(), handle, tables, host.file.fd()?];
        let connection =
            self.0.link.send_handshake(slot, &self.own_message(host, wants_answer), &fds)?;
        Ok((connection, ring))
    }

    fn offer(&self, host: &'a HostConnections, slot: Slot) -> Option<Arc<Peer>> {
        {
            // Locked until the ring is in the map: the answer, or the peer's own handshake message,
            // may arrive before.
            let mut unanswered = host.unanswered.lock();
            if let Some(peer) = host.known(slot).filter(|p| !p.was_left()) {
                return Some(peer);
            }
            let doorbell = unanswered
                .remove(&slot)
                .map_or_else(|| host.doorbells.make(), |given| Ok(given.doorbell));
            let sent = doorbell.and_then(|doorbell| {
                let (connection, ring) = self.send_objects(host, slot, true, &doorbell)?;
                Ok(Given { connection, ring, doorbell })
            });
            match sent {
                Ok(given) => unanswered.insert(slot, given),
                Err(e) => {
                    let stranger = e.kind() == io::ErrorKind::PermissionDenied;
                    let level = if stranger { log::Level::Warn } else { log::Level::Debug };
                    log::log!(
                        level,
                        "no handshake with slot {slot}, so packets go over the network: {e}"
                    );
                    // No process listens at the slot now. The next owner of the slot needs a
                    // handshake.
                    if e.kind() != io::ErrorKind::ConnectionRefused {
                        host.refuse(slot);
                    }
                    return None;
                }
            };
        }
        let until = Instant::now() + HANDSHAKE_TIMEOUT;
        loop {
            self.0.receive(RxFrom::Processes, false);
            self.answer_handshakes();
            if let Some(peer) = host.known(slot).filter(|p| !p.was_left()) {
                host.unanswered.lock().remove(&slot);
                return Some(peer);
            }
            if !host.unanswered.lock().contains_key(&slot) {
                // Either the process has ended, and the next owner of the slot needs a handshake;
                // or another thread took the answer.
                return host.known(slot).filter(|p| !p.was_left());
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || host.refuses(slot) || self.0.link.changed_owner(slot).is_some() {
                break;
            }
            let mut fds = [PollFd::new(self.0.packets_fd(), PollFlags::POLLIN)];
            let wait = left.min(Duration::from_millis(1));
            let _ = poll(&mut fds, PollTimeout::try_from(wait).unwrap_or(PollTimeout::ZERO));
        }
        let mut unanswered = host.unanswered.lock();
        // A slow process may still answer. Without the entry here the doorbell would break, and the
        // slow process would take this process for ended.
        if host.refuses(slot) || unanswered.len() > UNANSWERED {
            unanswered.remove(&slot);
        }
        drop(unanswered);
        host.refuse(slot);
        log::info!(
            "the process of slot {slot} did not agree to share memory, so packets go over the \
             network"
        );
        None
    }

    /// Answers handshake messages, and enters their senders as peers.
    pub(crate) fn answer_handshakes(&self) -> bool {
        let ended = self.0.link.ended();
        let slots: Vec<Slot> = ended.iter().map(ConnectionId::slot).collect();
        self.0.mads.peers_ended(self.0, &slots);
        if let Some(host) = self.0.host.as_ref().filter(|_| !ended.is_empty()) {
            // The processes have ended, so no process has these objects any more.
            host.unanswered.lock().retain(|_, given| !ended.contains(&given.connection));
        }
        let handshakes = self.0.link.handshakes();
        let any = !handshakes.is_empty();
        for ReceivedHandshake { mut message, pid, fds, transit: _transit } in handshakes {
            message.slots = self.confirmed_slots(&message.slots, pid);
            let Some(&first) = message.slots.first() else {
                log::debug!("a handshake of process {pid} names only slots of other processes");
                continue;
            };
            let Err(e) = self.answer_handshake(&message, pid, fds) else { continue };
            log::info!("process {pid} is reached over the network: {e}");
            let Some(host) = &self.0.host else { continue };
            message.slots.iter().for_each(|slot| host.refuse(*slot));
            // The sender may already write to the ring, but this process reads nothing from there.
            if !host.all.read().iter().any(|p| p.nonce == message.nonce) {
                let _ = self.decline(first);
            }
        }
        any
    }

    /// The slots held by the process, as confirmed by the kernel.
    fn confirmed_slots(&self, slots: &[Slot], pid: i32) -> Vec<Slot> {
        let host = self.0.host.as_ref();
        let mut left = ASKED;
        let is_confirmed = |slot: &Slot| {
            // A slot of this process belongs to no other process.
            if self.0.link.owns(*slot) {
                return false;
            }
            // The kernel has confirmed this slot before.
            if host.and_then(|l| l.known(*slot)).is_some_and(|p| p.pid == pid && !p.has_left()) {
                return true;
            }
            if !host.is_some_and(|host| host.unanswered.lock().contains_key(slot)) {
                if left == 0 {
                    return false;
                }
                left -= 1;
            }
            self.0.link.is_held_by(*slot, pid)
        };
        let mut confirmed = slots.to_vec();
        confirmed.retain(is_confirmed);
        confirmed
    }

    /// Tells the process of a slot that this process shares no memory with it.
    fn decline(&self, slot: Slot) -> io::Result<()> {
        let no =
            HandshakeMessage { nonce: 0, wants_answer: false, mtu: 0, slots: self.0.link.slots() };
        self.0.link.send_handshake(slot, &no, &[]).map(drop)
    }

    fn answer_handshake(
        &self,
        message: &HandshakeMessage,
        pid: i32,
        fds: Vec<OwnedFd>,
    ) -> io::Result<()> {
        let first = message.slots[0];
        let Some(host) = &self.0.host else {
            // An immediate refusal spares the sender the wait for an answer.
            return if message.wants_answer { self.decline(first) } else { Ok(()) };
        };
        if message.mtu == 0 {
            for slot in &message.slots {
                host.refuse(*slot);
                if let Some(peer) = host.known(*slot).filter(|p| p.pid == pid) {
                    self.rings(host).leave(&peer, "shares no memory with this process after all");
                }
            }
            return Ok(());
        }
        if message.nonce == host.nonce {
            return Ok(());
        }
        // Locked to the end. A thread about to send a handshake message to the same peer finds the
        // peer known afterwards, so each side makes a single ring.
        let mut unanswered = host.unanswered.lock();
        let given = message.slots.iter().find_map(|slot| unanswered.remove(slot));
        let known = host.all.read().iter().find(|p| p.nonce == message.nonce).cloned();
        match known {
            // The peer has left, and comes back.
            Some(peer) if peer.pid == pid && peer.has_left() => {
                self.rings(host).leave(&peer, "has left")
            }
            Some(peer) => {
                // Descriptors are not needed here, but any descriptors from the peer have to be
                // valid.
                let given_fds = (!fds.is_empty())
                    .then(|| HandshakeFds::of(fds, &host.doorbells))
                    .transpose()?;
                return self.answer_repeated(host, &peer, message, pid, given, given_fds);
            }
            None => {}
        }
        let of_process = |peer: &&Arc<Peer>| peer.pid == pid && !peer.has_left();
        if host.all.read().iter().filter(of_process).count() >= COPIES {
            return Err(io::Error::other(format!("the process is {COPIES} peers already")));
        }
        let given_fds = HandshakeFds::of(fds, &host.doorbells)?;
        if given_fds.has_ended() {
            // The sender has ended; or it has withdrawn this handshake message, and sends another
            // one.
            return Ok(());
        }
        let given = match given {
            Some(given) => given,
            None => {
                let doorbell = host.doorbells.make()?;
                let (connection, ring) = self.send_objects(host, first, false, &doorbell)?;
                Given { connection, ring, doorbell }
            }
        };
        let peer = Arc::new(Peer::new(pid, message, given, given_fds, &host.doorbells)?);
        peer.watch(&host.doorbells)?;
        host.enter(&message.slots, &peer);
        log::debug!("process {pid} (slots {:?}) shares memory with this process", message.slots);
        Ok(())
    }

    /// Handles a handshake message of a known peer. The peer has one more slot, looks for a slot of
    /// ours still unknown to the peer, or has lost the given objects. A new ring replaces the old
    /// ring for new records. The records in the old rings are still read.
    fn answer_repeated(
        &self,
        host: &'a HostConnections,
        peer: &Arc<Peer>,
        message: &HandshakeMessage,
        pid: i32,
        given: Option<Given>,
        given_fds: Option<HandshakeFds>,
    ) -> io::Result<()> {
        if peer.pid != pid || peer.is_own {
            return Err(io::Error::other("the handshake names another process"));
        }
        host.enter(&message.slots, peer);
        // The peer already has the doorbell, and the doorbell from the peer has not changed.
        if let Some(Given { ring, .. }) = given {
            host.add_ring(peer, ring);
        }
        let given = given_fds.is_some();
        if let Some(given_fds) = given_fds {
            peer.outgoing.replace(Producer::open(given_fds.ring).map_err(io::Error::other)?);
        }
        let first = message.slots[0];
        match message.wants_answer {
            true if given => {
                let links = peer.links.met().ok_or(io::ErrorKind::NotConnected)?;
                host.add_ring(peer, self.send_objects(host, first, false, &links.doorbell)?.1);
            }
            true => drop(self.0.link.send_handshake(first, &self.own_message(host, false), &[])?),
            false => {}
        }
        Ok(())
    }
}
