//! Copies by the kernel from and to unshared memory of another process.
use crate::kernel::{AT_ONCE, CopyDirection};
use crate::restart::{Guard, Withdrawn};
use adverb_engine::Range;
use adverb_engine::memory::RangeKind;
use nix::errno::Errno;
use thiserror::Error;

/// Why the kernel did not copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CmaError {
    /// Access is forbidden: another user's process, Yama, a system call filter, or a kernel without
    /// these calls.
    #[error("the kernel forbids access to the peer's memory")]
    Forbidden,
    /// The process does not exist any more.
    #[error("the peer's process has ended")]
    ProcessEnded,
    /// Memory at one end is not mapped, or not with the access needed. Bytes before the fault may
    /// have been copied.
    #[error("memory at either end is not mapped with the access needed")]
    Fault,
    /// The peer has taken back the memory, by the guard. A part may have been copied.
    #[error("the peer has taken the memory back")]
    Withdrawn,
    /// The two sides differ in length; nothing was copied.
    #[error("the two sides differ in length")]
    Lengths,
    /// Another error.
    #[error("the kernel refuses: {}", .0.desc())]
    Kernel(Errno),
}

impl From<Errno> for CmaError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::EPERM | Errno::EACCES | Errno::ENOSYS => CmaError::Forbidden,
            Errno::ESRCH => CmaError::ProcessEnded,
            Errno::EFAULT => CmaError::Fault,
            other => CmaError::Kernel(other),
        }
    }
}

/// The largest number of pieces in one call (`IOV_MAX`).
const PIECES: usize = 1024;

/// A process with memory reached by `process_vm_readv` and `process_vm_writev`.
///
/// The number may be that of one of its threads. The caller must make sure that the number still
/// means the same process. For example, `exec` keeps the process id, and ends all other threads
/// before the process gets new memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cma {
    pid: libc::pid_t,
}

impl Cma {
    /// The process or thread with this number.
    #[must_use]
    pub fn new(pid: u32) -> Self {
        Cma { pid: pid.cast_signed() }
    }

    /// Whether the memory of the process can be reached. Reads the byte at `addr`, which must be
    /// mapped there.
    ///
    /// # Errors
    /// Why not.
    pub fn allowed(self, addr: u64) -> Result<(), CmaError> {
        let mut byte = [0_u8; 1];
        let here = Range { addr: byte.as_mut_ptr() as u64, len: 1, kind: RangeKind::Mapped };
        self.read(&Guard::always(), &[here], &[(addr, 1)])
    }

