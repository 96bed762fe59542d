//! Shared by the tests: links on their own ports, a background receiver, packets.
#![allow(dead_code)]

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, bind, connect,
    listen, sendmsg, socket,
};

use adverb_link::{AddrIndex, Config, Route, RxBuffers, RxFrom, TxBatch, UdpLink};
use adverb_local::Local;
use adverb_local::{SLOT_SHIFT, Slot};

pub const V4: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
pub const V6: IpAddr = IpAddr::V6(std::net::Ipv6Addr::LOCALHOST);

/// A port not used by another test of this run; below the ephemeral ports.
pub fn port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let base = 20000 + (std::process::id() % 400) as u16 * 30;
    base + NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A configuration in which one machine plays several, with their ports and addresses.
pub fn config(port: u16) -> Config {
    let local_ports = adverb_link::LocalPorts::Any;
    Config { port, local_ports, ..Config::default() }
}

/// A link with its own slot.
pub fn open(config: Config) -> UdpLink {
    let nanos = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().subsec_nanos();
    let seed = u64::from(nanos) ^ u64::from(std::process::id()) << 32;
    UdpLink::new(config, Local::new(seed).unwrap())
}

/// A received packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Got {
    pub src: SocketAddr,
    pub dst: IpAddr,
    pub traffic_class: u8,
    pub hop_limit: u8,
    pub forwarded: bool,
    pub bytes: Vec<u8>,
}

/// A member of the group sharing a port: a link with a thread that receives and maintains.
pub struct Member {
    pub link: Arc<UdpLink>,
    pub got: Arc<Mutex<Vec<Got>>>,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Member {
    pub fn new(config: Config) -> Member {
        let link = Arc::new(open(config));
        let (got, stop) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let thread = {
            let (link, got, stop) = (link.clone(), got.clone(), stop.clone());
            std::thread::spawn(move || {
                let mut buffers = RxBuffers::new(4);
                let mut sink = adverb_link::each(|p| {
                    got.lock().unwrap().push(Got {
                        src: p.src,
                        dst: p.dst,
                        traffic_class: p.traffic_class,
                        hop_limit: p.hop_limit,
                        forwarded: p.proof.is_forwarded(),
                        bytes: p.bytes.to_vec(),
                    })
                });
                while !stop.load(Ordering::Relaxed) {
                    let n = link.recv(RxFrom::All, &mut buffers, 256, &mut sink);
                    link.maintain(&mut || {
                        link.recv(RxFrom::Every, &mut buffers, 256, &mut sink);
                    });
                    if n == 0 {
                        std::thread::sleep(Duration::from_micros(100));
                    }
                }
            })
        };
        Member { link, got, stop, thread: Some(thread) }
    }

    pub fn at(config: Config, ip: IpAddr) -> (Member, AddrIndex) {
        let node = Member::new(config);
        let index = node.link.add_address(ip, 0).unwrap();
        (node, index)
    }

    pub fn slot(&self) -> Slot {
        self.link.local().slots()[0]
    }

    /// Waits until `count` packets have arrived, and takes the packets.
    pub fn take(&self, count: usize) -> Vec<Got> {
        assert!(
            wait(|| self.got.lock().unwrap().len() >= count),
            "{:?} {:?}",
            self.got.lock().unwrap().len(),
            self.link.stats()
        );
        std::mem::take(&mut *self.got.lock().unwrap())
    }

    pub fn count(&self) -> usize {
        self.got.lock().unwrap().len()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || std::thread::panicking(), "the receiver panicked");
    }
}

