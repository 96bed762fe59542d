//! The file that a process records in: memory that is shared with the file.
//!
//! No descriptor stays open that the program could close, and then write to another file of its
//! own by the same number. No lock is taken: each line has a range of its own, so a signal handler,
//! a child and the end of the process wait for nobody. What is written is in the file, however the
//! process ends.
use crate::clock::now;
use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit};
use nix::unistd::truncate;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The largest size of a part. The file has holes where nothing is written.
pub const LIMIT: u64 = 256 << 20;
/// The least that is worth a part.
const LEAST: u64 = 1 << 20;
/// So much is asked of the disk at a time, before it is written to; a multiple of every page size.
const STEP: u64 = 256 << 10;
/// Where the lines begin, behind the header.
pub const LINES: u64 = 64;

/// The beginning of the file: numbers in the machine's order.
#[repr(C)]
struct Header {
    /// Where the next line comes.
    used: AtomicU64,
    /// Records that found no room, and when the first one came.
    dropped: AtomicU64,
    dropped_at: AtomicU64,
    /// When the process ended in order.
    ended: AtomicU64,
}

/// Numbers of the header.
pub const NUMBERS: usize = 4;

/// A mapped part; it stays mapped.
pub struct Mapped {
    at: NonNull<Header>,
    size: u64,
    /// So much of the file has room on the disk.
    backed: AtomicU64,
    /// The disk is full.
    full: AtomicBool,
}

// SAFETY: all of it are atomics, and ranges of lines that each belong to one writer.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Makes a file that was not there.
    ///
    /// # Errors
    /// What the system said.
    pub fn create(path: &Path, largest: u64) -> io::Result<Mapped> {
        // A file beyond the limit on file sizes would end the program by SIGXFSZ.
        let allowed = getrlimit(Resource::RLIMIT_FSIZE).map_or(u64::MAX, |(soft, _)| soft);
        let mut size = largest.min(allowed) / STEP * STEP;
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
        let at = loop {
            if size < LEAST.min(largest) {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            truncate(path, size.cast_signed())?;
            match map(&file, size) {
                // The program has little address space.
                Err(e) if e.raw_os_error() == Some(libc::ENOMEM) => size = size / 2 / STEP * STEP,
                at => break at?,
            }
        };
        let part = Mapped { at, size, backed: AtomicU64::new(0), full: AtomicBool::new(false) };
        part.back(LINES)?;
        part.header().used.store(LINES, Ordering::Relaxed);
        Ok(part)
    }

    fn header(&self) -> &Header {
        // SAFETY: mapped for ever, aligned to a page, and zeros are values.
        unsafe { self.at.as_ref() }
    }

    /// Sees to it that there is room on the disk up to there: writing where there is none would end
    /// the program by SIGBUS.
    fn back(&self, end: u64) -> io::Result<()> {
        let from = self.backed.load(Ordering::Acquire);
        if end <= from {
            return Ok(());
        }
        let to = end.next_multiple_of(STEP).min(self.size);
        loop {
            // SAFETY: within the mapping. What is written there stays.
            let done = unsafe {
                let at = self.at.as_ptr().cast::<u8>().add(from as usize);
                libc::madvise(at.cast(), (to - from) as usize, libc::MADV_POPULATE_WRITE)
            };
            match Errno::result(done) {
                Err(Errno::EINTR | Errno::EAGAIN) => {}
                // Linux before 5.14 cannot say.
                Ok(_) | Err(Errno::EINVAL) => break,
                Err(e) => return Err(e.into()),
            }
        }
        self.backed.fetch_max(to, Ordering::Release);
        Ok(())
    }

    /// Adds a line, or counts that it found no room.
    pub fn add(&self, line: &[u8]) {
        let len = line.len() as u64;
        let behind = |used: u64| used.checked_add(len).filter(|end| *end <= self.size);
        let full = self.full.load(Ordering::Relaxed);
        let used = &self.header().used;
        let place =
            used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| behind(used).filter(|_| !full));
        let Ok(place) = place else { return self.drop_one() };
        if let Err(e) = self.back(place + len) {
            if !self.full.swap(true, Ordering::Relaxed) {
                log::error!("the trace of this process ends: {e}");
            }
            return self.drop_one();
        }
        // SAFETY: within the mapping; the range is this line's alone.
        unsafe {
            let to = self.at.as_ptr().cast::<u8>().add(place as usize);
            std::ptr::copy_nonoverlapping(line.as_ptr(), to, line.len());
        }
    }

    fn drop_one(&self) {
        let header = self.header();
        let _ = header.dropped_at.compare_exchange(0, now(), Ordering::Relaxed, Ordering::Relaxed);
        header.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// The process ends in order.
    pub fn end(&self) {
        self.header().ended.store(now(), Ordering::Relaxed);
    }
}

fn map(file: &File, size: u64) -> io::Result<NonNull<Header>> {
    let len = usize::try_from(size).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // The system call itself: the program's functions see nothing of it.
    // SAFETY: a new mapping, where the kernel likes.
    let at = unsafe {
        libc::syscall(
            libc::SYS_mmap,
            null_mut::<u8>(),
            len,
            protection,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0_i64,
        )
    };
    let at = Errno::result(at)?;
    NonNull::new(std::ptr::with_exposed_provenance_mut(at as usize))
        .ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Record, read};

    fn line(n: u64) -> Vec<u8> {
        let mut line = serde_json::to_vec(&Record::CqGone { t: n, cq: 7 }).unwrap();
        line.push(b'\n');
        line
    }

    /// TRC-5, TRC-6: what was recorded is in the file at once, though nobody says that the process
    /// ends, and no descriptor of the file is left that the program could close.
    #[test]
    fn lines_are_in_the_file_and_no_descriptor_is_left() {
        let directory = std::env::temp_dir().join(format!("adverb-part.{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let path = directory.join("1-0.part");
        let part = Mapped::create(&path, LEAST).unwrap();
        let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let ours = open.filter(|fd| std::fs::read_link(fd.path()).is_ok_and(|to| to == path)).count();
        assert_eq!(ours, 0);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let part = &part;
                scope.spawn(move || (0..100).for_each(|n| part.add(&line(thread * 1000 + n))));
            }
        });
        let found = read(&directory).unwrap().remove(0);
        assert_eq!((found.records.len(), found.cut), (400, 0));
        assert!(!found.records.iter().any(|r| matches!(r, Record::End { .. })));
        // What finds no room is counted.
        let long = [b' '; 4000];
        (0..LEAST / 4000 + 10).for_each(|_| part.add(&long));
        part.end();
        let found = read(&directory).unwrap().remove(0);
        let dropped = found.records.iter().find_map(|r| match r {
            Record::Dropped { records, .. } => Some(*records),
            _ => None,
        });
        assert!(dropped.is_some_and(|n| (10..20).contains(&n)), "{dropped:?}");
        assert!(found.records.iter().any(|r| matches!(r, Record::End { .. })));
        std::fs::remove_dir_all(&directory).unwrap();
    }

    /// A range that a thread was about to write when the process was killed costs no other line.
    #[test]
    fn zeros_between_lines_are_no_line() {
        let text = [&[0; 30][..], &line(1), b"{\"k\":\"cq", &[0; 9], &line(2)].concat();
        let part = crate::Part::of(&text[..]).unwrap();
        assert_eq!((part.records.len(), part.cut), (2, 1));
    }
}
