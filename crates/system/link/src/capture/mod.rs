//! What crosses the link, as a file that Wireshark reads.
//!
//! Every packet of a queue pair, sent or received, is recorded as an IP packet: addresses, ports,
//! traffic class, hop limit and IPv4 identification as on the wire, checksums right, the ICRC at
//! its end. A packet that travels between processes of this host without the network has no such
//! headers; it gets those it would have had. A comment says which way a packet went and what befell
//! it.
//!
//! What was recorded is written when a run was sent or a batch received, so that little is missing
//! when the process is killed. The kernel may cut that write short then, between two pages: the
//! last packet of a file may be cut, which readers say and survive, and all before it is whole. A
//! file that cannot be written ends its capture with a line in the log and nothing else.

mod frame;
mod pcapng;

use std::ffi::OsString;
use std::fmt;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

use adverb_sync::Mutex;

use crate::icrc;
use adverb_os::sys::OwnFd;
pub(crate) use frame::Flow;
use pcapng::Direction;

/// Names tried when files with the process's number are there already.
const NAMES: u32 = 100;

/// What this process records of its packets: a file, and what goes to its trace, if it is traced.
pub struct Capture {
    path: PathBuf,
    inner: Mutex<Inner>,
    /// Something is recorded and not written yet.
    dirty: AtomicBool,
}

struct Inner {
    /// `None` after an error.
    file: Option<OwnFd>,
    buffer: Vec<u8>,
    /// Bytes of whole blocks in the file.
    written: u64,
    limit: u64,
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
        let inner = Inner { file: Some(OwnedFd::from(file).into()), buffer, written: 0, limit };
        let capture = Capture { path, inner: Mutex::new(inner), dirty: AtomicBool::new(true) };
        capture.flush();
        Ok(capture)
    }

    /// No file: packets go to the trace alone.
    #[must_use]
    pub fn of_trace() -> Capture {
        let inner = Inner { file: None, buffer: Vec::new(), written: 0, limit: 0 };
        Capture { path: PathBuf::new(), inner: Mutex::new(inner), dirty: AtomicBool::new(false) }
    }

    /// Where it goes.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Records packets of one run that is about to be sent; each ends with its ICRC.
    pub(crate) fn sent(&self, flow: &Flow, bytes: &[u8], stride: usize, comment: &str) {
        let time = now();
        let mut inner = self.inner.lock();
        for (id, packet) in bytes.chunks(stride.max(1)).enumerate() {
            adverb_trace::packet(true, flow.src, flow.dst, without_icrc(packet), comment);
            inner.record(time, Direction::Sent, comment, flow, id as u16, [packet, &[]]);
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
        self.inner.lock().record(now(), Direction::Received, comment, flow, id, [bytes, &[]]);
        self.dirty.store(true, Relaxed);
    }

    fn put(&self, direction: Direction, comment: &str, flow: &Flow, id: u16, packet: &[u8]) {
        let icrc = icrc::compute(&flow.src, &flow.dst, id, packet);
        self.inner.lock().record(now(), direction, comment, flow, id, [packet, &icrc]);
        self.dirty.store(true, Relaxed);
    }

    /// Writes what was recorded.
    pub fn flush(&self) {
        if !self.dirty.swap(false, Relaxed) {
            return;
        }
        let mut inner = self.inner.lock();
        if let Err(error) = inner.write() {
            log::error!("the capture in {} ends: {error}", self.path.display());
        }
    }
}

impl Inner {
    fn record(
        &mut self,
        time: u64,
        direction: Direction,
        comment: &str,
        flow: &Flow,
        id: u16,
        parts: [&[u8]; 2],
    ) {
        if self.file.is_some() {
            pcapng::packet(&mut self.buffer, time, direction, comment, |out| {
                frame::put(out, flow, id, parts);
            });
        }
    }

    fn write(&mut self) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let len = self.buffer.len() as u64;
        // A write beyond the limit on file sizes would end the program by SIGXFSZ.
        let result = match self.written.checked_add(len) {
            Some(end) if end <= self.limit => file.as_file(|file| file.write_all(&self.buffer)),
            _ => Err(io::ErrorKind::FileTooLarge.into()),
        };
        self.buffer.clear();
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
