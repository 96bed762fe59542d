//! A capture of the link's packets in a file for Wireshark.
//!
//! Every packet of a queue pair, sent or received, is recorded as an IP packet. Addresses, ports,
//! traffic class, hop limit and IPv4 identification are as on the wire, checksums are valid, and
//! the ICRC is at the end. A packet between processes of this host without the network has no such
//! headers, and gets the headers that it would have had. A comment tells the direction of a packet
//! and its faults.
//!
//! A packet through shared memory ([`Capture::near`]) is recorded at the cost of a copy. Its UDP
//! checksum is 0 over IPv4, as the RoCEv2 annex requires, and its ICRC is 0. Such a packet may be
//! longer than an IP packet. Then the end of its payload is left out, and the original length in
//! the block is the full length.
//!
//! The records are written before each run is sent and after each batch is received. So no answer
//! stands before its request, and little is missing when the process is killed. Packets through
//! shared memory are written by the device's background thread, a few milliseconds later. If the
//! process is killed then, the kernel may cut this write short between two pages. So the last
//! packet of a file may be cut; readers report this and continue, and all earlier packets are
//! whole. A write error ends the capture with a line in the log, and has no other effect.

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

use crate::icrc::{ICRC_LEN, Sums};
use adverb_os::sys::OwnFd;
pub(crate) use frame::Flow;
use frame::Frame;
use pcapng::Direction;

/// The number of names tried if files with the process id exist already.
const NAMES: u32 = 100;

/// The recording of this process's packets: a file, and the process's trace, if the process is
/// traced.
pub struct Capture {
    path: PathBuf,
    /// There is a file, and no error so far.
    records: AtomicBool,
    /// Blocks not yet written.
    buffer: Mutex<Vec<u8>>,
    /// Lock order: before `buffer`.
    output: Mutex<Output>,
    /// Some blocks are not yet written.
    dirty: AtomicBool,
}

struct Output {
    /// `None` after an error.
    file: Option<OwnFd>,
    /// A buffer for reuse.
    spare: Vec<u8>,
    /// Bytes of whole blocks in the file.
    written: u64,
    limit: u64,
}

/// A packet through shared memory.
#[derive(Clone, Copy, Debug)]
pub struct NearPacket<'a> {
    /// Nanoseconds since 1970 ([`Capture::now`]).
    pub time: u64,
    /// The packet was sent, not received.
    pub sent: bool,
    /// The direction and the faults of the packet.
    pub comment: &'a str,
    /// The address of the sender.
    pub src: IpAddr,
    /// The address of the receiver.
    pub dst: IpAddr,
    /// The headers from the BTH on.
    pub headers: &'a [u8],
    /// The length of the payload in bytes.
    pub payload: usize,
}

impl Capture {
    /// Creates a file and begins a capture. Never writes to an existing file: if the name is taken,
    /// the process id is put before the extension. `limit` is the largest size of the file in
    /// bytes; the capture ends before this size is exceeded.
    ///
    /// # Errors
    /// The error of the system at the creation of the file.
    pub fn create(path: &Path, limit: u64) -> io::Result<Capture> {
        let (path, file) = create_new(path)?;
        // The lock tells `make_room` about the writer. Where files cannot be locked, `make_room`
        // removes none.
        let _ = file.try_lock();
        let mut buffer = Vec::new();
        let name = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
        let comment = format!("packets of process {} ({})", std::process::id(), name.trim_end());
        pcapng::start(&mut buffer, concat!("adverb ", env!("CARGO_PKG_VERSION")), &comment);
        let file = Some(OwnedFd::from(file).into());
        let capture =
            Capture::of(path, buffer, Output { file, spare: Vec::new(), written: 0, limit });
        capture.flush();
        Ok(capture)
    }

    /// A capture without a file: packets only go to the trace.
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

