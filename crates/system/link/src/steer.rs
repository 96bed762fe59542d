//! Steering: which socket of an address's reuseport group gets the packets of which slot.
//!
//! The kernel chooses a socket by a classic BPF program over the UDP payload, which returns an
//! index into the group. The kernel does not tell the indexes, and they shift when a member leaves.
//! So the indexes are *measured*: the program steers a packet for [`STEERING_QPN`] to the index in
//! the packet's PSN, and the receiving process tells the testing process its slots. A wrong table
//! only costs time, because a process forwards misdirected packets to their owners.

mod program;
pub(crate) mod table;

use std::hash::{BuildHasher, Hasher};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

use adverb_local::message::{self, Message};
use adverb_local::{Local, STEERING_QPN, Slot, Untold};
use adverb_os::User;
use adverb_os::owner;
use adverb_os::sys::{self, Fd, RawAddr, SendOptions};
use adverb_wire::{Bth, Opcode, Operation, Psn, Transport};

use crate::address::AddressSocket;
use crate::icrc::Sums;
use crate::stats::add;
use crate::udp::UdpLink;
use program::program;

/// The shortest time between two measurements of one address; doubled while the measurements find
/// no change.
const MIN_INTERVAL: Duration = Duration::from_millis(100);
const MAX_INTERVAL: Duration = Duration::from_secs(5);
/// How long one round of steering tests waits for answers.
const ROUND: Duration = Duration::from_millis(50);
/// How long a process waits for another measuring process.
const LOCK_WAIT: Duration = Duration::from_millis(120);
/// How long a testing process waits for the answer of a member with a connection.
const ANSWER_WAIT: Duration = Duration::from_millis(2);
/// The number of steering tests in flight.
const WINDOW: usize = 8;
/// The number of connections accepted between two looks at the clock.
const MAX_ANSWERS: usize = 64;
/// The largest number of members tested in a group.
const MAX_MEMBERS: usize = 1024;

/// The payload of a steering test, behind the BTH.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SteeringTest {
    pub(crate) nonce: u64,
    pub(crate) index: u32,
    pub(crate) uid: u32,
}

/// The opcode of a datagram; the destination QPN belongs to no process.
const TEST_OPCODE: Opcode = match Opcode::new(Transport::Ud, Operation::SendOnly) {
    Some(opcode) => opcode,
    None => panic!("UD has SEND Only"),
};
const TEST_MAGIC: [u8; 8] = *b"AdverbPr";
const TEST_LEN: usize = Bth::LEN + 24;

impl SteeringTest {
    /// The steering test from the BTH through the payload. The PSN is the index to which the
    /// program steers the steering test.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let bth = Bth::new(TEST_OPCODE, STEERING_QPN, Psn::new(self.index));
        let mut out = bth.to_bytes().to_vec();
        out.extend_from_slice(&TEST_MAGIC);
        out.extend_from_slice(&self.nonce.to_le_bytes());
        out.extend_from_slice(&self.index.to_le_bytes());
        out.extend_from_slice(&self.uid.to_le_bytes());
        out
    }

    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; TEST_LEN] = bytes.try_into().ok()?;
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let nonce = u64::from(word(20)) | u64::from(word(24)) << 32;
        (bytes[12..20] == TEST_MAGIC).then(|| SteeringTest {
            nonce,
            index: word(28),
            uid: word(32),
        })
    }

    /// The name at which the testing process waits for the answer.
    pub(crate) fn reply_name(&self) -> String {
        format!("adverb-{}-probe-{:016x}", self.uid, self.nonce)
    }
}

/// A process that answered, with the lowest index of its answers. For an index past the end of the
/// group, the kernel falls back to the hash and reaches some member again.
struct Responder {
    index: u32,
    slots: Vec<Slot>,
}

/// Called during the wait for answers. Must receive packets, because one of the steering tests is
/// for this process.
type Meanwhile<'a> = &'a mut dyn FnMut(&AddressSocket);

