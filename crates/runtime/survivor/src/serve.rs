//! The survivor itself: who has which connections, who has ended, what is still to be sent.
use crate::record::{LEN, Record, Said};
use adverb_cm::{MAD_LEN, Path, Time};
use adverb_device::mad::{Arrival, MadDoor, MadHandler};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{getsockopt, sockopt};
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A farewell is sent so often: it may be lost, and nobody sees the answer.
const TIMES: usize = 4;
const APART: Duration = Duration::from_millis(150);
/// Processes and connections of each that are remembered at most.
const PROCESSES: usize = 4096;
const CONNECTIONS: usize = 1 << 16;

/// How long whoever connects may take to say something.
const CLIENT_TIMEOUT: Duration = Duration::from_millis(100);
/// Pace of trying again what the kernel had no memory or descriptor for.
const RETRY: Duration = Duration::from_millis(10);

/// A process with connections.
struct Process {
    /// Readable once the process has ended; `None` when it had ended before this was asked for.
    end: Option<OwnedFd>,
    connections: BTreeMap<u32, Record>,
}

impl Process {
    fn has_ended(&self) -> bool {
        self.end.as_ref().is_none_or(has_ended)
    }
}

/// What is to be sent.
struct Farewell {
    at: Instant,
    left: usize,
    path: Path,
    mad: [u8; MAD_LEN],
}

/// Ignores all answers: the process that they are for has ended.
struct Deaf;

impl MadHandler for Deaf {
    fn mad(&self, _: Time, _: &Arrival<'_>) -> Option<Time> {
        None
    }
    fn timeout(&self, _: Time) -> Option<Time> {
        None
    }
    fn peer_gone(&self, _: Time, _: u32) -> Option<Time> {
        None
    }
}

/// Serves until the program and every process with connections have ended and everything is sent.
pub(crate) fn serve(listener: &UnixListener, program: &OwnedFd) {
    let mut processes: BTreeMap<i32, Process> = BTreeMap::new();
    let mut farewells: Vec<Farewell> = Vec::new();
    let mut door = None;
    let mut program_runs = true;
    while program_runs || !processes.is_empty() || !farewells.is_empty() {
        let next = farewells.iter().map(|f| f.at).min();
        wait(listener, program_runs.then_some(program), &processes, next);
        // Before the ends: what a process said last counts.
        take_messages(listener, &mut processes);
        program_runs = program_runs && !has_ended(program);
        let at = Instant::now();
        processes.retain(|_, process| {
            let has_ended = process.has_ended();
            if has_ended {
                let farewell = |r: &Record| Farewell { at, left: TIMES, path: r.path, mad: r.farewell };
                farewells.extend(process.connections.values().map(farewell));
            }
            !has_ended && !process.connections.is_empty()
        });
        if !farewells.is_empty() {
            // Sockets and a thread only now, when somebody has died.
            let door = door.get_or_insert_with(|| MadDoor::open(Arc::new(Deaf)).ok());
            send_due(door.as_ref(), &mut farewells);
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
        // A millisecond more than what is left: never early.
        Some(at) => {
            PollTimeout::try_from(at.saturating_duration_since(Instant::now()) + Duration::from_millis(1))
                .unwrap_or(PollTimeout::MAX)
        }
    };
    if poll(&mut fds, timeout).is_err_and(|e| e != Errno::EINTR) {
        // Out of kernel memory. This process has no log; it tries again, without spinning.
        std::thread::sleep(RETRY);
    }
}

fn has_ended(end: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(end.as_fd(), PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::ZERO).is_ok_and(|n| n > 0)
}

/// Takes what processes of this user say.
fn take_messages(listener: &UnixListener, processes: &mut BTreeMap<i32, Process>) {
    loop {
        match listener.accept() {
            // A client without a valid message is no process of this run.
            Ok((stream, _)) => {
                let _ = take_message(&stream, processes);
                adverb_os::end_connection(stream.into());
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
            // Out of descriptors or memory: the client waits at the socket, which stays readable.
            Err(_) => return std::thread::sleep(RETRY),
        }
    }
}

fn take_message(mut stream: &UnixStream, processes: &mut BTreeMap<i32, Process>) -> io::Result<()> {
    let sender = getsockopt(stream, sockopt::PeerCredentials)?;
    if sender.uid() != nix::unistd::geteuid().as_raw() || sender.pid() <= 0 {
        return Err(Errno::EPERM.into());
    }
    stream.set_read_timeout(Some(CLIENT_TIMEOUT))?;
    let mut bytes = [0; LEN];
    stream.read_exact(&mut bytes)?;
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
    Ok(())
}

/// Sends what is due; what has been sent often enough is done with.
fn send_due(door: Option<&MadDoor>, farewells: &mut Vec<Farewell>) {
    let now = Instant::now();
    for farewell in farewells.iter_mut().filter(|f| f.at <= now) {
        if let Some(door) = door {
            // Lost, it is sent again.
            let _ = door.send(&farewell.path, &farewell.mad);
        }
        farewell.left -= 1;
        farewell.at = now + APART;
    }
    farewells.retain(|f| f.left > 0 && door.is_some());
}
