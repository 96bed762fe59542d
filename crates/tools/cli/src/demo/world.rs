//! What each process of the demonstration uses in all checks: a device, a protection domain, a
//! buffer, and the control connection to the other process.
use super::control::Control;
use adverb_choice::mix;
use adverb_device::buffer::Buffer;
use adverb_device::context::AhAttr;
use adverb_device::engine::wr::Remote;
use adverb_device::engine::{
    Access, AddressVector, AttrMask, Gid, PathMtu, QpAttr, QpCap, QpState, QpType,
};
use adverb_device::{AsyncEvent, Context, Cq, Device, Element, Errno, Pd, Qp, QpInit};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Time limit of each operation. A longer operation counts as lost.
pub const HANG_LIMIT: Duration = Duration::from_secs(10);
/// Size of each process's buffer, in bytes.
pub const BUFFER: usize = 32 << 20;
/// Offset of the outgoing data in the buffer.
pub const OUT: usize = 0;
/// Offset of the incoming data in the buffer.
pub const IN: usize = BUFFER / 2;
/// Number of guard bytes behind a message.
const GUARD: usize = 64;
const GUARD_BYTE: u8 = 0xa5;
/// The error of an access outside of the buffer.
const BEYOND: &str = "beyond the buffer";

/// Access flags of the buffer and the queue pairs: all rights.
pub const ACCESS: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC)
    .union(Access::FLUSH_GLOBAL)
    .union(Access::FLUSH_PERSISTENT);

/// Which of the two processes this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Started by the user. Sends, writes and reads.
    First,
    /// Started by the first process. Receives.
    Second,
}

pub struct World {
    pub role: Role,
    pub control: Control,
    pub context: Arc<Context>,
    pub pd: Arc<Pd>,
    pub buffer: Arc<Buffer>,
    /// The other process's buffer.
    peer: Remote,
    gid_index: u8,
    peer_gid: Gid,
}

/// Turns any error into text.
pub fn words(what: &str) -> impl Fn(adverb_device::Error) -> String + '_ {
    move |e| format!("{what}: {e}{}", advice(e.errno()))
}

/// Advice on limits of the system.
pub fn advice(errno: i32) -> &'static str {
    match Errno::from_raw(errno) {
        Errno::EMFILE => "; `ulimit -n` shows and raises the limit of this process",
        Errno::ENFILE => "; the limit of the machine is /proc/sys/fs/file-max",
        Errno::ENOMEM => {
            "; the machine has no memory left, or a limit applies: `ulimit -v`, or the control \
             group"
        }
        Errno::EAGAIN => "; `ulimit -u` shows and raises the limit of processes and threads",
        _ => "",
    }
}

/// The index of the GID to use: the GID of an IPv4 address, if there is one.
pub fn gid_index(device: &Device) -> usize {
    device.gids().iter().position(|g| g.ipv4().is_some()).unwrap_or(0)
}

impl World {
    /// Opens the device and exchanges addresses with the other process. `index` is that of the GID
    /// to use.
    pub fn new(
        role: Role,
        device: &Arc<Device>,
        index: usize,
        mut control: Control,
    ) -> Result<World, String> {
        let context = device.open().map_err(words("the device cannot be opened"))?;
        let pd = Pd::new(&context).map_err(words("protection domain"))?;
        let buffer = Buffer::new(&pd, BUFFER, ACCESS | Access::MW_BIND).map_err(words("buffer"))?;
        let gid = context.gid(1, index).map_err(words("GID"))?;
        let number = u128::from_be_bytes(gid.0);
        let theirs = control.exchange(&[
            (number >> 64) as u64,
            number as u64,
            buffer.addr(),
            u64::from(buffer.key()),
        ])?;
        let &[high, low, va, rkey] = &theirs[..] else {
            return Err("the other process uses another protocol".into());
        };
        let peer = Remote { va, rkey: u32::try_from(rkey).unwrap_or(0) };
        let peer_gid = Gid(((u128::from(high) << 64) | u128::from(low)).to_be_bytes());
        Ok(World {
            role,
            control,
            context,
            pd,
            buffer: Arc::new(buffer),
            peer,
            gid_index: index as u8,
            peer_gid,
        })
    }

