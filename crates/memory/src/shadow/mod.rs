//! Memory of this process that peers may map: a file that shadows the address space.
//!
//! There is one sparse file a process. A page of memory that peers may reach lies in it at the offset that is its address: so
//! registrations that overlap need no allocator, whatever is contiguous here is contiguous for peers, and a page's place is known
//! wherever its address is. Pages get there in two ways: [`Pages::shared`](crate::Pages::shared) makes new ones; [`Shadow::adopt`] moves a program's own,
//! which stay where they are for the program, and get private again when the last [`Adopted`] is dropped.
//!
//! Moving is done only where nobody can notice; everything else is refused with a [`Refusal`] that says why, and nothing has
//! changed then. Who might notice, and what stands against it:
//!
//! | who | guard |
//! |---|---|
//! | a thread that writes meanwhile | there is none, or `userfaultfd` holds it up |
//! | the library's own threads | they pass a gate ([`OwnThread`]), closed while pages move |
//! | signal handlers | blocked |
//! | the kernel (io_uring, aio), devices | refused while there is a ring or a pinned page |
//! | other processes with `process_vm_writev` | registrations reached in that way bar their pages ([`Shadow::bar`]) |
//! | children of `fork` | get a private copy as of the fork |
//! | allocators that call `madvise` | seen and answered with zeroes ([`advised`]), or refused |
//! | memory freed, or mapped anew, while registered | the kernel is asked what is there before anything is given back |
//! | `realloc` and `mremap`, which would map the neighbour's pages | what is moved is two mappings, which do not grow |
//!
//! Each piece of memory apart from the others is a mapping, and the kernel is asked about all of them at every registration; so
//! that a program with thousands of small ones does not wait for them, only long ones are moved where there are many
//! (`PIECES`).
//!
//! Giving back is not urgent: while other threads run, pages stay in the file, where they work as before, until they can be moved
//! or are gone ([`Shadow::sweep`]).
mod advice;
mod counts;
mod fork;
pub(crate) use fork::register as at_fork;
mod gate;
mod giving_back;
mod handles;
mod hazards;
mod held;
mod moving;
mod own;
mod refusal;
mod spare;
mod stats;

pub use advice::{Hook, advised, madvise_observed};
pub use handles::{Adopted, Barred, OwnThread, Working};
pub(crate) use own::OwnPages;
pub use refusal::Refusal;
pub use stats::ShadowStats;

use crate::maps::{EXEC, Maps, READ, WRITE};
use adverb_sync::Mutex;
use counts::Counts;
use gate::Gate;
use hazards::Asked;
use held::Held;
use nix::errno::Errno;
use spare::Spare;
use stats::Tally;
use std::cell::Cell;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// Bytes of the file: all addresses that a program has unless it asks for higher ones.
#[cfg(not(target_arch = "aarch64"))]
pub(crate) const SPAN: u64 = 1 << 47;
#[cfg(target_arch = "aarch64")]
pub(crate) const SPAN: u64 = 1 << 48;

/// The seals of the file: its size is for ever.
pub(crate) const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// Idle runs looked at with each registration.
const SWEEP_AT_ONCE: usize = 8;
/// So many pieces may be of any length.
const PIECES: usize = 256;
/// Each one more has to be longer by so many bytes.
const LONGER: u64 = 256;

/// The file of this process. It lives as long as the process, in pages of its own which never move.
#[derive(Debug)]
pub struct Shadow {
    gate: Gate,
    own_threads: AtomicU32,
    owner: u32,
    /// Set in a child of `fork`, which may have its parent's number in a namespace of its own.
    stale: AtomicBool,
    fd: OwnedFd,
    file: ((u32, u32), u64),
    maps: Maps,
    asked: Asked,
    enabled: AtomicBool,
    trusting: AtomicBool,
    /// Bounds of what has ever been in the file, for whoever may take no lock.
    lowest: AtomicU64,
    highest: AtomicU64,
    tally: Tally,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    counts: Counts,
    /// Where the next sweep goes on.
    swept: u64,
    /// None until other threads were met; then whether they can be held up.
    held: Option<Option<Held>>,
    spare: Option<Spare>,
    /// Filled before a fork, for the child.
    snapshot: Vec<fork::Piece>,
}

static CURRENT: AtomicPtr<Shadow> = AtomicPtr::new(std::ptr::null_mut());

thread_local! {
    static IS_OWN: Cell<bool> = const { Cell::new(false) };
}

