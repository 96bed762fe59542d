//! The survivor: the table of processes and connections, and the farewells still to send.
use crate::record::{LEN, Record, Said};
use adverb_cm::{MAD_LEN, Path, Time};
use adverb_device::mad::{Arrival, MadHandler, MadInterface};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{getsockopt, sockopt};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Collects the text of the objects of the user's processes, as [`adverb_nldev::Objects`] reads it.
/// `None` without an answer of each process.
pub type Objects = fn() -> Option<String>;

/// How often a farewell is sent. The network may lose a farewell, and the survivor does not wait
/// for an answer.
const TIMES: usize = 4;
/// Time between two of these farewells.
const APART: Duration = Duration::from_millis(150);
/// Most remembered processes.
const PROCESSES: usize = 4096;
/// Most connections of a process.
const CONNECTIONS: usize = 1 << 16;

/// Time limit for a client's message.
const CLIENT_TIMEOUT: Duration = Duration::from_millis(100);
/// Time limit for the reader of an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Delay before a retry after the kernel lacked memory or a descriptor.
const RETRY: Duration = Duration::from_millis(10);

/// A process with connections.
struct Process {
    /// Readable once the process has ended; `None` if the process had ended before the pidfd was
    /// opened.
    end: Option<OwnedFd>,
    connections: BTreeMap<u32, Record>,
}

impl Process {
    fn has_ended(&self) -> bool {
        self.end.as_ref().is_none_or(has_ended)
    }
}

/// A farewell to send.
struct Farewell {
    at: Instant,
    left: usize,
    path: Path,
    mad: [u8; MAD_LEN],
}

/// Ignores all answers, because the process with the connection has ended.
struct IgnoreMads;

impl MadHandler for IgnoreMads {
    fn mad(&self, _: Time, _: &Arrival<'_>) -> Option<Time> {
        None
    }
    fn timeout(&self, _: Time) -> Option<Time> {
        None
    }
    fn peer_ended(&self, _: Time, _: u32) -> Option<Time> {
        None
    }
}

/// Serves until the program and every process with connections have ended, and all farewells are
/// sent.
pub(crate) fn serve(listener: &UnixListener, program: &OwnedFd, objects: Objects) {
    let mut processes: BTreeMap<i32, Process> = BTreeMap::new();
    let mut farewells: Vec<Farewell> = Vec::new();
    let mut mads = None;
    let mut program_runs = true;
    while program_runs || !processes.is_empty() || !farewells.is_empty() {
        let next = farewells.iter().map(|f| f.at).min();
        wait(listener, program_runs.then_some(program), &processes, next);
        // Messages first: the last message of a process counts, even if the process has ended.
        take_messages(listener, &mut processes, objects);
        program_runs = program_runs && !has_ended(program);
        let at = Instant::now();
        processes.retain(|_, process| {
            let has_ended = process.has_ended();
            if has_ended {
                let farewell =
                    |r: &Record| Farewell { at, left: TIMES, path: r.path, mad: r.farewell };
                farewells.extend(process.connections.values().map(farewell));
            }
            !has_ended && !process.connections.is_empty()
        });
        if !farewells.is_empty() {
            // The sockets and the thread are created only when a process has died.
            let mads = mads.get_or_insert_with(|| MadInterface::open(Arc::new(IgnoreMads)).ok());
            send_due(mads.as_ref(), &mut farewells);
        }
    }
}

fn wait(
    listener: &UnixListener,
    program: Option<&OwnedFd>,
    processes: &BTreeMap<i32, Process>,
    next: Option<Instant>,
) {
    let ends = processes.values().filter_map(|process| process.end.as_ref()).chain(program);
    let watched = ends.map(AsFd::as_fd).chain([listener.as_fd()]);
    let mut fds: Vec<PollFd<'_>> = watched.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
    let timeout = match next {
        None => PollTimeout::NONE,
        // Rounded up by a millisecond, so that the wait never ends early.
        Some(at) => PollTimeout::try_from(
            at.saturating_duration_since(Instant::now()) + Duration::from_millis(1),
        )
        .unwrap_or(PollTimeout::MAX),
    };
    if poll(&mut fds, timeout).is_err_and(|e| e != Errno::EINTR) {
        // The kernel is out of memory. This process has no log, and tries again after a delay.
        std::thread::sleep(RETRY);
    }
}

fn has_ended(end: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(end.as_fd(), PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::ZERO).is_ok_and(|n| n > 0)
}

/// Reads the messages of this user's processes.
fn take_messages(
    listener: &UnixListener,
    processes: &mut BTreeMap<i32, Process>,
    objects: Objects,
) {
    loop {
        match listener.accept() {
            // A client without a valid message is not a process of this run.
            Ok((stream, _)) => match take_message(&stream, processes) {
                // Processes may be slow to answer, and the farewells do not wait.
                Ok(true) => {
                    let answer = move || {
                        answer(&stream, objects);
                        adverb_os::end_connection(stream.into());
                    };
                    let _ = std::thread::Builder::new().spawn(answer);
                }
                _ => adverb_os::end_connection(stream.into()),
            },
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
            // Out of descriptors or memory. The client waits at the socket, which stays readable.
            Err(_) => return std::thread::sleep(RETRY),
        }
    }
}

/// Without an answer the connection ends.
fn answer(mut stream: &UnixStream, objects: Objects) {
    let _ = stream.set_write_timeout(Some(ANSWER_TIMEOUT));
    if let Some(text) = objects() {
        let _ = stream.write_all(text.as_bytes());
    }
}

/// `true`: the message is a question for the objects of the user's processes.
fn take_message(
    mut stream: &UnixStream,
    processes: &mut BTreeMap<i32, Process>,
) -> io::Result<bool> {
    let sender = getsockopt(stream, sockopt::PeerCredentials)?;
    if sender.uid() != nix::unistd::geteuid().as_raw() || sender.pid() <= 0 {
        return Err(Errno::EPERM.into());
    }
    stream.set_read_timeout(Some(CLIENT_TIMEOUT))?;
    let mut bytes = [0; LEN];
    let (kind, rest) = bytes.split_at_mut(adverb_nldev::QUESTION.len());
    stream.read_exact(kind)?;
    if kind == adverb_nldev::QUESTION {
        return Ok(true);
    }
    stream.read_exact(rest)?;
    match Said::parse(&bytes).ok_or(Errno::EBADMSG)? {
        Said::Entrust(record) => {
            let full = processes.len() >= PROCESSES && !processes.contains_key(&sender.pid());
            let process = processes.entry(sender.pid()).or_insert_with(|| Process {
                end: adverb_os::process_end(sender.pid()).ok(),
                connections: BTreeMap::new(),
            });
            if !full && process.connections.len() < CONNECTIONS {
                process.connections.insert(record.local_id, *record);
            }
        }
        Said::Withdraw(local_id) => {
            if let Some(process) = processes.get_mut(&sender.pid()) {
                process.connections.remove(&local_id);
            }
        }
    }
    Ok(false)
}

/// Sends the farewells due now, and removes a farewell after the last transmission.
fn send_due(mads: Option<&MadInterface>, farewells: &mut Vec<Farewell>) {
    let now = Instant::now();
    for farewell in farewells.iter_mut().filter(|f| f.at <= now) {
        if let Some(mads) = mads {
            // An error counts as a loss; the farewell is sent again.
            let _ = mads.send(&farewell.path, &farewell.mad);
        }
        farewell.left -= 1;
        farewell.at = now + APART;
    }
    farewells.retain(|f| f.left > 0 && mads.is_some());
}
