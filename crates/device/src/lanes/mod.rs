//! The other processes of this user on this host, and this process itself, as peers that need no network.
//!
//! Two processes greet each other once ([`adverb_link::Hello`]): each gives the other a ring to write to, its published
//! tables, the file that holds its shared memory, and a bell. From then on packets between their queue pairs go
//! through the rings ([`crate::node`] carries them), and one-sided requests are performed by the initiator itself in the
//! peer's memory ([`direct`]). Who does not answer, or may not share, is reached over the network as any other host.
use crate::node::Node;
use adverb_link::shm::{Consumer, Published};
use adverb_link::{Greeting, Hello, RxFrom, Slot};
use adverb_memory::{Pages, Shadow};
use adverb_sync::{Mutex, RwLock};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

mod direct;
mod peer;
mod regions;

pub(crate) use direct::{Ends, PRIVATE, SHARED, Seen};
pub(crate) use peer::{NO_REFERENCES, Peer};
use regions::Reached;
pub(crate) use regions::Shared;

/// Bytes of payload in a packet between two processes of a host: long enough that what a packet costs beside copying it is
/// little.
pub(crate) const MTU: u32 = 64 << 10;
/// How long a process waits for the answer to its greeting; its peer's background thread gives it.
const PATIENCE: Duration = Duration::from_secs(2);
/// Rings of a peer that are read at most: the one it writes to now, and those it was given before.
const RINGS: usize = 4;
/// How long a process that did not answer, or did not want to, is not greeted again.
const REFUSED: Duration = Duration::from_secs(5);

/// Which way packets between processes of one host go (`ADVERB_PATH`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathChoice {
    /// Through shared memory where that is possible.
    Local,
    /// Always over the network.
    Wire,
}

/// What the program's environment asks for.
///
/// # Errors
/// EINVAL for anything but `local` and `wire`.
pub(crate) fn path_choice() -> Result<PathChoice, crate::Error> {
    match std::env::var("ADVERB_PATH").as_deref() {
        Err(_) | Ok("" | "local") => Ok(PathChoice::Local),
        Ok("wire") => Ok(PathChoice::Wire),
        Ok(other) => {
            Err(crate::Error::invalid(format!("ADVERB_PATH is {other:?}"), "it is \"local\" or \"wire\""))
        }
    }
}

/// May a program's own pages be moved to where peers reach them (`ADVERB_ADOPT`)?
///
/// # Errors
/// EINVAL for anything but `on` and `off`.
pub(crate) fn adoption_choice() -> Result<bool, crate::Error> {
    match std::env::var("ADVERB_ADOPT").as_deref() {
        Err(_) | Ok("" | "on") => Ok(true),
        Ok("off") => Ok(false),
        Ok(other) => {
            Err(crate::Error::invalid(format!("ADVERB_ADOPT is {other:?}"), "it is \"on\" or \"off\""))
        }
    }
}

/// Pages that peers may map, if the program's packets may stay on this host; private ones otherwise.
///
/// # Errors
/// ENOMEM and the like.
pub(crate) fn pages(len: usize) -> Result<Pages, Errno> {
    if matches!(path_choice(), Ok(PathChoice::Local))
        && let Ok(shadow) = Shadow::of_process()
        && let Ok(pages) = Pages::shared(shadow, len, 1)
    {
        return Ok(pages);
    }
    Pages::new(len)
}

/// All peers of a process.
pub(crate) struct Lanes {
    nonce: u64,
    pub(crate) published: Published,
    tables: OwnedFd,
    bell: EventFd,
    life: Life,
    pub(crate) shadow: &'static Shadow,
    pub(crate) reached: Reached,
    by_slot: RwLock<HashMap<Slot, Arc<Peer>>>,
    /// Every peer once, and a number that changes with the list.
    all: RwLock<Vec<Arc<Peer>>>,
    version: AtomicU32,
    any: AtomicBool,
    /// Rings made for processes that were greeted and have not answered.
    greeted: Mutex<HashMap<Slot, Consumer>>,
    /// One thread greets at a time.
    greeting: Mutex<()>,
    refused: Mutex<HashMap<Slot, Instant>>,
    /// The bell, and the processes' ends.
    control: Epoll,
    /// Threads that sleep until the bell rings; locked while the announcement changes, so that none takes back another's.
    sleepers: Mutex<usize>,
    /// Whoever publishes something or takes it back has the turn.
    pub(crate) publishing: Mutex<()>,
}