impl Shadow {
    /// The file of this process, made on first use, and again in a child of `fork`.
    ///
    /// # Errors
    /// What the kernel refuses: descriptors, memory, `/proc`, a limit on the size of files.
    pub fn of_process() -> io::Result<&'static Shadow> {
        let known = CURRENT.load(Ordering::Acquire);
        if let Some(shadow) = Shadow::current() {
            return Ok(shadow);
        }
        fork::register();
        let made = Shadow::make()?.into_pages()?;
        // No lock: a child of `fork` might find it held.
        match CURRENT.compare_exchange(known, made.as_ptr(), Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: made just now, and never freed from here on.
            Ok(_) => Ok(unsafe { made.as_ref() }),
            Err(other) => {
                // SAFETY: nobody has seen ours; whatever is in `CURRENT` is never freed.
                unsafe {
                    made.drop_in_place();
                    libc::munmap(made.as_ptr().cast(), size_of::<Shadow>());
                    Ok(&*other)
                }
            }
        }
    }

    /// The file of this process, if it was made; a child does not see its parent's.
    pub(crate) fn current() -> Option<&'static Shadow> {
        let known = CURRENT.load(Ordering::Acquire);
        // SAFETY: null, or never freed.
        unsafe { known.as_ref() }.filter(|shadow| shadow.is_ours())
    }

    fn make() -> io::Result<Shadow> {
        hazards::unlimited_files().map_err(|_| Errno::EFBIG)?;
        let fd = new_file()?;
        // SAFETY: a size, and seals, for a file of our own.
        unsafe {
            Errno::result(libc::ftruncate(fd.as_raw_fd(), SPAN.cast_signed()))?;
            Errno::result(libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, SEALS))?;
        }
        let about = nix::sys::stat::fstat(&fd)?;
        let dev = (libc::major(about.st_dev), libc::minor(about.st_dev));
        Ok(Shadow {
            gate: Gate::default(),
            own_threads: AtomicU32::new(0),
            owner: std::process::id(),
            stale: AtomicBool::new(false),
            fd,
            file: (dev, about.st_ino),
            maps: Maps::open()?,
            asked: Asked::open()?,
            enabled: AtomicBool::new(true),
            trusting: AtomicBool::new(false),
            lowest: AtomicU64::new(u64::MAX),
            highest: AtomicU64::new(0),
            tally: Tally::default(),
            state: Mutex::default(),
        })
    }

    /// Puts it into pages of its own, so that it never lies in pages that move.
    fn into_pages(self) -> io::Result<NonNull<Shadow>> {
        let len = size_of::<Shadow>();
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: new memory, zeroed, aligned to pages, large enough.
        let at = unsafe {
            let at = libc::mmap(std::ptr::null_mut(), len, prot, flags, -1, 0);
            if at == libc::MAP_FAILED {
                return Err(Errno::last().into());
            }
            at.cast::<Shadow>().write(self);
            NonNull::new_unchecked(at.cast::<Shadow>())
        };
        let start = at.as_ptr() as u64;
        // SAFETY: written just now.
        let shadow = unsafe { at.as_ref() };
        shadow.state.lock().counts.bar(start, (start + len as u64).next_multiple_of(crate::page_size()));
        Ok(at)
    }

    /// The file, to be given to peers.
    #[must_use]
    pub fn fd(&'static self) -> BorrowedFd<'static> {
        // SAFETY: the descriptor is open as long as the process lives.
        unsafe { BorrowedFd::borrow_raw(self.raw_fd()) }
    }

    /// Is this the file?
    pub(crate) fn is_file(&self, about: &nix::sys::stat::FileStat) -> bool {
        self.file == ((libc::major(about.st_dev), libc::minor(about.st_dev)), about.st_ino)
    }

    fn raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Is this the process that made it, not a child?
    fn is_ours(&self) -> bool {
        !self.stale.load(Ordering::Acquire) && self.owner == std::process::id()
    }

    /// Switches [`adopt`](Self::adopt) off or on.
    pub fn enable(&self, on: bool) {
        self.enabled.store(on, Ordering::Relaxed);
    }

    /// Adopts although the program's calls of `madvise` are not seen: it is known to make none on memory that it registers, nor on
    /// any that shares pages with it.
    pub fn trust_allocators(&self, trust: bool) {
        self.trusting.store(trust, Ordering::Relaxed);
    }

    /// What is in the file, and what was refused.
    #[must_use]
    pub fn stats(&self) -> ShadowStats {
        let state = self.state.lock();
        self.tally.stats(&state.counts)
    }

    /// Could a page of the range be in the file?
    fn may_hold(&self, start: u64, end: u64) -> bool {
        start < self.highest.load(Ordering::Relaxed) && end > self.lowest.load(Ordering::Relaxed)
    }

    fn widen(&self, start: u64, end: u64) {
        self.lowest.fetch_min(start, Ordering::Relaxed);
        self.highest.fetch_max(end, Ordering::Relaxed);
    }

    /// Moves the pages of `[addr, addr + len)` into the file, or finds them there.
    ///
    /// It is to be called before a key opens the memory, and the answer dropped when none does any more. No lock may be held that
    /// an [`OwnThread`] at work waits for.
    ///
    /// # Errors
    /// Why they stay where they are. Nothing has changed then, and the registration is to [`bar`](Self::bar) its pages.
    pub fn adopt(&'static self, addr: u64, len: u64) -> Result<Adopted, Refusal> {
        let adopted = self.try_adopt(addr, len);
        if let Err(refusal) = adopted {
            self.tally.refused(refusal);
        }
        adopted
    }

    fn try_adopt(&'static self, addr: u64, len: u64) -> Result<Adopted, Refusal> {
        if !self.enabled.load(Ordering::Relaxed) || !self.is_ours() {
            return Err(Refusal::Disabled);
        }
        let (start, end) = pages_of(addr, len).ok_or(Refusal::Range)?;
        let mut state = self.state.lock();
        let runs = hazards::survey(&self.maps, (self.fd(), self.file), start, end)?;
        if !runs.is_empty() {
            if runs.iter().any(|(start, end)| state.counts.is_barred(*start, *end)) {
                return Err(Refusal::Registered);
            }
            let least = state.counts.pieces().saturating_sub(PIECES) as u64 * LONGER;
            if end - start < least {
                return Err(Refusal::Scattered);
            }
            self.check(&runs)?;
            if !runs.iter().all(|(start, end)| self.vacate(&mut state, *start, *end)) {
                return Err(Refusal::Taken);
            }
            if state.spare.is_none() {
                state.spare = Some(Spare::new().ok_or(Errno::ENOMEM)?);
            }
            self.widen(start, end);
            if let Err(refusal) = self.move_in(&mut state, &runs) {
                // What has moved goes back, at once or, where others run, when it can.
                state.spare = None;
                for (start, end) in runs {
                    state.counts.share(start, end);
                    state.counts.unshare(start, end);
                    self.give_back(&mut state, start, end);
                }
                return Err(refusal);
            }
        }
        self.widen(start, end);
        state.counts.share(start, end);
        self.sweep_some(&mut state, SWEEP_AT_ONCE);
        Ok(Adopted::new(self, start, end))
    }

    /// Hazards beside those that [`hazards::survey`] and other threads are.
    fn check(&self, runs: &[(u64, u64)]) -> Result<(), Refusal> {
        let special = if self.trusting.load(Ordering::Relaxed) { false } else { advice::special_asked()? };
        hazards::unlimited_files()?;
        hazards::untagged()?;
        hazards::not_under_us(&self.maps, runs)?;
        hazards::no_async_io(&self.maps)?;
        self.asked.not_pinned()?;
        if special {
            runs.iter().try_for_each(|(start, end)| hazards::unmarked(*start, *end))?;
        }
        Ok(())
    }

    /// Moves all, alone or while others are held up; or fails, with some moved.
    fn move_in(&self, state: &mut State, runs: &[(u64, u64)]) -> Result<(), Refusal> {
        let fd = self.raw_fd();
        let alone = self.alone(|| {
            // SAFETY: surveyed: private anonymous memory, none of this thread's own; and nobody else runs.
            runs.iter().try_for_each(|(start, end)| unsafe { moving::move_in(fd, *start, *end) })
        });
        let refusal = match alone {
            Ok(done) => return Ok(done?),
            Err(refusal) => refusal,
        };
        let Some(held) = state.held.get_or_insert_with(Held::new) else { return Err(refusal) };
        hazards::no_stack(&self.maps, runs)?;
        let _undisturbed = moving::Undisturbed::new();
        // SAFETY: as above, and whoever touches them is held up.
        Ok(runs.iter().try_for_each(|(start, end)| unsafe { held.move_in(fd, *start, *end) })?)
    }

    /// Does something while nobody else runs in this address space.
    fn alone<T>(&self, work: impl FnOnce() -> T) -> Result<T, Refusal> {
        if !self.is_alone() {
            return Err(Refusal::Threads);
        }
        self.asked.no_twin()?;
        let _closed = self.gate.close()?;
        let _undisturbed = moving::Undisturbed::new();
        // None has begun meanwhile: a thread that runs could have made it.
        if self.is_alone() { Ok(work()) } else { Err(Refusal::Threads) }
    }

    /// Are there no threads but this one, which is the program's, and the library's own?
    fn is_alone(&self) -> bool {
        let own = || self.own_threads.load(Ordering::SeqCst);
        // Own threads are counted while they live; one that ends or begins as we look must not stand for another.
        let before = own();
        !IS_OWN.get() && self.asked.threads().is_ok_and(|all| all == u64::from(before) + 1) && own() == before
    }
}

/// Rights for `mmap`.
fn prot(flags: u64) -> libc::c_int {
    [(READ, libc::PROT_READ), (WRITE, libc::PROT_WRITE), (EXEC, libc::PROT_EXEC)]
        .into_iter()
        .filter(|(flag, _)| flags & flag != 0)
        .map(|(_, prot)| prot)
        .sum()
}

/// The pages that `[addr, addr + len)` touches.
fn pages_of(addr: u64, len: u64) -> Option<(u64, u64)> {
    let page = crate::page_size();
    let end = addr.checked_add(len)?.checked_next_multiple_of(page)?;
    (len > 0 && end <= SPAN).then_some((addr & !(page - 1), end))
}

fn new_file() -> io::Result<OwnedFd> {
    let name = c"adverb".as_ptr();
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    for extra in [libc::MFD_NOEXEC_SEAL, 0] {
        // SAFETY: a name and flags; the descriptor is new.
        unsafe {
            let fd = libc::memfd_create(name, flags | extra);
            if fd >= 0 {
                return Ok(OwnedFd::from_raw_fd(fd));
            }
        }
        if Errno::last() != Errno::EINVAL {
            break;
        }
    }
    Err(Errno::last().into())
}