/// Waits at most 30 seconds until `done` returns true.
pub fn wait(mut done: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + Duration::from_secs(30);
    while !done() {
        if Instant::now() > until {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

/// The QPN `low` of a slot.
pub fn qpn(slot: Slot, low: u32) -> u32 {
    u32::from(slot) << SLOT_SHIFT | low
}

/// A BTH: RC SEND Only.
pub fn bth(qpn: u32, psn: u32) -> [u8; 12] {
    let (q, p) = (qpn.to_be_bytes(), psn.to_be_bytes());
    [4, 0, 0xff, 0xff, 0, q[1], q[2], q[3], 0, p[1], p[2], p[3]]
}

/// The byte at `at` of packet `psn`.
pub fn pattern(psn: u32, at: usize) -> u8 {
    (psn as usize * 31 + at * 7 + at / 251) as u8
}

/// Stages a packet of `len` payload bytes.
pub fn push(batch: &mut TxBatch, link: &UdpLink, route: &Route, qpn: u32, psn: u32, len: usize) {
    let pad = (4 - len % 4) % 4;
    batch.push(link, route, &bth(qpn, psn), len, pad as u8, |bytes| {
        bytes.iter_mut().enumerate().for_each(|(at, b)| *b = pattern(psn, at));
        true
    });
}

/// A sending link, and its packets to one destination.
pub struct Sender {
    pub link: UdpLink,
    pub route: Route,
    pub batch: TxBatch,
    pub psn: u32,
}

impl Sender {
    pub fn at(config: Config, ip: IpAddr, to: SocketAddr) -> Sender {
        let link = open(config);
        let local = link.add_address(ip, 0).unwrap();
        Sender { route: Route::new(local, to), link, batch: TxBatch::default(), psn: 0 }
    }

    /// Sends numbered packets to queue pairs of a slot.
    pub fn send(&mut self, slot: Slot, count: usize) {
        for _ in 0..count {
            self.push(qpn(slot, self.psn % 7), self.psn, 256);
            self.psn += 1;
        }
        self.flush();
    }

    /// Stages a packet of `len` payload bytes.
    pub fn push(&mut self, qpn: u32, psn: u32, len: usize) {
        push(&mut self.batch, &self.link, &self.route, qpn, psn, len);
    }

    pub fn flush(&mut self) {
        self.batch.flush(&self.link);
    }
}

/// The bytes of such a packet at the receiver.
pub fn expected(qpn: u32, psn: u32, len: usize) -> Vec<u8> {
    let mut bytes = bth(qpn, psn).to_vec();
    bytes.extend((0..len).map(|at| pattern(psn, at)));
    bytes.resize(12 + len.next_multiple_of(4), 0);
    bytes
}

/// Holds the name of a free slot without using it: the slot stays without an owner, and no other
/// test's link gets it meanwhile.
pub fn keep_free(slot: Slot) -> Option<Line> {
    Line::holding(&slot_name(slot), SockType::SeqPacket).ok()
}

/// The name of a slot of this user.
pub fn slot_name(slot: Slot) -> String {
    format!("adverb-{}-{slot}", nix::unistd::geteuid())
}

/// A connection, or a listener, at an abstract name, made without the link, as any program can.
pub struct Line(pub OwnedFd);

impl Line {
    fn socket(kind: SockType) -> OwnedFd {
        socket(AddressFamily::Unix, kind, SockFlag::SOCK_CLOEXEC, None).unwrap()
    }

    /// Connects to the listener of a name.
    pub fn to(name: &str) -> nix::Result<Line> {
        let fd = Line::socket(SockType::SeqPacket);
        connect(fd.as_raw_fd(), &UnixAddr::new_abstract(name.as_bytes()).unwrap())?;
        Ok(Line(fd))
    }

    /// Listens at a name.
    pub fn at(name: &str) -> nix::Result<Line> {
        let line = Line::holding(name, SockType::SeqPacket)?;
        listen(&line.0, Backlog::new(8).unwrap()).unwrap();
        Ok(line)
    }

    /// Holds a name without listening.
    pub fn holding(name: &str, kind: SockType) -> nix::Result<Line> {
        let fd = Line::socket(kind);
        bind(fd.as_raw_fd(), &UnixAddr::new_abstract(name.as_bytes()).unwrap())?;
        Ok(Line(fd))
    }

    /// Sends a message.
    pub fn send(&self, bytes: &[u8]) -> nix::Result<usize> {
        nix::sys::socket::send(
            self.0.as_raw_fd(),
            bytes,
            MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT,
        )
    }

    /// Sends a message with descriptors.
    pub fn send_fds(&self, bytes: &[u8], fds: &[RawFd]) -> nix::Result<usize> {
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        let rights = [ControlMessage::ScmRights(fds)];
        sendmsg::<()>(self.0.as_raw_fd(), &[std::io::IoSlice::new(bytes)], &rights, flags, None)
    }

    /// Accepts a connection, if one is waiting.
    pub fn taken(&self) -> Option<Line> {
        let listener = UnixListener::from(self.0.try_clone().unwrap());
        listener.set_nonblocking(true).unwrap();
        listener.accept().ok().map(|(line, _)| Line(line.into()))
    }

    /// Receives a message of this connection, if there is one; `Some(0)` at the end of the
    /// connection.
    pub fn received(&self) -> Option<usize> {
        nix::sys::socket::recv(self.0.as_raw_fd(), &mut [0; 65536], MsgFlags::MSG_DONTWAIT).ok()
    }
}
