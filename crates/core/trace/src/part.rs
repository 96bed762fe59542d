//! The file to which a process records, through shared memory.
//!
//! No descriptor of the file stays open. Otherwise the program could close the descriptor and then
//! write to another file with the same number. The file has no lock: each line has its own range,
//! so a signal handler, a child and the end of the process never wait. Written lines are in the
//! file, however the process ends.
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

/// Largest size of a part. Ranges without data are holes of the file.
pub const LIMIT: u64 = 256 << 20;
/// Smallest useful size of a part.
const LEAST: u64 = 1 << 20;
/// Disk space is allocated in steps of this size before writing; a multiple of every page size.
const STEP: u64 = 256 << 10;
/// Offset of the first line, after the header.
pub const LINES: u64 = 64;

/// The beginning of the file: numbers in native byte order.
#[repr(C)]
struct Header {
    /// Offset of the next line.
    used: AtomicU64,
    /// Number of records without room, and the time of the first.
    dropped: AtomicU64,
    dropped_at: AtomicU64,
    /// Time of the normal end of the process.
    ended: AtomicU64,
}

/// Count of numbers in the header.
pub const NUMBERS: usize = 4;

/// A mapped part. The mapping is permanent.
pub struct Mapped {
    at: NonNull<Header>,
    size: u64,
    /// This much of the file has allocated disk space.
    backed: AtomicU64,
    /// The disk is full.
    full: AtomicBool,
}

// SAFETY: the header consists of atomics, and each range of a line belongs to one writer.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Creates a new file.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn create(path: &Path, largest: u64) -> io::Result<Mapped> {
        // A file larger than the limit on file sizes would end the program by SIGXFSZ.
        let allowed = getrlimit(Resource::RLIMIT_FSIZE).map_or(u64::MAX, |(soft, _)| soft);
        let mut size = largest.min(allowed) / STEP * STEP;
        let file =
            OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
        let at = loop {
            if size < LEAST.min(largest) {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            truncate(path, size.cast_signed())?;
            match map(&file, size) {
                // The program's address space is limited. Try half the size.
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
        // SAFETY: the mapping is permanent and page-aligned, and zeros are valid.
        unsafe { self.at.as_ref() }
    }

    /// Ensures that disk space is allocated up to `end`. A write without disk space would end the
    /// program by SIGBUS.
    fn back(&self, end: u64) -> io::Result<()> {
        let from = self.backed.load(Ordering::Acquire);
        if end <= from {
            return Ok(());
        }
        let to = end.next_multiple_of(STEP).min(self.size);
        loop {
            // SAFETY: the range is within the mapping. The call keeps its contents.
            let done = unsafe {
                let at = self.at.as_ptr().cast::<u8>().add(from as usize);
                libc::madvise(at.cast(), (to - from) as usize, libc::MADV_POPULATE_WRITE)
            };
            match Errno::result(done) {
                Err(Errno::EINTR | Errno::EAGAIN) => {}
                // Linux before 5.14 does not support this.
                Ok(_) | Err(Errno::EINVAL) => break,
                Err(e) => return Err(e.into()),
            }
        }
        self.backed.fetch_max(to, Ordering::Release);
        Ok(())
    }

    /// Adds a line, or counts the line as dropped if there is no room.
    pub fn add(&self, line: &[u8]) {
        let len = line.len() as u64;
        let behind = |used: u64| used.checked_add(len).filter(|end| *end <= self.size);
        let full = self.full.load(Ordering::Relaxed);
        let used = &self.header().used;
        let place = used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            behind(used).filter(|_| !full)
        });
        let Ok(place) = place else { return self.drop_one() };
        if let Err(e) = self.back(place + len) {
            if !self.full.swap(true, Ordering::Relaxed) {
                log::error!("the trace of this process ends: {e}");
            }
            return self.drop_one();
        }
        // SAFETY: the range is within the mapping, and belongs to this line only.
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

    /// Records the normal end of the process.
    pub fn end(&self) {
        self.header().ended.store(now(), Ordering::Relaxed);
    }
}

fn map(file: &File, size: u64) -> io::Result<NonNull<Header>> {
    let len = usize::try_from(size).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // The system call itself, so that interposed functions of the program do not see it.
    // SAFETY: a new mapping, at an address that the kernel chooses.
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
        let mut line = serde_json::to_vec(&Record::CqDestroyed { t: n, cq: 7 }).unwrap();
        line.push(b'\n');
        line
    }

    /// TRC-5, TRC-6: records are in the file at once, even without a recorded end of the process.
    /// No descriptor of the file is left for the program to close.
    #[test]
    fn lines_are_in_the_file_and_no_descriptor_is_left() {
        let directory = std::env::temp_dir().join(format!("adverb-part.{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let path = directory.join("1-0.part");
        let part = Mapped::create(&path, LEAST).unwrap();
        let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let ours =
            open.filter(|fd| std::fs::read_link(fd.path()).is_ok_and(|to| to == path)).count();
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
        // Records without room are counted.
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

    /// A range that a killed thread had reserved but not written does not cost any other line.
    #[test]
    fn zeros_between_lines_are_no_line() {
        let text = [&[0; 30][..], &line(1), b"{\"k\":\"cq", &[0; 9], &line(2)].concat();
        let part = crate::ProcessRecords::of(&text[..]).unwrap();
        assert_eq!((part.records.len(), part.cut), (2, 1));
    }
}