    /// The current time in the form for packets: nanoseconds since 1970.
    #[must_use]
    pub fn now() -> u64 {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Whether the capture records packets in a file.
    #[inline]
    #[must_use]
    pub fn records(&self) -> bool {
        self.records.load(Relaxed)
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Records the packets of a run before the run is sent; each packet ends with its ICRC.
    pub(crate) fn sent(&self, flow: &Flow, bytes: &[u8], stride: usize, comment: &str) {
        let packets = bytes.chunks(stride.max(1));
        for packet in packets.clone() {
            adverb_trace::packet(true, flow.src, flow.dst, without_icrc(packet), comment);
        }
        let numbered = packets.enumerate().map(|(id, packet)| (id as u16, [packet, &[]]));
        self.put(Direction::Sent, comment, flow, numbered);
    }

    /// Records a packet sent directly to another process. The packet has no ICRC, so an ICRC is
    /// computed. `began` is the time of the send, by the trace's clock.
    pub(crate) fn sent_directly(&self, flow: &Flow, packet: &[u8], began: u64) {
        let comment = "sent to its process directly";
        adverb_trace::packet_at(began, true, flow.src, flow.dst, packet, comment);
        self.put_whole(Direction::Sent, comment, flow, 0, packet);
    }

    /// Records a received packet without its ICRC; `id` is the IPv4 identification for which the
    /// ICRC was valid.
    pub(crate) fn received(&self, flow: &Flow, id: u16, packet: &[u8], comment: &str) {
        adverb_trace::packet(false, flow.src, flow.dst, packet, comment);
        self.put_whole(Direction::Received, comment, flow, id, packet);
    }

    /// Records received bytes unchanged.
    pub(crate) fn received_raw(&self, flow: &Flow, id: u16, bytes: &[u8], comment: &str) {
        adverb_trace::packet(false, flow.src, flow.dst, without_icrc(bytes), comment);
        self.put(Direction::Received, comment, flow, [(id, [bytes, &[]])]);
    }

    /// Records a packet through shared memory, without writing to the file: [`Capture::flush`]
    /// does. `fill` gets a part of the buffer for the payload, or for the beginning of the payload
    /// that fits into an IP packet. Returns the number of bytes not yet written.
    pub fn near(&self, packet: &NearPacket<'_>, fill: impl FnOnce(&mut [u8])) -> usize {
        let NearPacket { time, sent, comment, src, dst, headers, payload } = *packet;
        let direction = if sent { Direction::Sent } else { Direction::Received };
        let near = Frame::near(src, dst, headers, payload);
        let mut buffer = self.buffer.lock();
        pcapng::packet(&mut buffer, time, direction, comment, &near, fill);
        self.dirty.store(true, Relaxed);
        buffer.len()
    }

    /// Records a packet with its ICRC.
    fn put_whole(&self, direction: Direction, comment: &str, flow: &Flow, id: u16, packet: &[u8]) {
        let icrc = Sums::default().compute(&flow.src, &flow.dst, id, packet);
        self.put(direction, comment, flow, [(id, [packet, &icrc])]);
    }

    /// Records packets in two parts, each with its IPv4 identification.
    fn put<'p>(
        &self,
        direction: Direction,
        comment: &str,
        flow: &Flow,
        packets: impl IntoIterator<Item = (u16, [&'p [u8]; 2])>,
    ) {
        let time = Capture::now();
        let mut buffer = self.buffer.lock();
        if self.records() {
            for (id, [packet, icrc]) in packets {
                let frame = Frame::of(flow, id, packet.len() + icrc.len());
                pcapng::packet(&mut buffer, time, direction, comment, &frame, |out| {
                    let (whole, end) = out.split_at_mut(packet.len());
                    whole.copy_from_slice(packet);
                    end.copy_from_slice(icrc);
                });
            }
        }
        self.dirty.store(true, Relaxed);
    }

    /// Writes the recorded blocks. Concurrent recording threads do not wait.
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
                // Half a block would make the whole file unreadable for some readers.
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

/// Removes the file of an earlier capture, so that a new capture can use the name. A file still
/// being written stays; the new capture then takes another name.
///
/// # Errors
/// The file is not a capture, or the error of the system. Nothing was removed.
pub fn make_room(path: &Path) -> io::Result<()> {
    // Non-blocking, so that opening a pipe does not block this process.
    let mut file = match OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let found = file.metadata()?;
    let mut magic = [0; pcapng::MAGIC.len()];
    if !found.is_file()
        || found.len() > 0 && (file.read_exact(&mut magic).is_err() || magic != pcapng::MAGIC)
    {
        let text = "this file is no earlier capture, and is not overwritten";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
    }
    match file.try_lock() {
        Ok(()) => std::fs::remove_file(path),
        // In use, or the lock state is unknown.
        Err(TryLockError::WouldBlock | TryLockError::Error(_)) => Ok(()),
    }
}

/// Creates the first free name: `path`, then `path` with the process id.
fn create_new(path: &Path) -> io::Result<(PathBuf, File)> {
    let pid = std::process::id();
    let names = std::iter::once(path.to_path_buf()).chain(
        (0..NAMES)
            .map(|n| numbered(path, if n == 0 { format!("{pid}") } else { format!("{pid}-{n}") })),
    );
    let mut last = io::ErrorKind::AlreadyExists.into();
    for name in names {
        // Other users may not read the packets of programs.
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

/// A packet as on the wire, without its ICRC.
fn without_icrc(packet: &[u8]) -> &[u8] {
    &packet[..packet.len().saturating_sub(ICRC_LEN)]
}

#[cfg(test)]
mod tests;
