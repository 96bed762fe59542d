//! Arming: `ibv_req_notify_cq`, which the header calls through the context's table.
use crate::abi::*;
use crate::handles::hot;
use adverb_device::ArmSite;
use adverb_device::engine::cq::arm::ArmKind;
use core::ffi::{CStr, c_int};
use std::path::Path;

/// Headers whose inline functions call the libraries.
pub const HEADERS: [&str; 3] = ["verbs.h", "rdma_verbs.h", "rdma_cma.h"];

/// Slot `req_notify_cq`. Passes its return address on: that is the place in the program that arms,
/// so the report of a lost wake-up can name it (EXT-4).
#[unsafe(naked)]
pub unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // The first two arguments stay in their registers. The third receives the return address. The
    // called function returns directly to that address.
    #[cfg(target_arch = "x86_64")]
    core::arch::naked_asm!("mov rdx, [rsp]", "jmp {arm}", arm = sym arm);
    #[cfg(target_arch = "aarch64")]
    core::arch::naked_asm!("mov x2, x30", "b {arm}", arm = sym arm);
}

/// Arms a CQ (CQN-1, CQN-2, CQN-10, CQN-11).
pub(super) unsafe extern "C" fn arm(
    cq: *mut ibv_cq,
    solicited_only: c_int,
    return_address: usize,
) -> c_int {
    let obj = match hot(cq) {
        Ok(obj) => obj,
        Err(e) => return super::failed("ibv_req_notify_cq", &e),
    };
    let kind = if solicited_only == 0 { ArmKind::Next } else { ArmKind::Solicited };
    match obj.cq.req_notify_at(kind, site_before(return_address)) {
        Ok(()) => 0,
        Err(e) => super::failed("ibv_req_notify_cq", &e),
    }
}

/// The address of the call that returns to this address: it lies in the instruction before. 0:
/// unknown.
pub fn site_before(return_address: usize) -> ArmSite {
    return_address.checked_sub(1).map_or(ArmSite::Unknown, ArmSite::Code)
}

/// Text for an address in the program's code: file and offset, the function, and the line if the
/// program has line information.
pub fn name_code(address: usize) -> String {
    describe(address, false)
}

/// Like `name_code`, with the whole path of the source file.
pub fn name_code_with_path(address: usize) -> String {
    describe(address, true)
}

fn describe(address: usize, whole: bool) -> String {
    let (mut own, mut all) = (String::new(), String::new());
    backtrace::resolve(address as *mut _, |symbol| {
        let mut text = symbol.name().map_or_else(String::new, |name| format!(" in {name}"));
        if let (Some(file), Some(line)) = (symbol.filename(), symbol.lineno()) {
            let name = file.file_name().filter(|_| !whole).unwrap_or(file.as_os_str());
            text += &format!(", {}:{line}", name.to_string_lossy());
        }
        if !symbol.filename().is_some_and(is_of_a_library) {
            own += &text;
        }
        all += &text;
    });
    module_of(address) + if own.is_empty() { &all } else { &own }
}

/// Is this a header of another library? Its inline functions are no lines of the program. The
/// headers of verbs name the call.
fn is_of_a_library(file: &Path) -> bool {
    let name = file.file_name().and_then(|name| name.to_str());
    file.starts_with("/usr/include") && !name.is_some_and(|name| HEADERS.contains(&name))
}

/// The file that the code at an address was loaded from, and the offset in that file.
pub fn module_of(address: usize) -> String {
    match file_of(address) {
        Some((file, base)) => {
            format!("{}+{:#x}", file.to_string_lossy(), address.wrapping_sub(base))
        }
        None => format!("{address:#x}"),
    }
}

/// The name of the file that the code at an address was loaded from, and the address where the file
/// begins in memory. Does not allocate.
pub fn file_of(address: usize) -> Option<(&'static CStr, usize)> {
    // SAFETY: all zeros are a valid value of the struct, which the call fills.
    let mut info: libc::Dl_info = unsafe { core::mem::zeroed() };
    // SAFETY: the call accepts any address; the struct is a local variable.
    if unsafe { libc::dladdr(address as *const _, &raw mut info) } == 0 || info.dli_fname.is_null()
    {
        return None;
    }
    // SAFETY: the loader's own string, which lives as long as the module.
    let path = unsafe { CStr::from_ptr(info.dli_fname) };
    let bytes = path.to_bytes_with_nul();
    let name = bytes.iter().rposition(|b| *b == b'/').map_or(0, |slash| slash + 1);
    Some((CStr::from_bytes_with_nul(&bytes[name..]).unwrap_or(path), info.dli_fbase as usize))
}