impl UdpLink {
    /// Requests a measurement of an address's steering.
    pub(crate) fn want_steering(&self, socket: &AddressSocket) {
        if self.config.steer {
            socket.steer.wanted.store(true, Relaxed);
            // The thread that takes `due` (Acquire) also sees `wanted`.
            self.due.store(true, Release);
        }
    }

    /// Whether [`UdpLink::maintain`] may have work. Costs three loads.
    pub fn maintenance_due(&self) -> bool {
        self.due.load(Relaxed) || self.steered.load(Relaxed) != self.local.claimed()
    }

    /// Measures the steering again after packets arrived at the wrong process: for each address at
    /// most every 100 ms, and less often while the measurements find no change. With work to do,
    /// the call blocks for some milliseconds. Meanwhile it calls `receive` repeatedly, which should
    /// call [`UdpLink::recv`] with [`RxFrom::Every`](crate::RxFrom::Every) unless another thread
    /// does.
    pub fn maintain(&self, receive: &mut dyn FnMut()) {
        let claimed = self.local.claimed();
        if self.steered.swap(claimed, Relaxed) != claimed {
            // The table does not contain a new slot.
            self.sockets().addresses.iter().flatten().for_each(|socket| self.want_steering(socket));
        }
        if !self.due.swap(false, Acquire) {
            return;
        }
        for socket in self.sockets().addresses.iter().flatten() {
            if !socket.steer.wanted.load(Relaxed) {
                continue;
            }
            let early = {
                let known = socket.steer.known.lock();
                known.measured.is_some_and(|at| at.elapsed() < known.interval.max(MIN_INTERVAL))
            };
            if early {
                self.due.store(true, Release);
            } else {
                self.resteer(socket, &mut |_| receive());
            }
        }
    }

    /// Measures the group of an address and attaches the resulting table.
    pub(crate) fn resteer(&self, socket: &AddressSocket, meanwhile: Meanwhile<'_>) {
        socket.steer.wanted.store(false, Relaxed);
        let result = self.measure(socket, meanwhile);
        let mut known = socket.steer.known.lock();
        known.measured = Some(Instant::now());
        match result {
            Ok((table, complete)) => {
                add(&self.counters.resteers, 1);
                let same = table == known.table;
                known.interval = if same {
                    (known.interval * 2).clamp(MIN_INTERVAL, MAX_INTERVAL)
                } else {
                    MIN_INTERVAL
                };
                known.table = table;
                drop(known);
                if !complete {
                    self.want_steering(socket);
                }
            }
            Err(error) => {
                known.interval = (known.interval * 2).clamp(MIN_INTERVAL, MAX_INTERVAL);
                drop(known);
                log::debug!("{}: steering not measured: {error}", socket.local);
                self.want_steering(socket);
            }
        }
    }

    /// The table, and whether every member answered.
    fn measure(
        &self,
        socket: &AddressSocket,
        meanwhile: Meanwhile<'_>,
    ) -> io::Result<(Vec<(Slot, u32)>, bool)> {
        let counted = members(socket);
        if counted == Some(1) {
            return Ok((self.local.slots().into_iter().map(|slot| (slot, 0)).collect(), true));
        }
        let _lock = steer_lock(&self.local, socket, &self.steer_warned, meanwhile)?;
        let known = socket.steer.known.lock().table.clone();
        // Without a count: one more than known, at least four. A member reached past the end
        // answers twice.
        let guess = counted.unwrap_or_else(|| (indices(&known) + 1).max(4)).min(MAX_MEMBERS);
        let mut found = self.test_round(socket, guess, meanwhile)?;
        let whole = |found: &[Responder]| counted.map_or(found.len() > 1, |n| found.len() == n);
        if !whole(&found) {
            // The attached program does not know steering tests, or a member was slow. Packets are
            // steered by the best table so far.
            let table = if found.len() > 1 { table_of(&found) } else { known };
            sys::attach_reuseport(&socket.fd, &program(&table))?;
            found = self.test_round(socket, guess, meanwhile)?;
        }
        let table = table_of(&found);
        sys::attach_reuseport(&socket.fd, &program(&table))?;
        Ok((table, counted.is_none_or(|n| found.len() == n)))
    }

