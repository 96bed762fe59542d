//! Checks whether a process of the user may read the memory of another. The device does this for
//! memory that peers cannot map.
use super::finding::Finding;
use nix::errno::Errno;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::getppid;
use std::fs;
use std::io::IoSliceMut;
use std::process::{Command, ExitCode, Stdio};

/// The first bytes of every program, in memory and in its file.
const MAGIC: [u8; 4] = *b"\x7fELF";

pub fn findings() -> Vec<Finding> {
    let (refused, errno) = match tried() {
        Ok(None) => {
            let found = "one process may read another's memory (process_vm_readv)";
            return vec![Finding::ok("processes", found)];
        }
        Ok(Some(errno)) => (
            format!("one process may not read another's memory: process_vm_readv says {errno}"),
            Some(errno),
        ),
        Err(why) => (
            format!("the test whether one process may read another's memory did not run: {why}"),
            None,
        ),
    };
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    vec![Finding::warn("processes", refused, remedy(errno, scope.trim()))]
}

fn remedy(errno: Option<Errno>, scope: &str) -> String {
    let without = "programs run nevertheless: bytes are copied twice within the host, except for those in page-aligned allocations";
    match scope {
        // A rule of a kernel that has the call refuses with EPERM.
        _ if errno == Some(Errno::ENOSYS) => format!(
            "this kernel has no process_vm_readv, as gVisor's, or a seccomp profile hides the call: \
             outside of the sandbox the call exists; {without}"
        ),
        "" | "0" => format!(
            "a container's seccomp profile may forbid this call: allow process_vm_readv and \
             process_vm_writev; {without}"
        ),
        scope => {
            format!(
                "Yama's ptrace_scope is {scope}: `sysctl kernel.yama.ptrace_scope=0`, as root; {without}"
            )
        }
    }
}

/// A child reads the beginning of this process. The other direction would prove nothing, because a
/// parent may always read its child.
fn tried() -> Result<Option<Errno>, String> {
    let maps =
        fs::read_to_string("/proc/self/maps").map_err(|e| format!("/proc/self/maps: {e}"))?;
    let address = first_mapping(&maps).ok_or("no mapping of this program can be read")?;
    let exe = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut command = Command::new(exe);
    command.args(["doctor", "--read-parent", &address.to_string()]);
    adverb_survivor::prepare(&mut command);
    let status =
        command.stdin(Stdio::null()).stdout(Stdio::null()).status().map_err(|e| e.to_string())?;
    match status.code() {
        Some(0) => Ok(None),
        Some(errno) => Ok(Some(Errno::from_raw(errno))),
        None => Err(status.to_string()),
    }
}

/// The address at which this program begins.
fn first_mapping(maps: &str) -> Option<usize> {
    let readable = maps
        .lines()
        .find(|line| line.split_whitespace().nth(1).is_some_and(|p| p.starts_with('r')))?;
    usize::from_str_radix(readable.split_once('-')?.0, 16).ok()
}

/// Runs in the child. The exit status is the errno.
pub fn read_parent(address: usize) -> ExitCode {
    let mut bytes = [0; MAGIC.len()];
    let from = [RemoteIoVec { base: address, len: MAGIC.len() }];
    let read = process_vm_readv(getppid(), &mut [IoSliceMut::new(&mut bytes)], &from);
    let errno = match read {
        Ok(_) if bytes == MAGIC => return ExitCode::SUCCESS,
        Ok(_) => Errno::EIO,
        Err(errno) => errno,
    };
    ExitCode::from(u8::try_from(errno as i32).unwrap_or(crate::FAILED))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// DOC-4: the remedy matches the mechanism that forbids the access.
    #[test]
    fn the_remedy_fits() {
        let refused = |scope| remedy(Some(Errno::EPERM), scope);
        assert!(refused("1").contains("kernel.yama.ptrace_scope=0"));
        assert!(refused("").contains("seccomp"));
        // gVisor has a file of Yama, but not the call.
        let absent = remedy(Some(Errno::ENOSYS), "1");
        assert!(absent.contains("this kernel has no process_vm_readv") && !absent.contains("Yama"));
        assert_eq!(
            first_mapping("00400000-00401000 ---p 0\n7f00-8000 r--p 0 /bin/x\n"),
            Some(0x7f00)
        );
    }
}
