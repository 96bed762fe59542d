//! Ethernet frames of raw packet queue pairs: to and from an interface by a packet socket, and
//! between processes of a user.
//!
//! A process without a packet socket announces by an abstract name that it takes frames of an
//! interface. The sender looks for such names each time, and gives the frame to the owners of the
//! slots in the names. The connections prove the user (see [`crate::delivery`]).

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use adverb_os::owner;
use adverb_os::sys::{self, Fd, RawAddr};

use crate::connection::{FRAMES, received};
use crate::error::LocalError;
use crate::frame_queue::RawFrame;
use crate::local::Local;
use crate::message;
use crate::slot::Slot;
use crate::stats::add;

/// The limit for the bytes of kept frames.
const KEPT: usize = 32 << 20;
/// The accounted overhead of a frame in bytes.
const OVERHEAD: usize = 64;
/// The buffer sizes of a packet socket.
const RECEIVE: usize = 32 << 20;
const SEND: usize = 4 << 20;
/// The number of frames taken from one socket before the other sockets get a turn.
const IN_A_ROW: usize = 64;
/// How often a sender waits for a full interface.
const TRIES: usize = 20;
/// How long a sender waits each time.
const WAIT: Duration = Duration::from_millis(1);

/// A port for frames of an interface.
pub struct FramePort {
    interface: u32,
    /// A packet socket and its token.
    socket: Option<(Arc<Fd>, u64)>,
    /// Bound to a name that announces this process as a receiver of the interface's frames.
    _name: Option<Fd>,
}

impl std::fmt::Debug for FramePort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FramePort").field("interface", &self.interface).finish_non_exhaustive()
    }
}

/// The common prefix of the names of receivers of an interface's frames.
fn names_of(uid: u32, interface: u32) -> String {
    format!("adverb-{uid}-raw-{interface}-")
}

impl Local {
    /// Takes frames of an interface by a packet socket from now on.
    ///
    /// # Errors
    /// [`OsError::PermissionDenied`](adverb_os::OsError::PermissionDenied) without the capability;
    /// otherwise an error of the system.
    pub fn open_frames(&self, interface: u32) -> Result<FramePort, LocalError> {
        let fail = |error| LocalError::from_io("open a packet socket", error);
        let fd = Arc::new(sys::packet_socket(&self.fds, interface).map_err(fail)?);
        sys::grow_buffer(&fd, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, RECEIVE);
        sys::grow_buffer(&fd, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, SEND);
        let token = FRAMES | self.frames.next.fetch_add(1, Relaxed);
        self.frames.sockets.lock().push((token, interface, fd.clone()));
        sys::watch(&self.incoming.any, &fd, token).map_err(fail)?;
        Ok(FramePort { interface, socket: Some((fd, token)), _name: None })
    }

    /// Takes frames of an interface from other processes of this user from now on.
    ///
    /// # Errors
    /// An error of the system.
    pub fn share_frames(&self, interface: u32) -> Result<FramePort, LocalError> {
        let fail = |error| LocalError::from_io("take frames of other processes", error);
        self.check_user()?;
        let name = sys::message_socket(&self.fds).map_err(fail)?;
        // Another user may hold one of our names; the next number will do.
        let slot = self.slots().first().copied().unwrap_or_default();
        for number in 0..64 {
            let text = format!("{}{slot}+{number}", names_of(self.uid(), interface));
            match sys::bind(&name, &RawAddr::abstract_name(&text)) {
                Ok(()) => return Ok(FramePort { interface, socket: None, _name: Some(name) }),
                Err(error) if error.raw_os_error() == Some(libc::EADDRINUSE) => {}
                Err(error) => return Err(fail(error)),
            }
        }
        Err(fail(io::Error::from_raw_os_error(libc::EADDRINUSE)))
    }

    /// Stops taking frames.
    pub fn close_frames(&self, port: &FramePort) {
        if let Some((fd, token)) = &port.socket {
            self.frames.sockets.lock().retain(|(of, ..)| of != token);
            sys::unwatch(self.incoming.any.own(), fd.own());
        }
    }

