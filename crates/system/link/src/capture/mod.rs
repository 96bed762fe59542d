//! What crosses the link, as a file that Wireshark reads.
//!
//! Every packet of a queue pair, sent or received, is recorded as an IP packet: addresses, ports,
//! traffic class, hop limit and IPv4 identification as on the wire, checksums right, the ICRC at
//! its end. A packet that travels between processes of this host without the network has no such
//! headers; it gets those it would have had. A comment says which way a packet went and what befell
//! it.
//!
//! A packet that crosses shared memory ([`Capture::near`]) is recorded at the cost of a copy: its
//! UDP checksum is 0 over IPv4, as the annex of RoCEv2 wants it, and its ICRC is 0. Such a packet
//! may be longer than an IP packet. Then the end of its payload is left out, and the block's
//! original length says how long it was.
//!
//! What was recorded is written when a run was sent or a batch received, so that little is missing
//! when the process is killed. Packets that cross shared memory are written by the device's
//! background thread, a few milliseconds later. The kernel may cut that write short then, between
//! two pages: the last packet of a file may be cut, which readers say and survive, and all before
//! it is whole. A file that cannot be written ends its capture with a line in the log and nothing
//! else.

mod frame;
mod pcapng;

use std::ffi::OsString;
use std::fmt;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

use adverb_sync::Mutex;

use crate::icrc;
use crate::sys::OwnFd;
pub(crate) use frame::Flow;
use pcapng::Direction;

/// Names tried when files with the process's number are there already.
const NAMES: u32 = 100;

/// What this process records of its packets: a file, and what goes to its trace, if it is traced.
pub struct Capture {
    path: PathBuf,
    /// There is a file, and no error so far.
    records: AtomicBool,
    /// Blocks that are not written yet.
    buffer: Mutex<Vec<u8>>,
    /// Locked before `buffer`.
    output: Mutex<Output>,
    /// Something is recorded and not written yet.
    dirty: AtomicBool,
}

struct Output {
    /// `None` after an error.
    file: Option<OwnFd>,
    /// A buffer to use again.
    spare: Vec<u8>,
    /// Bytes of whole blocks in the file.
    written: u64,
    limit: u64,
}

/// A packet that crosses shared memory.
#[derive(Clone, Copy, Debug)]
pub struct NearPacket<'a> {
    /// Nanoseconds since 1970 ([`Capture::now`]).
    pub time: u64,
    /// Sent, not received.
    pub sent: bool,
    /// Which way it went, and what befell it.
    pub comment: &'a str,
    /// Address of the sender.
    pub src: IpAddr,
    /// Address of the receiver.
    pub dst: IpAddr,
    /// From the BTH on.
    pub headers: &'a [u8],
    /// Bytes of payload.
    pub payload: usize,
}

impl Capture {
    /// Creates a file and begins a capture. An existing file is never written to: then the
    /// process's number is put before the extension. `limit` is the largest size of a file in
    /// bytes; the capture ends before it.
    ///
    /// # Errors
    /// What the system said when the file was created.
    pub fn create(path: &Path, limit: u64) -> io::Result<Capture> {
        let (path, file) = create_new(path)?;
        // Tells `make_room` that somebody writes; where files cannot be locked it removes none.
        let _ = file.try_lock();
        let mut buffer = Vec::new();
        let name = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
        let comment = format!("packets of process {} ({})", std::process::id(), name.trim_end());
        pcapng::start(&mut buffer, concat!("adverb ", env!("CARGO_PKG_VERSION")), &comment);
        let file = Some(OwnedFd::from(file).into());
        let capture = Capture::of(path, buffer, Output { file, spare: Vec::new(), written: 0, limit });
        capture.flush();
        Ok(capture)
    }

    /// No file: packets go to the trace alone.
    #[must_use]
    pub fn of_trace() -> Capture {
        let output = Output { file: None, spare: Vec::new(), written: 0, limit: 0 };
        Capture::of(PathBuf::new(), Vec::new(), output)
    }

    fn of(path: PathBuf, buffer: Vec<u8>, output: Output) -> Capture {
        Capture {
            path,
            records: AtomicBool::new(output.file.is_some()),
            dirty: AtomicBool::new(!buffer.is_empty()),
            buffer: Mutex::new(buffer),
            output: Mutex::new(output),
        }
    }

    /// The time as packets have it.
    #[must_use]
    pub fn now() -> u64 {
        now()
    }

    /// Does it have a file that packets are recorded in?
    #[inline]
    #[must_use]
    pub fn records(&self) -> bool {
        self.records.load(Relaxed)
    }

    /// Where it goes.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Records packets of one run that is about to be sent; each ends with its ICRC.
    pub(crate) fn sent(&self, flow: &Flow, bytes: &[u8], stride: usize, comment: &str) {
        let time = now();
        let mut buffer = self.buffer.lock();
        for (id, packet) in bytes.chunks(stride.max(1)).enumerate() {
            adverb_trace::packet(true, flow.src, flow.dst, without_icrc(packet), comment);
            self.record(&mut buffer, time, Direction::Sent, comment, flow, id as u16, [packet, &[]]);
        }
        self.dirty.store(true, Relaxed);
    }

    /// Records a packet without its ICRC that crosses or has crossed to another process directly;
    /// the ICRC is made up. It left at `began`, of the trace's clock.
    pub(crate) fn sent_directly(&self, flow: &Flow, packet: &[u8], began: u64) {
        let comment = "sent to its process directly";
        adverb_trace::packet_at(began, true, flow.src, flow.dst, packet, comment);
        self.put(Direction::Sent, comment, flow, 0, packet);
    }