    pub fn is_first(&self) -> bool {
        self.role == Role::First
    }
    pub fn mtu(&self) -> PathMtu {
        self.context.gid_entry(self.gid_index.into()).path_mtu()
    }
    /// An address in the other process's buffer.
    pub fn remote(&self, offset: usize) -> Remote {
        Remote { va: self.peer.va + offset as u64, rkey: self.peer.rkey }
    }

    /// Waits until both processes have come to this point.
    pub fn sync(&mut self) -> Result<(), String> {
        self.control.exchange(&[]).map(drop)
    }
    /// Exchanges a number with the other process.
    pub fn swap(&mut self, number: u64) -> Result<u64, String> {
        self.control
            .exchange(&[number])?
            .first()
            .copied()
            .ok_or_else(|| "the other process said nothing".into())
    }

    /// The path to the other process.
    pub fn path(&self) -> Result<AddressVector, String> {
        path(&self.context, self.gid_index, self.peer_gid)
    }

    /// Fills a part of the buffer with bytes determined by `seed`.
    pub fn fill(&self, offset: usize, len: usize, seed: u64) -> Result<(), String> {
        self.put(offset, &pattern(len, seed))
    }
    /// Copies bytes into the buffer.
    pub fn put(&self, offset: usize, bytes: &[u8]) -> Result<(), String> {
        if self.buffer.write_at(offset, bytes) { Ok(()) } else { Err(BEYOND.into()) }
    }
    /// Reads bytes from the buffer.
    pub fn get(&self, offset: usize, len: usize) -> Result<Vec<u8>, String> {
        let mut bytes = vec![0; len];
        if self.buffer.read_at(offset, &mut bytes) { Ok(bytes) } else { Err(BEYOND.into()) }
    }
    /// Reads a word of the buffer, in host byte order.
    pub fn word(&self, offset: usize) -> Result<u64, String> {
        let mut bytes = [0; 8];
        let is_there = self.buffer.read_at(offset, &mut bytes);
        if is_there { Ok(u64::from_ne_bytes(bytes)) } else { Err(BEYOND.into()) }
    }
    /// Clears `len` bytes for a message and writes guard bytes behind them.
    pub fn expect_here(&self, offset: usize, len: usize) -> Result<(), String> {
        self.put(offset, &vec![0; len])?;
        self.put(offset + len, &[GUARD_BYTE; GUARD])
    }
    /// Compares every byte with the bytes that `fill` made in the other process, and checks the
    /// guard behind the message.
    pub fn check_here(&self, offset: usize, len: usize, seed: u64) -> Result<(), String> {
        self.check(offset, len, seed)?;
        if self.get(offset + len, GUARD)?.iter().any(|b| *b != GUARD_BYTE) {
            return Err(format!("bytes behind a message of {len} were changed"));
        }
        Ok(())
    }
    /// Compares every byte with the bytes that `fill` makes.
    pub fn check(&self, offset: usize, len: usize, seed: u64) -> Result<(), String> {
        let (found, wanted) = (self.get(offset, len)?, pattern(len, seed));
        match found.iter().zip(&wanted).position(|(a, b)| a != b) {
            None => Ok(()),
            Some(at) => Err(format!(
                "byte {at} of {len} is {:#04x}, it was sent as {:#04x}",
                found[at], wanted[at]
            )),
        }
    }

    /// Writes all nonzero counters to the log. The counters may explain a failure that
    /// the check itself did not cause.
    pub fn log_counters(&self) {
        let counters = self.context.node().link().stats().named().into_iter();
        let counters = counters.filter(|(_, value)| *value > 0);
        let text: Vec<_> = counters.map(|(name, value)| format!("{name} {value}")).collect();
        log::warn!("counters of the link: {}", text.join(", "));
    }

