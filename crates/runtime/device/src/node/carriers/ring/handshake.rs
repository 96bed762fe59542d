//! How two processes of a host come to share memory.
//!
//! Each gives the other a ring to write to, its tables, its file and a bell. The bell is made for
//! that one peer, and given again whenever the peer is greeted again: as long as the giver keeps
//! its end, it lives in the eyes of the peer. A greeting says which slots its sender has; those
//! count of which the kernel says the same, so that no process is taken for another (TRU-3).
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

/// How long a process waits for the answer to its greeting; its peer's background thread gives it.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(2);
/// Processes that have not answered whose answers are still waited for at most, by nobody in
/// particular.
const UNANSWERED: usize = 16;
/// Slots of a greeting that the kernel is asked about at most, beside those that its sender was
/// greeted at.
const ASKED: usize = 64;

/// Greetings of a node. They are answered, by a refusal, also where the node shares no memory.
#[derive(Clone, Copy)]
pub(crate) struct Handshake<'a>(pub(crate) &'a Node);

impl<'a> Handshake<'a> {
    fn rings(&self, lanes: &'a Lanes) -> Rings<'a> {
        Rings { node: self.0, lanes }
    }

    /// The peer that owns the queue pair `qpn` at `ip`, if packets to it need no network. Greets it
    /// if it is not known yet, and waits for its answer.
    ///
    /// # Errors
    /// EPERM if the queue pair is of another process of this host, and this process or that one has
    /// changed its user: no new connection can be made between them.
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
            // Its slot may be another's by now, before the background thread has come to see its
            // end.
            self.rings(lanes).see_end(&peer);
            return None;
        }
        Some(peer)
    }

    /// Greets the process of a slot, unless it has refused, and waits for its answer.
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

    /// Makes a ring for a process and gives it to the process, with all the rest.
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
            // Locked until the ring is entered: the answer, or the peer's own greeting, may be here
            // before.
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
                    log::log!(level, "slot {slot} is not greeted, its packets go over the network: {e}");
                    // Nobody there now; whoever claims it next is to be asked.
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
                // It has ended, and whoever has its slot next is to be asked; or another thread
                // took its answer.
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
        // One that is slow may answer yet, and is not to take the bell for that of a process that
        // has ended.
        if lanes.refuses(slot) || greeted.len() > UNANSWERED {
            greeted.remove(&slot);
        }
        drop(greeted);
        lanes.refuse(slot);
        log::info!(
            "the process of slot {slot} did not agree to share memory: it is reached over the network"
        );
        None
    }

    /// Answers greetings and enters those who sent them.
    pub(crate) fn take_greetings(&self) -> bool {
        let ended = self.0.link.ended();
        let slots: Vec<Slot> = ended.iter().map(ConnectionId::slot).collect();
        self.0.mads.peers_ended(self.0, &slots);
        if let Some(lanes) = self.0.lanes.as_ref().filter(|_| !ended.is_empty()) {
            // What they were given nobody has.
            lanes.greeted.lock().retain(|_, given| !ended.contains(&given.connection));
        }
        let greetings = self.0.link.greetings();
        let any = !greetings.is_empty();
        for Greeting { mut hello, pid, fds, transit: _transit } in greetings {
            hello.slots = self.held_slots(&hello.slots, pid);
            let Some(&first) = hello.slots.first() else {
                log::debug!("a greeting of process {pid} names no slot of its own");
                continue;
            };
            let Err(e) = self.take_greeting(&hello, pid, fds) else { continue };
            log::info!("process {pid} is reached over the network: {e}");
            let Some(lanes) = &self.0.lanes else { continue };
            hello.slots.iter().for_each(|slot| lanes.refuse(*slot));
            // It may count on this process by now, which will read nothing of what it writes.
            if !lanes.all.read().iter().any(|p| p.nonce() == hello.nonce) {
                let _ = self.decline(first);
            }
        }
        any
    }

    /// Those of the slots that the process holds, as the kernel says.
    fn held_slots(&self, slots: &[Slot], pid: i32) -> Vec<Slot> {
        let lanes = self.0.lanes.as_ref();
        let mut left = ASKED;
        let is_held = |slot: &Slot| {
            // Nobody has a slot of ours.
            if self.0.link.owns(*slot) {
                return false;
            }
            // Asked for before.
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

    /// Tells the process of a slot that this one shares no memory with it.
    fn decline(&self, slot: Slot) -> io::Result<()> {
        let no = Hello { nonce: 0, wants_answer: false, mtu: 0, slots: self.0.link.slots() };
        self.0.link.greet(slot, &no, &[]).map(drop)
    }

    fn take_greeting(&self, hello: &Hello, pid: i32, fds: Vec<OwnedFd>) -> io::Result<()> {
        let first = hello.slots[0];
        let Some(lanes) = &self.0.lanes else {
            // Said once: then it need not wait for an answer that never comes.
            return if hello.wants_answer { self.decline(first) } else { Ok(()) };
        };
        if hello.mtu == 0 {
            for slot in &hello.slots {
                lanes.refuse(*slot);
                if let Some(peer) = lanes.known(*slot).filter(|p| p.pid() == pid) {
                    self.rings(lanes).leave(&peer, "shares no memory with this one after all");
                }
            }
            return Ok(());
        }
        if hello.nonce == lanes.nonce {
            return Ok(());
        }
        // Locked to the end: whoever greets this process meanwhile finds it known then, so that
        // each makes one ring.
        let mut greeted = lanes.greeted.lock();
        let given = hello.slots.iter().find_map(|slot| greeted.remove(slot));
        let known = lanes.all.read().iter().find(|p| p.nonce() == hello.nonce).cloned();
        match known {
            // It left, and comes back.
            Some(peer) if peer.pid() == pid && peer.has_left() => self.rings(lanes).leave(&peer, "has left"),
            Some(peer) => {
                // None are needed; those that come have to be right.
                let given_fds =
                    if fds.is_empty() { None } else { Some(HandshakeFds::of(fds, &lanes.bells)?) };
                return self.greeted_again(lanes, &peer, hello, pid, given, given_fds);
            }
            None => {}
        }
        let of_process = |peer: &&Arc<Peer>| peer.pid() == pid && !peer.has_left();
        if lanes.all.read().iter().filter(of_process).count() >= COPIES {
            return Err(io::Error::other(format!("it is {COPIES} peers already")));
        }
        let given_fds = HandshakeFds::of(fds, &lanes.bells)?;
        if given_fds.has_ended() {
            // By now; or it has taken the greeting back, and comes with another.
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
        log::debug!("process {pid} (slots {:?}) shares memory with this one", hello.slots);
        Ok(())
    }

    /// A peer has one more slot than it had, looks for one of ours that it does not know, or has
    /// lost what it was given. What either was given anew counts from now on; what lies in the old
    /// rings is still read.
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
            return Err(io::Error::other("it says that it is another process"));
        }
        lanes.enter(&hello.slots, peer);
        // Its bell it has already, and the peer's is the same as ever.
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