    /// Records a packet that has arrived, its ICRC stripped; `id` is the IPv4 identification that
    /// made it right.
    pub(crate) fn received(&self, flow: &Flow, id: u16, packet: &[u8], comment: &str) {
        adverb_trace::packet(false, flow.src, flow.dst, packet, comment);
        self.put(Direction::Received, comment, flow, id, packet);
    }

    /// Records bytes that have arrived as they are.
    pub(crate) fn received_raw(&self, flow: &Flow, id: u16, bytes: &[u8], comment: &str) {
        adverb_trace::packet(false, flow.src, flow.dst, without_icrc(bytes), comment);
        let mut buffer = self.buffer.lock();
        self.record(&mut buffer, now(), Direction::Received, comment, flow, id, [bytes, &[]]);
        self.dirty.store(true, Relaxed);
    }

    /// Records a packet that crosses shared memory, and writes nothing: [`Capture::flush`] does.
    /// `fill` is given a part of the buffer that has room for the payload, or for as much of it as
    /// an IP packet holds, from its beginning on. Answers how many bytes wait to be written.
    pub fn near(&self, packet: &NearPacket<'_>, fill: impl FnOnce(&mut [u8])) -> usize {
        let NearPacket { time, sent, comment, src, dst, headers, payload } = *packet;
        let direction = if sent { Direction::Sent } else { Direction::Received };
        let near = frame::Near::of(src, dst, headers.len(), payload);
        let mut buffer = self.buffer.lock();
        pcapng::near(&mut buffer, time, direction, comment, &near, headers, fill);
        self.dirty.store(true, Relaxed);
        buffer.len()
    }

    fn put(&self, direction: Direction, comment: &str, flow: &Flow, id: u16, packet: &[u8]) {
        let icrc = icrc::compute(&flow.src, &flow.dst, id, packet);
        let mut buffer = self.buffer.lock();
        self.record(&mut buffer, now(), direction, comment, flow, id, [packet, &icrc]);
        self.dirty.store(true, Relaxed);
    }

    /// Writes what was recorded. Whoever records meanwhile waits for nothing.
    pub fn flush(&self) {
        if !self.dirty.swap(false, Relaxed) {
            return;
        }
        let mut output = self.output.lock();
        let spare = std::mem::take(&mut output.spare);
        let mut blocks = std::mem::replace(&mut *self.buffer.lock(), spare);
        let result = output.write(&blocks);
        blocks.clear();
        output.spare = blocks;
        if let Err(error) = result {
            self.records.store(false, Relaxed);
            log::error!("the capture in {} ends: {error}", self.path.display());
        }
    }

    #[allow(clippy::too_many_arguments, reason = "what a block is made of")]
    fn record(
        &self,
        buffer: &mut Vec<u8>,
        time: u64,
        direction: Direction,
        comment: &str,
        flow: &Flow,
        id: u16,
        parts: [&[u8]; 2],
    ) {
        if self.records() {
            pcapng::packet(buffer, time, direction, comment, |out| frame::put(out, flow, id, parts));
        }
    }
}

impl Output {
    fn write(&mut self, blocks: &[u8]) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let len = blocks.len() as u64;
        // A write beyond the limit on file sizes would end the program by SIGXFSZ.
        let result = match self.written.checked_add(len) {
            Some(end) if end <= self.limit => file.as_file(|file| file.write_all(blocks)),
            _ => Err(io::ErrorKind::FileTooLarge.into()),
        };
        match result {
            Ok(()) => self.written += len,
            Err(_) => {
                // Half a block would make the whole file unreadable for some.
                let _ = file.as_file(|file| file.set_len(self.written));
                self.file = None;
            }
        }
        result
    }
}

impl fmt::Debug for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capture").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Removes the file of an earlier capture, so that a new one may have its name. One that somebody
/// still writes stays: the new one then takes another name.
///
/// # Errors
/// What is there is no capture, or the system's refusal. Nothing was removed.
pub fn make_room(path: &Path) -> io::Result<()> {
    // Whoever put a pipe there does not hold this process up.
    let mut file = match OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let found = file.metadata()?;
    let mut magic = [0; pcapng::MAGIC.len()];
    if !found.is_file() || found.len() > 0 && (file.read_exact(&mut magic).is_err() || magic != pcapng::MAGIC)
    {
        let text = "there is something else than an earlier capture, which is not overwritten";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
    }
    match file.try_lock() {
        Ok(()) => std::fs::remove_file(path),
        // In use, or it cannot be told.
        Err(TryLockError::WouldBlock | TryLockError::Error(_)) => Ok(()),
    }
}

/// The first name that is free: `path`, then `path` with the process's number.
fn create_new(path: &Path) -> io::Result<(PathBuf, File)> {
    let pid = std::process::id();
    let names = std::iter::once(path.to_path_buf()).chain(
        (0..NAMES).map(|n| numbered(path, if n == 0 { format!("{pid}") } else { format!("{pid}-{n}") })),
    );
    let mut last = io::ErrorKind::AlreadyExists.into();
    for name in names {
        // What programs send to each other is not for other users to read.
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&name) {
            Ok(file) => return Ok((name, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

/// `a/b.pcapng` becomes `a/b.NUMBER.pcapng`.
fn numbered(path: &Path, number: String) -> PathBuf {
    let mut name = OsString::from(path.file_stem().unwrap_or_default());
    name.push(".");
    name.push(number);
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

/// A packet as it is on the wire, but for its ICRC.
fn without_icrc(packet: &[u8]) -> &[u8] {
    &packet[..packet.len().saturating_sub(icrc::ICRC_LEN)]
}

/// Nanoseconds since 1970.
fn now() -> u64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
