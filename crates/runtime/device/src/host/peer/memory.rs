//! The memory of a peer, as far as this process reaches it.
use crate::host::MTU;
use crate::host::filled::Filled;
use crate::ranks;
use adverb_engine::Range;
use adverb_engine::memory::RangeKind;
use adverb_local::PeerFd;
use adverb_memory::{Cma, CmaError, Guard, KeepsFd, PeerMemory, Window};
use adverb_sync::Ranked;
use std::collections::HashMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Shared memory is mapped in pieces of this many bytes.
const CHUNK: u64 = 1 << 30;
/// The largest number of mapped pieces.
const CHUNKS: usize = 64;

#[derive(Debug)]
struct File(PeerFd);

impl KeepsFd for File {
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.borrow()
    }
}

/// The shared file of a peer, as far as this process has mapped it.
#[derive(Default)]
struct MappedFile {
    /// `None` for this process itself, and after [`ReachedMemory::let_go`].
    file: Option<Arc<PeerMemory>>,
    /// The mapped pieces of the file, by offset and length.
    chunks: HashMap<(u64, u64), Arc<Window>>,
}

/// The memory of a peer.
pub(crate) struct ReachedMemory {
    pid: i32,
    mapped: Ranked<MappedFile, ranks::PeerMemory>,
    /// Ranges of the file without holes, as seen so far.
    filled: Filled,
    /// The system calls that reach the peer's private memory, or the reason for a refusal. `None`
    /// for this process itself.
    cma: Option<Result<Cma, CmaError>>,
}

impl ReachedMemory {
    /// The memory of this process itself, which needs neither mappings nor calls.
    pub(super) fn own(pid: i32) -> Self {
        ReachedMemory { pid, mapped: Ranked::default(), filled: Filled::default(), cma: None }
    }

    /// The memory of a process with this shared file. `thread`: the background thread of the
    /// process.
    pub(super) fn of(pid: i32, thread: u32, file: PeerFd) -> io::Result<Self> {
        let file = Arc::new(PeerMemory::new(File(file)).map_err(io::Error::other)?);
        let mapped = MappedFile { file: Some(file), chunks: HashMap::new() };
        let cma = Some(reaches(pid, thread));
        Ok(ReachedMemory { pid, mapped: Ranked::new(mapped), filled: Filled::default(), cma })
    }

    /// Drops all mappings, each as soon as no thread uses it.
    pub(super) fn let_go(&self) {
        // Dropped outside of the lock: unmapping much memory takes time.
        let mapped = std::mem::take(&mut *self.mapped.lock());
        drop(mapped);
    }

    /// A mapping of the peer's shared memory, and the offset in the mapping for the offset `addr`
    /// of the peer's file.
    pub(crate) fn window(&self, addr: u64, len: u64) -> Option<(Arc<Window>, u64)> {
        let start = addr & !(CHUNK - 1);
        // A range across the end of a piece is mapped as a separate piece. The peer chooses the
        // offsets, up to the largest possible value.
        let piece =
            if addr.checked_add(len)? - start > CHUNK { (addr, len) } else { (start, CHUNK) };
        let mut mapped = self.mapped.lock();
        let MappedFile { file, chunks } = &mut *mapped;
        if let Some(chunk) = chunks.get(&piece) {
            return Some((chunk.clone(), addr - piece.0));
        }
        let chunk = Arc::new(file.as_ref()?.window(piece.0, piece.1).ok()?);
        if chunks.len() >= CHUNKS {
            // The number of mappings of a process is limited. Pieces in use stay mapped until the
            // last user drops them.
            chunks.clear();
        }
        chunks.insert(piece, chunk.clone());
        Some((chunk, addr - piece.0))
    }

    /// Can system calls reach the peer's private memory?
    pub(super) fn has_calls(&self) -> bool {
        matches!(self.cma, Some(Ok(_)))
    }

    /// The system calls that reach the peer's private memory, if allowed. A caller has data to
    /// move, so a refusal is logged.
    pub(crate) fn cma(&self) -> Option<Cma> {
        self.cma.as_ref()?.as_ref().inspect_err(|e| copied_twice(self.pid, e)).ok().copied()
    }

    /// Shows `f` the bytes at `addr` of the peer's memory, if the guard holds. `false`: the bytes
    /// cannot be reached. The bytes may change while `f` reads, so `f` asks the guard once more
    /// after the copy.
    pub(crate) fn fetch(
        &self,
        guard: &Guard<'_>,
        addr: u64,
        len: u32,
        shared: bool,
        scratch: &mut Vec<u8>,
        f: impl FnOnce(&[u8]),
    ) -> bool {
        if len > MTU {
            return false;
        }
        if shared && len > 0 {
            let Some((window, off)) = self.window(addr, u64::from(len)) else { return false };
            if self.filled.covers(&window, off, addr, len) {
                return window.with_bytes(off, len as usize, f).is_ok();
            }
        }
        scratch.resize(MTU as usize, 0);
        let bytes = &mut scratch[..len as usize];
        let read = if shared {
            // The range has holes. A read through a mapping would fill them, at the expense of this
            // process.
            let file = self.mapped.lock().file.clone();
            file.is_some_and(|file| file.read(addr, bytes).is_ok())
        } else {
            let here = Range { addr: bytes.as_mut_ptr() as u64, len, kind: RangeKind::Mapped };
            self.cma().is_some_and(|cma| cma.fetch(guard, here, addr).is_ok())
        };
        // Bytes read after the sender withdrew the memory are not shown.
        if read && guard.holds() {
            f(bytes);
        }
        read
    }
}

/// The system calls that reach the private memory of a process, if they are allowed. The calls name
/// the process by the number of its background thread. This thread ends before an `exec` replaces
/// the memory of the process. With the number of the process itself, the calls would then reach the
/// memory of another program.
fn reaches(pid: i32, thread: u32) -> Result<Cma, CmaError> {
    let is_its =
        thread != pid.unsigned_abs() && Path::new(&format!("/proc/{pid}/task/{thread}")).exists();
    if !is_its {
        log::debug!(
            "process {pid} names a thread of another process, so private memory is not reached \
             directly"
        );
        return Err(CmaError::ProcessEnded);
    }
    let cma = Cma::new(thread);
    // Nothing is mapped at address 0, but the kernel checks the permission first.
    match cma.allowed(0) {
        Ok(()) | Err(CmaError::Fault) => Ok(cma),
        Err(e) => Err(e),
    }
}

/// Logged once, when there is data to copy. The obstacle is mostly the same for all processes.
pub(super) fn copied_twice(pid: i32, why: &dyn std::fmt::Display) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    if !TOLD.load(Ordering::Relaxed) && !TOLD.swap(true, Ordering::Relaxed) {
        log::warn!(
            "private memory is not reached directly between this process and process {pid}: {why}; data is copied twice instead"
        );
    }
}
