//! `/dev/infiniband/rdma_cm` for librdmacm.so.1 and the preloaded object of the same build: open,
//! write and close of the file. Programs poll the descriptor as they would the kernel's.
use super::held::hold;
use adverb_device::Errno;
use adverb_device::cq::hunt;
use adverb_link::Uncancelled;
use adverb_ucma::{Channel, Memory};
use core::ffi::{c_int, c_void};

/// The program's memory, by the addresses in its commands.
struct Program;

impl Memory for Program {
    fn read(&self, address: u64, to: &mut [u8]) -> Result<(), Errno> {
        copy(libc::SYS_process_vm_readv, address, to.as_mut_ptr() as u64, to.len())
    }
    fn write(&self, address: u64, from: &[u8]) -> Result<(), Errno> {
        copy(libc::SYS_process_vm_writev, address, from.as_ptr() as u64, from.len())
    }
}

/// Has the kernel copy between `ours` and an address of the program, which may be any number
/// (EFAULT).
fn copy(call: libc::c_long, theirs: u64, ours: u64, len: usize) -> Result<(), Errno> {
    let vec = |address: u64| libc::iovec { iov_base: address as *mut c_void, iov_len: len };
    let (local, remote) = (vec(ours), vec(theirs));
    // As wide as a register each: what the last one leaves free on the stack would be flags.
    let (one, none): (libc::c_ulong, libc::c_ulong) = (1, 0);
    // SAFETY: the kernel checks every address. It writes to `ours` as the caller lent it (reading),
    // or to the place that the program named for the response (writing).
    let copied = unsafe {
        libc::syscall(
            call,
            libc::c_long::from(libc::getpid()),
            &raw const local,
            one,
            &raw const remote,
            one,
            none,
        )
    };
    match copied {
        n if n == len as libc::c_long => Ok(()),
        _ if Errno::last() == Errno::EPERM || Errno::last() == Errno::ENOSYS => {
            plain_copy(call, theirs, ours, len);
            Ok(())
        }
        _ => Err(Errno::EFAULT),
    }
}

/// Where a filter of system calls forbids the kernel's copy, a plain one serves: a wrong address
/// ends the program.
fn plain_copy(call: libc::c_long, theirs: u64, ours: u64, len: usize) {
    let (from, to) = if call == libc::SYS_process_vm_readv { (theirs, ours) } else { (ours, theirs) };
    // SAFETY: `ours` is a slice of this length; the program vouches for its own address, as for any
    // C call.
    unsafe { core::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, len) }
}

/// Opens the file: its descriptor, or a negative errno value. `O_NONBLOCK` and `O_CLOEXEC` of
/// `flags` count.
pub extern "C" fn adverb_ucma_open(flags: c_int) -> c_int {
    let _uncancelled = Uncancelled::begin();
    super::logging::init();
    if !adverb_reserve::is_ready() {
        return -libc::ENOMEM;
    }
    match Channel::open(flags) {
        Ok(channel) => channel.raw_fd(),
        Err(e) => {
            log::warn!("opening /dev/infiniband/rdma_cm: {e}");
            -e.errno()
        }
    }
}

/// Performs the command in `len` bytes at `buf`: how many were taken, or a negative errno value.
///
/// "C-unwind", as a thread can be cancelled while GET_EVENT waits.
pub unsafe extern "C-unwind" fn adverb_ucma_write(fd: c_int, buf: *const c_void, len: usize) -> isize {
    // The longest command has 328 bytes; what follows one is not looked at.
    let mut command = [0; 512];
    let taken = len.min(command.len());
    let Some(channel) = Channel::of_fd(fd) else { return -(libc::EBADF as isize) };
    if let Err(e) = Program.read(buf as u64, &mut command[..taken]) {
        return -(e as isize);
    }
    // A thread that is cancelled as it waits runs no destructor: `hold` has the one count.
    let _uncancelled = Uncancelled::begin();
    match hold(channel, |channel| channel.write(&command[..taken], &Program)) {
        Ok(_) => len as isize,
        Err(e) => -(e as isize),
    }
}

/// The program is about to read an event of a connection; `place` is the return address of its
/// call. 1 if [`adverb_ucma_event_read`] is to be called when it has.
pub extern "C" fn adverb_ucma_event_at(place: usize) -> c_int {
    let _uncancelled = Uncancelled::begin();
    hunt::read_connection_event_at(place.wrapping_sub(1)).into()
}

/// The event was read.
pub extern "C" fn adverb_ucma_event_read() {
    let _uncancelled = Uncancelled::begin();
    hunt::read_connection_event();
}

/// Closes the file and its descriptor: 0, or a negative errno value.
pub extern "C" fn adverb_ucma_close(fd: c_int) -> c_int {
    let _uncancelled = Uncancelled::begin();
    match Channel::of_fd(fd) {
        Some(channel) => {
            channel.close();
            0
        }
        None => -libc::EBADF,
    }
}