    /// Copies from the peer's pieces to ours. Each list of pieces counts as one string of bytes.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn read(
        self,
        guard: &Guard<'_>,
        local: &[Range],
        remote: &[(u64, u64)],
    ) -> Result<(), CmaError> {
        self.copy(guard, CopyDirection::Out, local, remote)
    }

    /// As [`Cma::read`], from one piece of the peer to one of ours.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn fetch(self, guard: &Guard<'_>, to: Range, from: u64) -> Result<(), CmaError> {
        if !is_reached(&to) {
            return Err(CmaError::Fault);
        }
        let (mut done, len) = (0, u64::from(to.len));
        while done < len {
            let at = from.checked_add(done).ok_or(CmaError::Fault)?;
            let iov_len = (len - done).min(AT_ONCE) as usize;
            let piece = |addr: u64| libc::iovec { iov_base: addr as *mut libc::c_void, iov_len };
            match self.call(guard, CopyDirection::Out, &[piece(to.addr + done)], &[piece(at)])? {
                0 => return Err(CmaError::Fault),
                n => done += n,
            }
        }
        Ok(())
    }

    /// Copies from our pieces to the peer's.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn write(
        self,
        guard: &Guard<'_>,
        local: &[Range],
        remote: &[(u64, u64)],
    ) -> Result<(), CmaError> {
        self.copy(guard, CopyDirection::In, local, remote)
    }

    fn copy(
        self,
        guard: &Guard<'_>,
        way: CopyDirection,
        local: &[Range],
        remote: &[(u64, u64)],
    ) -> Result<(), CmaError> {
        if !local.iter().all(is_reached) {
            return Err(CmaError::Fault);
        }
        let total = local.iter().map(|r| u64::from(r.len)).sum();
        if remote.iter().try_fold(0_u64, |sum, (_, len)| sum.checked_add(*len)) != Some(total) {
            return Err(CmaError::Lengths);
        }
        let parts = |r: &Range| {
            let (addr, len) = (r.addr, u64::from(r.len));
            (0..len).step_by(AT_ONCE as usize).map(move |at| (addr + at, AT_ONCE.min(len - at)))
        };
        let mut here = Cursor::new(local.iter().flat_map(parts));
        let mut there = Cursor::new(remote.iter().copied());
        let mut left = total;
        while left > 0 {
            let (ours, theirs) = (here.next_pieces(), there.next_pieces());
            let n = self.call(guard, way, up_to(ours, AT_ONCE), theirs)?;
            if n == 0 {
                return Err(CmaError::Fault);
            }
            here.advance(n);
            there.advance(n);
            left = left.saturating_sub(n);
        }
        Ok(())
    }

    fn call(
        self,
        guard: &Guard<'_>,
        way: CopyDirection,
        ours: &[libc::iovec],
        theirs: &[libc::iovec],
    ) -> Result<u64, CmaError> {
        let (ours, here) = (ours.as_ptr() as u64, ours.len() as u64);
        let (theirs, there) = (theirs.as_ptr() as u64, theirs.len() as u64);
        let pid = i64::from(self.pid).cast_unsigned();
        // SAFETY: both lists have the lengths given. The kernel checks every address on both sides,
        // and a `Range` says that ours are registered memory (crate docs).
        let n = unsafe { guard.call(way.number(), [pid, ours, here, theirs, there, 0]) };
        Ok(n.map_err(|Withdrawn| CmaError::Withdrawn)??)
    }
}

/// Whether the kernel can copy to and from a range of ours.
fn is_reached(range: &Range) -> bool {
    matches!(range.kind, RangeKind::Mapped | RangeKind::OnDemand)
}

/// The shortest prefix of the pieces with at least `bytes` bytes, or all pieces.
fn up_to(pieces: &[libc::iovec], bytes: u64) -> &[libc::iovec] {
    let mut sum = 0;
    let enough = pieces.iter().position(|piece| {
        sum += piece.iov_len as u64;
        sum >= bytes
    });
    &pieces[..enough.map_or(pieces.len(), |last| last + 1)]
}

/// A position in a list of pieces.
struct Cursor<I> {
    rest: I,
    pieces: Vec<libc::iovec>,
}

impl<I: Iterator<Item = (u64, u64)>> Cursor<I> {
    fn new(rest: I) -> Self {
        Cursor { rest, pieces: Vec::new() }
    }

    /// The next pieces, as many as one call takes.
    fn next_pieces(&mut self) -> &[libc::iovec] {
        while self.pieces.len() < PIECES {
            let Some((addr, len)) = self.rest.next() else { break };
            if len > 0 {
                let iov_base = addr as *mut libc::c_void;
                self.pieces.push(libc::iovec { iov_base, iov_len: len as usize });
            }
        }
        &self.pieces
    }

    /// Advances by `n` bytes.
    fn advance(&mut self, mut n: u64) {
        let mut copied = 0;
        for piece in &mut self.pieces {
            let step = n.min(piece.iov_len as u64);
            piece.iov_base = piece.iov_base.wrapping_byte_add(step as usize);
            piece.iov_len -= step as usize;
            n -= step;
            if piece.iov_len > 0 {
                break;
            }
            copied += 1;
        }
        self.pieces.drain(..copied);
    }
}