    /// Starts to wait for an asynchronous event of this kind. Events of other kinds are
    /// acknowledged and skipped.
    pub fn listen(&self, kind: AsyncEvent) -> Listener {
        let (send, receive) = mpsc::channel();
        let context = self.context.clone();
        std::thread::spawn(move || {
            while let Ok((event, element)) = context.next_async_event() {
                context.ack_async_event(&element);
                if event == kind {
                    let number = match element {
                        Element::Qp(qp) => qp.number(),
                        Element::Srq(srq) => srq.number(),
                        Element::Cq(_) | Element::Port(_) => 0,
                    };
                    let _ = send.send(number);
                    return;
                }
            }
        });
        Listener { kind, receive }
    }
}

/// Waits for an asynchronous event.
pub struct Listener {
    kind: AsyncEvent,
    receive: mpsc::Receiver<u32>,
}

impl Listener {
    /// Waits until the event arrives, and checks that the event is about the object with this
    /// number.
    pub fn about(self, number: u32) -> Result<(), String> {
        match self.receive.recv_timeout(HANG_LIMIT) {
            Ok(found) if found == number => Ok(()),
            Ok(found) => Err(format!("event {:?} is about {found:#x}, not {number:#x}", self.kind)),
            Err(_) => Err(format!("no event {:?} came", self.kind)),
        }
    }
}

/// The step of splitmix64, of which [`mix`] gives one number.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Bytes determined by position and seed (splitmix64).
pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len + 8);
    let mut state = seed.wrapping_mul(0xd134_2543_de82_ef95);
    while bytes.len() < len {
        bytes.extend_from_slice(&mix(state).to_le_bytes());
        state = state.wrapping_add(STEP);
    }
    bytes.truncate(len);
    bytes
}

/// Checks that the device can be opened, and that its UDP port can be opened at the address that
/// the demonstration uses.
pub fn try_device(device: &Arc<Device>) -> Result<(), String> {
    let context = device.open().map_err(words("opening"))?;
    let pd = Pd::new(&context).map_err(words("protection domain"))?;
    let cq = Cq::new(&context, 1, None, 0).map_err(words("completion queue"))?;
    let init = QpInit {
        qp_type: QpType::Uc,
        cap: QpCap {
            max_send_wr: 1,
            max_recv_wr: 1,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        },
        signal_all: false,
        send_cq: Some(cq.clone()),
        recv_cq: Some(cq),
        srq: None,
        xrcd: None,
    };
    let qp = Qp::new(&context, Some(&pd), &init).map_err(words("queue pair"))?;
    let opened = open_port(&context, &qp, gid_index(device));
    qp.destroy().map_err(words("destroying the queue pair"))?;
    opened
}

/// Takes the queue pair to RTR, connected to the queue pair's own address. A queue pair in RTR has
/// the UDP port of its address open.
fn open_port(context: &Context, qp: &Qp, gid_index: usize) -> Result<(), String> {
    let gid = context.gid(1, gid_index).map_err(words("GID"))?;
    let attr = QpAttr { state: QpState::Init, port_num: 1, ..QpAttr::default() };
    let mask = AttrMask::needed(QpType::Uc, QpState::Reset, QpState::Init);
    qp.modify(&attr, mask).map_err(words("queue pair to INIT"))?;
    let av = path(context, gid_index as u8, gid)?;
    let attr = QpAttr { state: QpState::Rtr, av, dest_qpn: qp.number(), ..QpAttr::default() };
    let mask = AttrMask::needed(QpType::Uc, QpState::Init, QpState::Rtr);
    qp.modify(&attr, mask).map_err(words("queue pair to RTR"))
}

/// The path between two GIDs of the device.
fn path(context: &Context, sgid_index: u8, dgid: Gid) -> Result<AddressVector, String> {
    let attr = AhAttr {
        dgid,
        sgid_index,
        is_global: true,
        hop_limit: 64,
        port_num: 1,
        ..AhAttr::default()
    };
    context.resolve(&attr).map_err(words("address"))
}