    /// Sends a frame through an interface. Waits a little for a full interface.
    ///
    /// # Errors
    /// The error of the kernel; the frame was dropped.
    pub fn send_frame(&self, port: &FramePort, frame: &[u8]) -> io::Result<()> {
        let Some((fd, _)) = &port.socket else { return Err(io::ErrorKind::NotConnected.into()) };
        let mut tries = 0;
        loop {
            let Err(error) = sys::send_frame(fd, frame) else { return Ok(()) };
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::EAGAIN) if tries < TRIES => {
                    tries += 1;
                    sys::poll(&[fd.raw()], libc::POLLOUT, WAIT)?;
                }
                // The queue of the interface is full. No descriptor reports when it has room again.
                Some(libc::ENOBUFS) if tries < TRIES => {
                    tries += 1;
                    std::thread::sleep(WAIT / 10);
                }
                _ => {
                    add(&self.counters.frame_drop_full, 1);
                    return Err(error);
                }
            }
        }
    }

    /// The slots of this user's other processes that take frames of an interface.
    pub fn frame_takers(&self, interface: u32) -> Vec<Slot> {
        let common = names_of(self.uid(), interface);
        let mut slots = Vec::new();
        owner::each_name(|name, uid| {
            let name = Some(name).filter(|_| uid == self.uid());
            let slot = name.and_then(|name| name.strip_prefix(&common)?.split('+').next());
            let slot = slot.and_then(|slot| slot.parse::<Slot>().ok());
            slots.extend(slot.filter(|slot| !self.owns(*slot)));
        });
        slots.sort_unstable();
        slots.dedup();
        slots
    }

    /// Gives a frame to the owner of a slot. The frame is dropped if the owner has not taken
    /// earlier messages.
    pub fn tell_frame(&self, slot: Slot, interface: u32, frame: &[u8]) {
        match self.tell(slot, &[&message::frame_header(interface), frame], &[]) {
            Ok(_) => add(&self.counters.forwarded_out, 1),
            Err(_) => add(&self.counters.forwarded_drop_full, 1),
        }
    }

    /// Keeps a frame for the next call of [`frames`](Self::frames). Drops the frame beyond the
    /// limit of kept bytes.
    pub fn keep_frame(&self, frame: RawFrame) {
        let mut kept = self.frames.kept.lock();
        let size = frame.bytes.len() + OVERHEAD;
        if kept.1 + size > KEPT {
            return add(&self.counters.frame_drop_pending, 1);
        }
        kept.1 += size;
        kept.0.push_back(frame);
        self.frames.any.store(true, Relaxed);
    }

    /// The frames that arrived since the last call.
    #[inline]
    pub fn frames(&self) -> VecDeque<RawFrame> {
        if !self.frames.any.load(Relaxed) {
            return VecDeque::new();
        }
        let mut kept = self.frames.kept.lock();
        self.frames.any.store(false, Relaxed);
        kept.1 = 0;
        std::mem::take(&mut kept.0)
    }

    /// Receives the waiting frames of a packet socket.
    pub(crate) fn recv_frames(&self, token: u64, buffer: &mut [u8]) {
        let is_it = |(of, ..): &&(u64, u32, Arc<Fd>)| *of == token;
        let found = self.frames.sockets.lock().iter().find(is_it).cloned();
        let Some((_, interface, fd)) = found else { return };
        for _ in 0..IN_A_ROW {
            match sys::recv_frame(&fd, buffer) {
                Ok(Some(framed)) => {
                    let bytes = framed.bytes(received(buffer, framed.len));
                    self.keep_frame(RawFrame { interface, leaving: framed.leaving, bytes });
                }
                Ok(None) => add(&self.counters.frame_drop_oversize, 1),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // An interface that goes down reports an error once.
                Err(error) => self.errors.note("receive frames", &error),
            }
        }
    }
}