impl Lanes {
    /// What a process shares with others.
    ///
    /// # Errors
    /// What the kernel refuses: no `memfd`, no descriptors, no memory. Then everything goes over the network.
    pub(crate) fn new(adopts: bool) -> std::io::Result<Self> {
        let shadow = Shadow::of_process()?;
        shadow.enable(adopts);
        let (published, tables) = Published::create().map_err(std::io::Error::other)?;
        let control = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let bell = EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        control.add(&bell, EpollEvent::new(EpollFlags::EPOLLIN, bell.as_fd().as_raw_fd() as u64))?;
        Ok(Lanes {
            nonce: published.identity().nonce,
            published,
            tables,
            bell,
            life: Life::new()?,
            shadow,
            reached: Reached::default(),
            by_slot: RwLock::default(),
            all: RwLock::default(),
            version: AtomicU32::new(0),
            any: AtomicBool::new(false),
            greeted: Mutex::default(),
            greeting: Mutex::default(),
            refused: Mutex::default(),
            control,
            sleepers: Mutex::default(),
            publishing: Mutex::default(),
        })
    }

    /// Are there peers?
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Readable when the bell rang or a peer ended.
    pub(crate) fn control_fd(&self) -> BorrowedFd<'_> {
        self.control.0.as_fd()
    }

    /// Which of the bell and the ends are readable.
    pub(crate) fn ready(&self, events: &mut [EpollEvent]) -> usize {
        self.control.wait(events, EpollTimeout::ZERO).unwrap_or(0)
    }

    /// The peer that owns a slot, if it is known.
    pub(crate) fn known(&self, slot: Slot) -> Option<Arc<Peer>> {
        self.by_slot.read().get(&slot).cloned()
    }

    /// Brings the receiver's list of rings up to date.
    #[inline]
    pub(crate) fn refresh(&self, rings: &mut Rings) {
        let version = self.version.load(Ordering::Acquire);
        if rings.version != version {
            rings.version = version;
            let all = self.all.read();
            rings.list.retain(|(peer, _)| all.iter().any(|p| Arc::ptr_eq(p, peer)));
            for peer in all.iter() {
                rings.list.extend(peer.take_rings().into_iter().map(|ring| (peer.clone(), ring)));
                // The oldest go, of one that goes on greeting.
                let of_peer = |(p, _): &(Arc<Peer>, Consumer)| Arc::ptr_eq(p, peer);
                while rings.list.iter().filter(|entry| of_peer(entry)).count() > RINGS {
                    let Some(oldest) = rings.list.iter().position(of_peer) else { break };
                    rings.list.remove(oldest);
                }
            }
        }
    }

    /// A peer writes to one more ring.
    fn add_ring(&self, peer: &Peer, ring: Consumer) {
        peer.give_ring(ring);
        self.version.fetch_add(1, Ordering::AcqRel);
    }

    /// Calls `f` for every peer.
    pub(crate) fn each(&self, f: impl FnMut(&Arc<Peer>)) {
        self.all.read().iter().for_each(f);
    }

    fn refuses(&self, slot: Slot) -> bool {
        self.refused.lock().get(&slot).is_some_and(|until| Instant::now() < *until)
    }

    fn refuse(&self, slot: Slot) {
        self.refused.lock().insert(slot, Instant::now() + REFUSED);
    }

    fn enter(&self, slots: &[Slot], peer: &Arc<Peer>) {
        let mut all = self.all.write();
        if peer.is_gone() {
            return;
        }
        {
            let mut by_slot = self.by_slot.write();
            for slot in slots {
                // A slot is its process's until that ends, whatever another says.
                let is_taken = |p: &Arc<Peer>| !Arc::ptr_eq(p, peer) && !p.is_gone() && !p.has_ended();
                if !by_slot.get(slot).is_some_and(is_taken) {
                    by_slot.insert(*slot, peer.clone());
                }
            }
        }
        if !all.iter().any(|p| Arc::ptr_eq(p, peer)) {
            all.push(peer.clone());
            self.version.fetch_add(1, Ordering::AcqRel);
        }
        self.any.store(true, Ordering::Release);
    }

    /// Forgets a peer that has ended.
    pub(crate) fn remove(&self, peer: &Arc<Peer>) {
        let mut all = self.all.write();
        self.by_slot.write().retain(|_, p| !Arc::ptr_eq(p, peer));
        all.retain(|p| !Arc::ptr_eq(p, peer));
        self.version.fetch_add(1, Ordering::AcqRel);
        for end in peer.ends() {
            let _ = self.control.delete(end);
        }
    }

    /// In a child of `fork`, which is not to keep its parent alive in the eyes of peers. Only `close` is called.
    pub(crate) fn close_after_fork(&self) {
        // Never dropped: no node is.
        let _ = nix::unistd::close(self.life.ours.as_raw_fd());
    }

    /// A thread is about to sleep until packets come, unless some wait already: it looks into the rings after this, so that
    /// whoever writes to one in between sees the announcement. [`Lanes::awake`] ends it.
    pub(crate) fn sleeps(&self) {
        let mut sleepers = self.sleepers.lock();
        *sleepers += 1;
        if *sleepers == 1 {
            self.published.set_sleeping(true);
        }
        drop(sleepers);
        std::sync::atomic::fence(Ordering::SeqCst);
    }

    /// The thread that slept is awake.
    pub(crate) fn awake(&self) {
        let mut sleepers = self.sleepers.lock();
        *sleepers -= 1;
        if *sleepers == 0 {
            self.published.set_sleeping(false);
        }
        // For threads that still sleep it is announced anew, as each announcement is rung for once. What came before that is
        // this thread's to take.
        if self.bell.read().is_ok() && *sleepers > 0 {
            self.published.set_sleeping(true);
        }
    }

    /// Waits until those are out who may be inside a table of this process, as it was before a change of it, and until payloads are
    /// fetched that records written before only point at.
    pub(crate) fn settle(&self, patience: Duration) {
        if !self.any() {
            return;
        }
        let all = self.all.read().clone();
        for peer in all.iter().filter(|p| !p.is_own()) {
            peer.patiently(patience, |patience| {
                peer.wait_fetched(patience) && peer.tables.wait_quiet(patience, || peer.is_gone())
            });
        }
    }
}