    /// Tests the indexes 0..n and collects the answers. Receives on the own socket meanwhile,
    /// because one of the steering tests arrives there.
    fn test_round(
        &self,
        socket: &AddressSocket,
        n: usize,
        meanwhile: Meanwhile<'_>,
    ) -> io::Result<Vec<Responder>> {
        let nonce = nonce();
        let test = |index: u32| SteeringTest { nonce, index, uid: self.local.uid() };
        let answers = sys::message_socket(self.local.descriptors())?;
        sys::bind(&answers, &RawAddr::abstract_name(&test(0).reply_name()))?;
        sys::listen(&answers, MAX_MEMBERS as i32)?;
        let mut own = socket.local;
        own.set_port(sys::local_port(&socket.fd)?);
        let to = RawAddr::inet(&own);

        let mut found: Vec<Responder> = Vec::new();
        let start = Instant::now();
        let until = start + ROUND;
        let mut received = 0;
        let mut next = 0;
        while received < n {
            // Few at a time, so that no member's buffer overflows. Members without an answer must
            // not delay the others.
            let silent = start.elapsed().as_millis() as usize / 2 * WINDOW;
            while next < n && next < received + WINDOW + silent {
                let mut packet = test(next as u32).encode();
                let icrc = Sums::default().compute(&own, &own, 0, &packet);
                packet.extend_from_slice(&icrc);
                // Sent from the port itself, as all packets of this machine. A lost steering test
                // counts as a member without an answer.
                if let Err(error) =
                    sys::send(&socket.fd, socket.v6, &to, &packet, SendOptions::default())
                {
                    self.local.errors().note("send a steering test", &error);
                }
                next += 1;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let wait = if next < n {
                Duration::from_millis(2)
            } else {
                left.max(Duration::from_millis(1))
            };
            sys::poll(&[answers.raw(), socket.fd.raw()], libc::POLLIN, wait)?;
            meanwhile(socket);
            received += take_answers(&self.local, &answers, nonce, &mut found);
        }
        found.sort_by_key(|responder| responder.index);
        Ok(found)
    }

    /// Tells another member of an address's group to measure soon, because our socket is closed.
    /// Without this message, the first misdirected packet has the same effect.
    pub(crate) fn refresh_others(&self, socket: Arc<AddressSocket>) {
        let ip = socket.local.ip();
        let table = std::mem::take(&mut socket.steer.known.lock().table);
        drop(socket);
        for (slot, _) in table {
            if !self.local.owns(slot) && self.local.tell_refresh(slot, ip) {
                return;
            }
        }
    }
}

/// Lets only one process measure an address at a time: an abstract name that is released at its
/// holder's death. The lock is only a hint, to keep two processes from changing each other's groups
/// during a measurement. So a process does not wait for another user holding the name.
fn steer_lock(
    local: &Local,
    socket: &AddressSocket,
    warned: &AtomicBool,
    meanwhile: Meanwhile<'_>,
) -> io::Result<Option<Fd>> {
    if local.changed_user().is_some() {
        return Ok(None);
    }
    let fd = sys::message_socket(local.descriptors())?;
    let name = format!("adverb-{}-steer-{}", local.uid(), socket.local);
    let address = RawAddr::abstract_name(&name);
    let until = Instant::now() + LOCK_WAIT;
    let mut holds: Option<Fd> = None;
    loop {
        match sys::bind(&fd, &address) {
            Ok(()) => {
                // A process finding the name taken asks for its holder.
                sys::listen(&fd, MAX_MEMBERS as i32)?;
                return Ok(Some(fd));
            }
            Err(error) if error.raw_os_error() != Some(libc::EADDRINUSE) => return Err(error),
            Err(_) => {}
        }
        // A connection to the holder carries no data, and ends with the holder.
        if holds.as_ref().is_none_or(|holder| !is_open(holder)) {
            holds = match local.prove_owner(&name) {
                Ok(holder) => Some(holder),
                Err(Untold::Full) => None,
                // The holder is between its two calls, or has ended by now, or only blocks the
                // name.
                Err(error) => {
                    if let Some(uid) = holder(&error, &name, local.uid())
                        && !warned.swap(true, Relaxed)
                    {
                        log::warn!(
                            "{} has the name @{name}, so processes of this user do not take turns \
                             in the steering test",
                            User(uid)
                        );
                    }
                    return Ok(None);
                }
            };
        }
        if Instant::now() >= until {
            return Err(io::ErrorKind::TimedOut.into());
        }
        // The holder waits for our answer.
        meanwhile(socket);
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn take_answers(local: &Local, answers: &Fd, nonce: u64, found: &mut Vec<Responder>) -> usize {
    let mut buffer = [0; 4096];
    let mut count = 0;
    // A connected member has already sent its answer, or sends none that counts. Limited in number,
    // because another user may connect faster than its connections are refused.
    for member in (0..MAX_ANSWERS).map_while(|_| local.accept_proved(answers).ok()) {
        let Some(member) = member else { continue };
        let Some(arrived) = recv_soon(&member, &mut buffer) else { continue };
        let Some(Message::Answer { nonce: of, index, slots }) =
            message::parse(&buffer[..arrived.len])
        else {
            continue;
        };
        if of != nonce || slots.is_empty() {
            continue;
        }
        count += 1;
        match found.iter_mut().find(|known| known.slots[0] == slots[0]) {
            Some(known) => known.index = known.index.min(index),
            None => found.push(Responder { index, slots }),
        }
    }
    count
}

/// The number of indexes in a table.
fn indices(table: &[(Slot, u32)]) -> usize {
    table.iter().map(|&(_, index)| index as usize + 1).max().unwrap_or(0)
}

fn table_of(found: &[Responder]) -> Vec<(Slot, u32)> {
    found.iter().flat_map(|r| r.slots.iter().map(|&slot| (slot, r.index))).collect()
}

fn nonce() -> u64 {
    // Each state has its own random keys.
    std::hash::RandomState::new().build_hasher().finish()
}

/// The other user holding a name.
fn holder(error: &Untold, name: &str, uid: u32) -> Option<u32> {
    match error {
        Untold::OtherUser(uid) => Some(*uid),
        _ => owner::holders(|held| held == name).into_keys().find(|holder| *holder != uid),
    }
}

/// Whether the other end of a connection without data is alive.
fn is_open(connection: &Fd) -> bool {
    sys::recv_local(connection, &mut [0])
        .is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

/// The message of a connection that was just accepted. The sender sends right after connecting.
fn recv_soon(member: &Fd, buffer: &mut [u8]) -> Option<sys::Local> {
    match sys::recv_local(member, buffer) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            sys::poll(&[member.raw()], libc::POLLIN, ANSWER_WAIT).ok()?;
            sys::recv_local(member, buffer).ok()
        }
        result => result.ok(),
    }
}

/// The number of UDP sockets bound to the address and port, by the kernel's table; `None` if the
/// table is not readable.
fn members(socket: &AddressSocket) -> Option<usize> {
    let file = if socket.v6 { "/proc/thread-self/net/udp6" } else { "/proc/thread-self/net/udp" };
    let text = std::fs::read_to_string(file).ok()?;
    let local = owner::table_name(socket.local.ip(), socket.local.port());
    let count = text.lines().filter(|line| line.split_whitespace().nth(1) == Some(&*local)).count();
    (count > 0).then_some(count)
}

#[cfg(test)]
mod tests;
