//! Why memory stays where it is.
use nix::errno::Errno;
use std::fmt;

/// Why a range is not moved into the shared file. Nothing was changed; the memory works as before, only slower for peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// Switched off.
    Disabled,
    /// The range is empty, wraps, or lies beyond what the file covers.
    Range,
    /// Part of it is not mapped.
    NotMapped,
    /// Part of it cannot be read and written: a guard page, or constants.
    Guard,
    /// Part of it can be executed.
    Executable,
    /// Part of it is a stack, or where a thread keeps its own data.
    Stack,
    /// Part of it is a mapping of a file.
    File,
    /// Part of it is shared with others already.
    Shared,
    /// Part of it is of huge pages.
    HugePages,
    /// Part of it is locked in memory.
    Locked,
    /// Part of it is left out of, or wiped in, children of `fork`, or special in another way.
    Special,
    /// It belongs to an arena of the C library's allocator, which gives memory back behind everybody's back.
    Arena,
    /// Nobody would see the program give pages back by `madvise` and then expect zeroes.
    MadviseUnseen,
    /// Other threads may write to it at this moment, and the kernel offers no way to hold them up.
    Threads,
    /// Another process runs in this address space.
    Processes,
    /// The library's own threads did not come to rest.
    Busy,
    /// The kernel may write to it at any time: asynchronous I/O is set up.
    AsyncIo,
    /// A device may write to it: pages are pinned.
    Pinned,
    /// A registration that is reached in other ways shares pages with it.
    Registered,
    /// It is small, and there are many pieces apart from each other already, each of which makes the next one dearer.
    Scattered,
    /// The program has moved elsewhere what was there before, and it is in the file still.
    Taken,
    /// A limit on the size of files stands in the way.
    FileSize,
    /// The kernel said no: out of memory, a limit, a filter.
    Kernel(Errno),
}

impl Refusal {
    /// A short name to count by.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Refusal::Disabled => "disabled",
            Refusal::Range => "range",
            Refusal::NotMapped => "not_mapped",
            Refusal::Guard => "guard",
            Refusal::Executable => "executable",
            Refusal::Stack => "stack",
            Refusal::File => "file",
            Refusal::Shared => "shared",
            Refusal::HugePages => "huge_pages",
            Refusal::Locked => "locked",
            Refusal::Special => "special",
            Refusal::Arena => "arena",
            Refusal::MadviseUnseen => "madvise_unseen",
            Refusal::Threads => "threads",
            Refusal::Processes => "processes",
            Refusal::Busy => "busy",
            Refusal::AsyncIo => "async_io",
            Refusal::Pinned => "pinned",
            Refusal::Registered => "registered",
            Refusal::Scattered => "scattered",
            Refusal::Taken => "taken",
            Refusal::FileSize => "file_size",
            Refusal::Kernel(_) => "kernel",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::Disabled => "sharing of registered memory is switched off",
            Refusal::Range => "the range is empty or outside of the address space",
            Refusal::NotMapped => "part of the memory is not mapped",
            Refusal::Guard => "part of the memory cannot be read and written",
            Refusal::Executable => "part of the memory is executable",
            Refusal::Stack => "part of the memory is a stack or a thread's own data",
            Refusal::File => "part of the memory is a mapped file",
            Refusal::Shared => "part of the memory is shared mapping already",
            Refusal::HugePages => "part of the memory is of huge pages",
            Refusal::Locked => "part of the memory is locked (mlock)",
            Refusal::Special => "part of the memory is treated specially at fork",
            Refusal::Arena => "the memory is of an allocator's arena for threads",
            Refusal::MadviseUnseen => {
                "the program's calls of madvise are not seen (not started by `adverb run`?)"
            }
            Refusal::Threads => "other threads are running, and userfaultfd is not available",
            Refusal::Processes => "another process runs in this address space",
            Refusal::Busy => "the device's own threads did not come to rest",
            Refusal::AsyncIo => "asynchronous I/O (io_uring or aio) is in use",
            Refusal::Pinned => "a device has pinned memory of this process",
            Refusal::Registered => "a registration that is not shared has pages in common with it",
            Refusal::Scattered => {
                "it is small, and many pieces of memory apart from each other are shared already"
            }
            Refusal::Taken => "what was there before is shared still, where the program has moved it",
            Refusal::FileSize => "the size of files is limited (RLIMIT_FSIZE)",
            Refusal::Kernel(errno) => return write!(f, "the kernel refuses: {}", errno.desc()),
        })
    }
}

impl std::error::Error for Refusal {}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        // What `UFFDIO_MOVE` says of a page that a device may write to.
        if errno == Errno::EBUSY { Refusal::Pinned } else { Refusal::Kernel(errno) }
    }
}

impl From<std::io::Error> for Refusal {
    fn from(error: std::io::Error) -> Self {
        Refusal::Kernel(Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))
    }
}