/// The rings that peers write to, in the hands of the one who receives.
#[derive(Default)]
pub(crate) struct Rings {
    version: u32,
    pub(crate) list: Vec<(Arc<Peer>, Consumer)>,
}

impl Rings {
    /// Does none hold a record?
    pub(crate) fn are_empty(&self) -> bool {
        self.list.iter().all(|(_, ring)| ring.is_empty())
    }
}

/// A pair of sockets whose one end lives as long as this process and what it executes; peers, who have the other, see it go.
/// The process itself may go on: as another program, after `exec`.
struct Life {
    ours: OwnedFd,
    theirs: OwnedFd,
}

impl Life {
    fn new() -> std::io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        Ok(Life { ours: ours.into(), theirs: theirs.into() })
    }
}

/// What a greeting carries.
struct Gifts {
    ring: OwnedFd,
    bell: OwnedFd,
    tables: OwnedFd,
    shadow: OwnedFd,
    life: OwnedFd,
}

impl Gifts {
    fn of(fds: Vec<OwnedFd>) -> Option<Self> {
        let [ring, bell, tables, shadow, life] = <[OwnedFd; 5]>::try_from(fds).ok()?;
        Some(Gifts { ring, bell, tables, shadow, life })
    }
}

impl Node {
    /// The peer that owns the queue pair `qpn` at `ip`, if packets to it need no network. Greets it if it is not known yet,
    /// and waits for its answer.
    pub(crate) fn peer_of(&self, ip: std::net::IpAddr, qpn: u32) -> Option<Arc<Peer>> {
        let lanes = self.lanes.as_ref()?;
        let slot = adverb_link::slot_of_qpn(qpn)?;
        if !self.is_own_address(ip) {
            return None;
        }
        if let Some(peer) = lanes.known(slot).filter(|p| !p.is_gone()) {
            if !peer.has_ended() {
                return Some(peer);
            }
            // Its slot may be another's by now, before the background thread has come to see its end.
            self.see_end(&peer);
        }
        if self.link().owns(slot) {
            return self.own_peer(lanes);
        }
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
    fn own_peer(&self, lanes: &Lanes) -> Option<Arc<Peer>> {
        let _one = lanes.greeting.lock();
        let slots = self.link().slots();
        let known = slots.iter().find_map(|slot| lanes.known(*slot).filter(|p| p.is_own()));
        let peer = match known {
            Some(peer) => peer,
            None => Arc::new(
                Peer::own(lanes).inspect_err(|e| log::info!("no lane within the process: {e}")).ok()?,
            ),
        };
        lanes.enter(&slots, &peer);
        Some(peer)
    }

    fn hello(&self, lanes: &Lanes, wants_answer: bool) -> Hello {
        Hello { nonce: lanes.nonce, wants_answer, mtu: MTU, slots: self.link().slots() }
    }

    /// Makes a ring for a process and gives it to the process, with all the rest.
    fn send_hello(&self, lanes: &Lanes, slot: Slot, wants_answer: bool) -> std::io::Result<Consumer> {
        let (ring, fd) = Consumer::create().map_err(std::io::Error::other)?;
        let fds = [
            fd.as_fd(),
            lanes.bell.as_fd(),
            lanes.tables.as_fd(),
            lanes.shadow.fd(),
            lanes.life.theirs.as_fd(),
        ];
        self.link().greet(slot, &self.hello(lanes, wants_answer), &fds)?;
        Ok(ring)
    }

    fn greet(&self, lanes: &Lanes, slot: Slot) -> Option<Arc<Peer>> {
        {
            // Locked until the ring is entered: the answer, or the peer's own greeting, may be here before.
            let mut greeted = lanes.greeted.lock();
            if let Some(peer) = lanes.known(slot).filter(|p| !p.is_gone()) {
                return Some(peer);
            }
            match self.send_hello(lanes, slot, true) {
                Ok(ring) => greeted.insert(slot, ring),
                Err(e) => {
                    log::debug!("slot {slot} cannot be greeted: {e}");
                    // Nobody there now; whoever claims it next is to be asked.
                    if e.kind() != std::io::ErrorKind::ConnectionRefused {
                        lanes.refuse(slot);
                    }
                    return None;
                }
            };
        }
        let until = Instant::now() + PATIENCE;
        loop {
            self.receive(RxFrom::HandOver, false);
            self.take_greetings();
            if let Some(peer) = lanes.known(slot).filter(|p| !p.is_gone()) {
                lanes.greeted.lock().remove(&slot);
                return Some(peer);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || lanes.refuses(slot) {
                break;
            }
            let mut fds = [PollFd::new(self.packets_fd(), PollFlags::POLLIN)];
            let wait = left.min(Duration::from_millis(1));
            let _ = poll(&mut fds, PollTimeout::try_from(wait).unwrap_or(PollTimeout::ZERO));
        }
        lanes.greeted.lock().remove(&slot);
        lanes.refuse(slot);
        log::info!(
            "the process of slot {slot} did not agree to share memory: it is reached over the network"
        );
        None
    }

    /// Answers greetings and enters those who sent them.
    pub(crate) fn take_greetings(&self) -> bool {
        let greetings = self.link().greetings();
        let any = !greetings.is_empty();
        for greeting in greetings {
            let (pid, hello) = (greeting.pid, greeting.hello.clone());
            let Err(e) = self.take_greeting(greeting) else { continue };
            log::info!("process {pid} is reached over the network: {e}");
            let Some(lanes) = &self.lanes else { continue };
            hello.slots.iter().for_each(|slot| lanes.refuse(*slot));
            // It may count on this process by now, which will read nothing of what it writes.
            if !lanes.all.read().iter().any(|p| p.nonce() == hello.nonce)
                && let Some(first) = hello.slots.first()
            {
                let _ = self.decline(*first);
            }
        }
        any
    }

    /// Tells the process of a slot that this one shares no memory with it.
    fn decline(&self, slot: Slot) -> std::io::Result<()> {
        let no = Hello { nonce: 0, wants_answer: false, mtu: 0, slots: self.link().slots() };
        self.link().greet(slot, &no, &[])
    }

    fn take_greeting(&self, greeting: Greeting) -> std::io::Result<()> {
        let Greeting { mut hello, pid, fds } = greeting;
        // Nobody has a slot of ours.
        hello.slots.retain(|slot| !self.link().owns(*slot));
        let Some(&first) = hello.slots.first() else { return Ok(()) };
        let Some(lanes) = &self.lanes else {
            // Said once: then it need not wait for an answer that never comes.
            return if hello.wants_answer { self.decline(first) } else { Ok(()) };
        };
        if hello.mtu == 0 {
            for slot in &hello.slots {
                lanes.refuse(*slot);
                if let Some(peer) = lanes.known(*slot).filter(|p| p.pid() == pid) {
                    self.leave(&peer, "shares no memory with this one after all");
                }
            }
            return Ok(());
        }
        if hello.nonce == lanes.nonce {
            return Ok(());
        }
        // Locked to the end: whoever greets this process meanwhile finds it known then, so that each makes one ring.
        let mut greeted = lanes.greeted.lock();
        let ring = hello.slots.iter().find_map(|slot| greeted.remove(slot));
        let known = lanes.all.read().iter().find(|p| p.nonce() == hello.nonce).cloned();
        if let Some(peer) = known {
            return self.greeted_again(lanes, &peer, &hello, pid, ring, Gifts::of(fds));
        }
        let gifts =
            Gifts::of(fds).ok_or_else(|| std::io::Error::other("a greeting without its descriptors"))?;
        let ring = match ring {
            Some(ring) => ring,
            None => self.send_hello(lanes, first, false)?,
        };
        let peer = Arc::new(Peer::new(pid, &hello, ring, gifts)?);
        for end in peer.ends() {
            lanes.control.add(end, EpollEvent::new(EpollFlags::EPOLLIN, end.as_raw_fd() as u64))?;
        }
        lanes.enter(&hello.slots, &peer);
        log::debug!("process {pid} (slots {:?}) shares memory with this one", hello.slots);
        Ok(())
    }

    /// A peer has one more slot than it had, looks for one of ours that it does not know, or has lost what it was given. What
    /// either was given anew counts from now on; what lies in the old rings is still read.
    fn greeted_again(
        &self,
        lanes: &Lanes,
        peer: &Arc<Peer>,
        hello: &Hello,
        pid: i32,
        ring: Option<Consumer>,
        gifts: Option<Gifts>,
    ) -> std::io::Result<()> {
        if peer.pid() != pid || peer.is_own() {
            return Err(std::io::Error::other("it says that it is another process"));
        }
        lanes.enter(&hello.slots, peer);
        if let Some(ring) = ring {
            lanes.add_ring(peer, ring);
        }
        let given = gifts.is_some();
        if let Some(gifts) = gifts {
            peer.replace_ring(gifts.ring)?;
        }
        let first = hello.slots[0];
        match hello.wants_answer {
            true if given => lanes.add_ring(peer, self.send_hello(lanes, first, false)?),
            true => self.link().greet(first, &self.hello(lanes, false), &[])?,
            false => {}
        }
        Ok(())
    }
}
