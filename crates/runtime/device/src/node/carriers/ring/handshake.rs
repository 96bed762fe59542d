//! How two processes of a host come to share memory.
//!
//! Each process gives the other a ring to write to, the published tables, the shared file and a
//! doorbell. The doorbell is made for this peer alone. A repeated greeting to the same peer carries
//! the same doorbell. The peer counts the giver as alive as long as the giver keeps its end of the
//! doorbell. A greeting lists the slots of the sender. The receiver accepts only slots confirmed by
//! the kernel, so no process can pass for another (TRU-3).
use super::rings::Rings;
use crate::error::Error;
use crate::host::{COPIES, Given, HandshakeFds, Lanes, MTU, Peer};
use crate::node::core::Node;
use adverb_link::RxFrom;
use adverb_local::{Bell, ConnectionId, Greeting, Hello, Slot};
use adverb_os::Transit;
use adverb_shm::Consumer;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a process waits for the answer to a greeting. The peer's background thread answers.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(2);
/// The largest number of unanswered greetings kept after the wait has timed out. A late answer to a
/// kept greeting is still accepted.
const UNANSWERED: usize = 16;
/// The largest number of slots that the kernel is asked about for a greeting. Slots at which this
/// process has greeted the sender do not count.
const ASKED: usize = 64;

/// Greetings of a node. A node without shared memory answers greetings as well, by a refusal.
#[derive(Clone, Copy)]
pub(crate) struct Handshake<'a>(pub(crate) &'a Node);

