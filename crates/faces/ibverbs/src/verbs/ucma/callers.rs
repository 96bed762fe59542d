//! The two forms of a program's request: typed, and as bytes.
use super::reply::reply;
use super::request::{may_be_long, option};
use crate::abi::ib_uverbs_qp_attr;
use crate::abi::rdma_user_cm as abi;
use adverb_device::Errno;
use adverb_ucma::{Caller, OptionValue, Reply};
use core::ffi::c_void;
use core::mem::offset_of;

/// The library's own librdmacm. Option and reply are in its memory, in this process.
pub struct Typed<'a> {
    pub request: &'a abi::Request,
    pub reply: &'a mut abi::Reply,
}

impl Caller for Typed<'_> {
    fn option(&mut self) -> Result<OptionValue, Errno> {
        let abi::Request::SetOption(set) = self.request else { return Err(Errno::EINVAL) };
        let len = may_be_long(set.optlen)?;
        let at: *const u8 = core::ptr::with_exposed_provenance(set.optval as usize);
        let value = match len {
            0 => &[][..],
            _ if at.is_null() => return Err(Errno::EFAULT),
            // SAFETY: the caller of `rdma_set_option` guarantees the value and its length.
            len => unsafe { core::slice::from_raw_parts(at, len) },
        };
        option(set.level, set.optname, value)
    }

    fn reply(&mut self, from: &Reply<'_>) -> Result<(), Errno> {
        *self.reply = reply(from);
        Ok(())
    }
}

/// The program's memory, by the addresses in its commands.
pub trait Memory {
    /// Copies from the program's memory.
    ///
    /// # Errors
    /// EFAULT.
    fn read(&self, address: u64, to: &mut [u8]) -> Result<(), Errno>;
    /// Copies into the program's memory.
    ///
    /// # Errors
    /// EFAULT.
    fn write(&self, address: u64, from: &[u8]) -> Result<(), Errno>;
}

/// Bytes of an event in the version before its ECE part.
const EVENT_LEAST: usize = offset_of!(abi::rdma_ucm_event_resp, reserved);
/// Bytes of addresses in the version before the device index.
const ADDRESSES_LEAST: usize = offset_of!(abi::rdma_ucm_query_addr_resp, ibdev_index);
/// Bytes of a route in the version before the device index.
const ROUTE_LEAST: usize = offset_of!(abi::rdma_ucm_query_route_resp, ibdev_index);
/// Bytes of paths and services before the first record.
const HEAD: usize = size_of::<abi::rdma_ucm_query_ib_service_resp>();

/// The system's librdmacm. Option and reply lie at addresses in its command, with `room` bytes for
/// the reply.
pub struct SystemLibrary<'a, M> {
    pub request: &'a abi::Request,
    pub room: usize,
    pub memory: M,
}

impl<M: Memory> SystemLibrary<'_, M> {
    /// ENOSPC if the room cannot suffice. For `Query` the id is checked first.
    pub fn check_room(&self) -> Result<(), Errno> {
        use abi::Request as C;
        let least = match self.request {
            C::CreateId(_) | C::JoinIpMcast(_) | C::JoinMcast(_) => {
                size_of::<abi::rdma_ucm_create_id_resp>()
            }
            C::DestroyId(_) | C::LeaveMcast(_) | C::MigrateId(_) => {
                size_of::<abi::rdma_ucm_destroy_id_resp>()
            }
            C::InitQpAttr(_) => size_of::<ib_uverbs_qp_attr>(),
            C::GetEvent(_) => EVENT_LEAST,
            C::QueryRoute(_) => ROUTE_LEAST,
            _ => 0,
        };
        if self.room < least { Err(Errno::ENOSPC) } else { Ok(()) }
    }
}

/// As much of an answer as fits. ENOSPC if the room is less than the shortest version.
fn cut(reply: &abi::Reply, room: usize) -> Result<&[u8], Errno> {
    let all = reply.bytes();
    let (least, len) = match reply {
        abi::Reply::Addresses(_) => (ADDRESSES_LEAST, all.len().min(room)),
        abi::Reply::Route(_) => (ROUTE_LEAST, all.len().min(room)),
        abi::Reply::Event(_) => (EVENT_LEAST, all.len().min(room)),
        abi::Reply::Paths(paths) if paths.num_paths > 0 && room >= all.len() => (HEAD, all.len()),
        abi::Reply::Paths(_) | abi::Reply::Services(_) => (HEAD, HEAD),
        _ => (all.len(), all.len()),
    };
    if room < least { Err(Errno::ENOSPC) } else { Ok(&all[..len]) }
}

impl<M: Memory> Caller for SystemLibrary<'_, M> {
    fn option(&mut self) -> Result<OptionValue, Errno> {
        let abi::Request::SetOption(set) = self.request else { return Err(Errno::EINVAL) };
        let mut value = vec![0; may_be_long(set.optlen)?];
        self.memory.read(set.optval, &mut value)?;
        option(set.level, set.optname, &value)
    }

    fn reply(&mut self, from: &Reply<'_>) -> Result<(), Errno> {
        let reply = reply(from);
        let bytes = match self.request {
            abi::Request::GetOption(get) if get.optlen as usize == reply.bytes().len() => {
                reply.bytes()
            }
            abi::Request::GetOption(_) => return Err(Errno::EINVAL),
            _ => cut(&reply, self.room)?,
        };
        self.memory.write(self.request.response().ok_or(Errno::EINVAL)?, bytes)
    }
}

/// The memory of this process, copied by the kernel. An address may be any number (EFAULT).
pub struct Program;

impl Memory for Program {
    fn read(&self, address: u64, to: &mut [u8]) -> Result<(), Errno> {
        copy(libc::SYS_process_vm_readv, address, to.as_mut_ptr() as u64, to.len())
    }
    fn write(&self, address: u64, from: &[u8]) -> Result<(), Errno> {
        copy(libc::SYS_process_vm_writev, address, from.as_ptr() as u64, from.len())
    }
}

/// Makes the kernel copy between `ours` and an address of the program. The address may be any
/// number (EFAULT).
fn copy(call: libc::c_long, theirs: u64, ours: u64, len: usize) -> Result<(), Errno> {
    let vec = |address: u64| libc::iovec { iov_base: address as *mut c_void, iov_len: len };
    let (local, remote) = (vec(ours), vec(theirs));
    // Each as wide as a register. Otherwise the flags on the stack could contain garbage.
    let (one, none): (libc::c_ulong, libc::c_ulong) = (1, 0);
    // SAFETY: the kernel checks every address. For reading, the kernel writes to `ours`, which the
    // caller has lent. For writing, the kernel writes to the program's place for the response.
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

/// Copies plainly where a filter of system calls forbids the kernel's copy. Here a wrong address
/// ends the program.
fn plain_copy(call: libc::c_long, theirs: u64, ours: u64, len: usize) {
    let (from, to) =
        if call == libc::SYS_process_vm_readv { (theirs, ours) } else { (ours, theirs) };
    // SAFETY: `ours` is a slice of this length. The program guarantees its own address, as for any
    // C call.
    unsafe { core::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, len) }
}