impl<'a> Handshake<'a> {
    fn rings(&self, lanes: &'a Lanes) -> Rings<'a> {
        Rings { node: self.0, lanes }
    }

    /// The peer that owns the queue pair `qpn` at `ip`, if packets to the queue pair need no
    /// network. Greets an unknown peer and waits for the answer.
    ///
    /// # Errors
    /// EPERM if the queue pair belongs to another process of this host, and one of the two
    /// processes has changed its user. No new connection can be made between them.
    pub(crate) fn peer_of(&self, ip: IpAddr, qpn: u32) -> Result<Option<Arc<Peer>>, Error> {
        let Some(slot) = adverb_local::slot_of_qpn(qpn).filter(|_| self.0.is_own_address(ip)) else {
            return Ok(None);
        };
        let lanes = self.0.lanes.as_ref();
        if let Some(peer) = lanes.and_then(|lanes| self.known_peer(lanes, slot)) {
            return Ok(Some(peer));
        }
        if self.0.link.owns(slot) {
            return Ok(lanes.and_then(|lanes| self.own_peer(lanes)));
        }
        if let Some(changed) = self.0.link.changed_user() {
            return Err(Error::new(Errno::EPERM, changed.to_string()));
        }
        let peer = lanes.and_then(|lanes| self.meet(lanes, slot));
        match self.0.link.changed_owner(slot).filter(|_| peer.is_none()) {
            Some(changed) => {
                log::error!("{changed}");
                Err(Error::new(Errno::EPERM, changed.to_string()))
            }
            None => Ok(peer),
        }
    }

    fn known_peer(&self, lanes: &'a Lanes, slot: Slot) -> Option<Arc<Peer>> {
        let peer = lanes.known(slot).filter(|p| !p.is_gone())?;
        if peer.has_ended() {
            // Another process may own the slot by now, before the background thread has seen the
            // end of the peer.
            self.rings(lanes).see_end(&peer);
            return None;
        }
        Some(peer)
    }

    /// Greets the process of a slot, unless the process has refused, and waits for the answer.
    fn meet(&self, lanes: &'a Lanes, slot: Slot) -> Option<Arc<Peer>> {
        if lanes.refuses(slot) {
            return None;
        }
        let _one = lanes.greeting.lock();
        if let Some(peer) = lanes.known(slot).filter(|p| !p.is_gone()) {
            return Some(peer);
        }
        self.greet(lanes, slot)
    }

    /// This process as its own peer.
    fn own_peer(&self, lanes: &'a Lanes) -> Option<Arc<Peer>> {
        let _one = lanes.greeting.lock();
        let _transit = Transit::begin();
        let slots = self.0.link.slots();
        let known = slots.iter().find_map(|slot| lanes.known(*slot).filter(|p| p.is_own()));
        let peer = match known {
            Some(peer) => peer,
            None => {
                let own = Peer::own(lanes).and_then(|peer| peer.watch(&lanes.bells).map(|()| peer));
                Arc::new(own.inspect_err(|e| log::info!("no lane within the process: {e}")).ok()?)
            }
        };
        lanes.enter(&slots, &peer);
        Some(peer)
    }

    fn hello(&self, lanes: &'a Lanes, wants_answer: bool) -> Hello {
        Hello { nonce: lanes.nonce, wants_answer, mtu: MTU, slots: self.0.link.slots() }
    }

    /// Makes a ring for a process, and sends the ring with all other shared objects.
    fn send_hello(
        &self,
        lanes: &'a Lanes,
        slot: Slot,
        wants_answer: bool,
        bell: &Bell,
    ) -> io::Result<(ConnectionId, Consumer)> {
        let _transit = Transit::begin();
        let (ring, fd) = Consumer::create().map_err(io::Error::other)?;
        let rope = bell.to_give().ok_or(io::ErrorKind::NotConnected)?;
        let tables = lanes.tables.borrow().ok_or(io::ErrorKind::NotConnected)?;
        let fds = [fd.as_fd(), rope, tables, lanes.file.fd()?];
        let connection = self.0.link.greet(slot, &self.hello(lanes, wants_answer), &fds)?;
        Ok((connection, ring))
    }

    fn greet(&self, lanes: &'a Lanes, slot: Slot) -> Option<Arc<Peer>> {
        {
            // Locked until the ring is in the map: the answer, or the peer's own greeting, may
            // arrive before.
            let mut greeted = lanes.greeted.lock();
            if let Some(peer) = lanes.known(slot).filter(|p| !p.is_gone()) {
                return Some(peer);
            }
            let bell = greeted.remove(&slot).map_or_else(|| lanes.bells.make(), |given| Ok(given.bell));
            let sent = bell.and_then(|bell| {
                let (connection, ring) = self.send_hello(lanes, slot, true, &bell)?;
                Ok(Given { connection, ring, bell })
            });
            match sent {
                Ok(given) => greeted.insert(slot, given),
                Err(e) => {
                    let stranger = e.kind() == io::ErrorKind::PermissionDenied;
                    let level = if stranger { log::Level::Warn } else { log::Level::Debug };
                    log::log!(level, "no handshake with slot {slot}, so packets go over the network: {e}");
                    // No process listens at the slot now. The next owner of the slot has to be
                    // greeted.
                    if e.kind() != io::ErrorKind::ConnectionRefused {
                        lanes.refuse(slot);
                    }
                    return None;
                }
            };
        }
        let until = Instant::now() + HANDSHAKE_TIMEOUT;
        loop {
            self.0.receive(RxFrom::HandOver, false);
            self.take_greetings();
            if let Some(peer) = lanes.known(slot).filter(|p| !p.is_gone()) {
                lanes.greeted.lock().remove(&slot);
                return Some(peer);
            }
            if !lanes.greeted.lock().contains_key(&slot) {
                // Either the process has ended, and the next owner of the slot has to be greeted;
                // or another thread took the answer.
                return lanes.known(slot).filter(|p| !p.is_gone());
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || lanes.refuses(slot) || self.0.link.changed_owner(slot).is_some() {
                break;
            }
            let mut fds = [PollFd::new(self.0.packets_fd(), PollFlags::POLLIN)];
            let wait = left.min(Duration::from_millis(1));
            let _ = poll(&mut fds, PollTimeout::try_from(wait).unwrap_or(PollTimeout::ZERO));
        }
        let mut greeted = lanes.greeted.lock();
        // A slow process may still answer. Without the entry here the doorbell would break, and the
        // slow process would take this process for ended.
        if lanes.refuses(slot) || greeted.len() > UNANSWERED {
            greeted.remove(&slot);
        }
        drop(greeted);
        lanes.refuse(slot);
        log::info!(
            "the process of slot {slot} did not agree to share memory, so packets go over the \
             network"
        );
        None
    }

    /// Answers greetings, and enters their senders as peers.
    pub(crate) fn take_greetings(&self) -> bool {
        let ended = self.0.link.ended();
        let slots: Vec<Slot> = ended.iter().map(ConnectionId::slot).collect();
        self.0.mads.peers_ended(self.0, &slots);
        if let Some(lanes) = self.0.lanes.as_ref().filter(|_| !ended.is_empty()) {
            // The processes have ended, so no process has these objects any more.
            lanes.greeted.lock().retain(|_, given| !ended.contains(&given.connection));
        }
        let greetings = self.0.link.greetings();
        let any = !greetings.is_empty();
        for Greeting { mut hello, pid, fds, transit: _transit } in greetings {
            hello.slots = self.held_slots(&hello.slots, pid);
            let Some(&first) = hello.slots.first() else {
                log::debug!("a handshake of process {pid} names only slots of other processes");
                continue;
            };
            let Err(e) = self.take_greeting(&hello, pid, fds) else { continue };
            log::info!("process {pid} is reached over the network: {e}");
            let Some(lanes) = &self.0.lanes else { continue };
            hello.slots.iter().for_each(|slot| lanes.refuse(*slot));
            // The sender may already write to the ring, but this process reads nothing from there.
            if !lanes.all.read().iter().any(|p| p.nonce() == hello.nonce) {
                let _ = self.decline(first);
            }
        }
        any
    }

    /// The slots held by the process, as confirmed by the kernel.
    fn held_slots(&self, slots: &[Slot], pid: i32) -> Vec<Slot> {
        let lanes = self.0.lanes.as_ref();
        let mut left = ASKED;
        let is_held = |slot: &Slot| {
            // A slot of this process belongs to no other process.
            if self.0.link.owns(*slot) {
                return false;
            }
            // The kernel has confirmed this slot before.
            if lanes.and_then(|l| l.known(*slot)).is_some_and(|p| p.pid() == pid && !p.has_left()) {
                return true;
            }
            if !lanes.is_some_and(|lanes| lanes.greeted.lock().contains_key(slot)) {
                if left == 0 {
                    return false;
                }
                left -= 1;
            }
            self.0.link.is_held_by(*slot, pid)
        };
        let mut held = slots.to_vec();
        held.retain(is_held);
        held
    }

    /// Tells the process of a slot that this process shares no memory with it.
    fn decline(&self, slot: Slot) -> io::Result<()> {
        let no = Hello { nonce: 0, wants_answer: false, mtu: 0, slots: self.0.link.slots() };
        self.0.link.greet(slot, &no, &[]).map(drop)
    }

    fn take_greeting(&self, hello: &Hello, pid: i32, fds: Vec<OwnedFd>) -> io::Result<()> {
        let first = hello.slots[0];
        let Some(lanes) = &self.0.lanes else {
            // An immediate refusal spares the sender the wait for an answer.
            return if hello.wants_answer { self.decline(first) } else { Ok(()) };
        };
        if hello.mtu == 0 {
            for slot in &hello.slots {
                lanes.refuse(*slot);
                if let Some(peer) = lanes.known(*slot).filter(|p| p.pid() == pid) {
                    self.rings(lanes).leave(&peer, "shares no memory with this process after all");
                }
            }
            return Ok(());
        }
        if hello.nonce == lanes.nonce {
            return Ok(());
        }
        // Locked to the end. A thread about to greet the same peer finds the peer known afterwards,
        // so each side makes a single ring.
        let mut greeted = lanes.greeted.lock();
        let given = hello.slots.iter().find_map(|slot| greeted.remove(slot));
        let known = lanes.all.read().iter().find(|p| p.nonce() == hello.nonce).cloned();
        match known {
            // The peer has left, and comes back.
            Some(peer) if peer.pid() == pid && peer.has_left() => self.rings(lanes).leave(&peer, "has left"),
            Some(peer) => {
                // Descriptors are not needed here, but any descriptors from the peer have to be
                // valid.
                let given_fds =
                    if fds.is_empty() { None } else { Some(HandshakeFds::of(fds, &lanes.bells)?) };
                return self.greeted_again(lanes, &peer, hello, pid, given, given_fds);
            }
            None => {}
        }
        let of_process = |peer: &&Arc<Peer>| peer.pid() == pid && !peer.has_left();
        if lanes.all.read().iter().filter(of_process).count() >= COPIES {
            return Err(io::Error::other(format!("the process is {COPIES} peers already")));
        }
        let given_fds = HandshakeFds::of(fds, &lanes.bells)?;
        if given_fds.has_ended() {
            // The sender has ended; or it has withdrawn this greeting, and sends another greeting.
            return Ok(());
        }
        let given = match given {
            Some(given) => given,
            None => {
                let bell = lanes.bells.make()?;
                let (connection, ring) = self.send_hello(lanes, first, false, &bell)?;
                Given { connection, ring, bell }
            }
        };
        let peer = Arc::new(Peer::new(pid, hello, given, given_fds, &lanes.bells)?);
        peer.watch(&lanes.bells)?;
        lanes.enter(&hello.slots, &peer);
        log::debug!("process {pid} (slots {:?}) shares memory with this process", hello.slots);
        Ok(())
    }

    /// Handles a greeting of a known peer. The peer has one more slot, looks for a slot of ours
    /// still unknown to the peer, or has lost the given objects. A new ring replaces the old ring
    /// for new records. The records in the old rings are still read.
    fn greeted_again(
        &self,
        lanes: &'a Lanes,
        peer: &Arc<Peer>,
        hello: &Hello,
        pid: i32,
        given: Option<Given>,
        given_fds: Option<HandshakeFds>,
    ) -> io::Result<()> {
        if peer.pid() != pid || peer.is_own() {
            return Err(io::Error::other("the handshake names another process"));
        }
        lanes.enter(&hello.slots, peer);
        // The peer already has the doorbell, and the doorbell from the peer has not changed.
        if let Some(Given { ring, .. }) = given {
            lanes.add_ring(peer, ring);
        }
        let given = given_fds.is_some();
        if let Some(given_fds) = given_fds {
            peer.replace_ring(given_fds.ring)?;
        }
        let first = hello.slots[0];
        match hello.wants_answer {
            true if given => {
                let links = peer.links().ok_or(io::ErrorKind::NotConnected)?;
                lanes.add_ring(peer, self.send_hello(lanes, first, false, &links.bell)?.1);
            }
            true => drop(self.0.link.greet(first, &self.hello(lanes, false), &[])?),
            false => {}
        }
        Ok(())
    }
}
