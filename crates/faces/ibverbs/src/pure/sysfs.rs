//! What programs read below `/sys/class/infiniband` through this library.

use core::ffi::{CStr, c_char, c_int};
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use adverb_device::sysfs::attributes;
use libc::size_t;

use crate::abi::IBV_SYSFS_PATH_MAX;
use crate::errno;

/// The directories in which the kernel shows RDMA devices and their character devices.
const DEVICES: &str = "/sys/class/infiniband";
const VERBS: &str = "/sys/class/infiniband_verbs";

/// The content of a file of the devices' own virtual sysfs tree. `None` for a path outside it.
pub fn virtual_file(path: &Path) -> Option<Vec<u8>> {
    let text = if let Ok(below) = path.strip_prefix(DEVICES) {
        let mut parts = below.components();
        let name = parts.next()?.as_os_str().to_str()?;
        let wanted = parts.as_path().to_str()?;
        let device = adverb_device::device::named(name).ok()??;
        attributes(&device).into_iter().find(|(path, _)| path == wanted)?.1
    } else {
        let below = path.strip_prefix(VERBS).ok()?.to_str()?;
        let devices = adverb_device::device::list().ok()?;
        if below == "abi_version" && !devices.is_empty() {
            "6".to_owned()
        } else {
            let (index, file) = below.strip_prefix("uverbs")?.split_once('/')?;
            let device = devices.get(index.parse::<usize>().ok()?)?;
            match file {
                "ibdev" => device.name().to_owned(),
                "abi_version" => "1".to_owned(),
                _ => return None,
            }
        }
    };
    Some(format!("{text}\n").into_bytes())
}

/// Reads a file of sysfs into `buf`, from the virtual tree first. Returns the number of bytes, or
/// an errno value.
pub fn read(path: &Path, buf: &mut [u8]) -> Result<usize, c_int> {
    if let Some(content) = virtual_file(path) {
        let len = content.len().min(buf.len());
        buf[..len].copy_from_slice(&content[..len]);
        return Ok(len);
    }
    // A single read, as sysfs needs it: sysfs builds an attribute anew for each read from its
    // start.
    let read = File::open(path).and_then(|mut file| file.read(buf));
    read.map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))
}

/// The directory where sysfs is mounted: `SYSFS_PATH` without trailing slashes, unless the program
/// is set-uid, otherwise `/sys`.
pub extern "C" fn ibv_get_sysfs_path() -> *const c_char {
    static PATH: OnceLock<CString> = OnceLock::new();
    PATH.get_or_init(|| {
        // SAFETY: both calls only return numbers.
        let trusted = unsafe { libc::getuid() == libc::geteuid() };
        let Some(path) = std::env::var_os("SYSFS_PATH").filter(|_| trusted) else {
            return c"/sys".to_owned();
        };
        let mut bytes = path.into_vec();
        bytes.truncate(IBV_SYSFS_PATH_MAX);
        let end = bytes.iter().rposition(|&b| b != b'/').map_or(0, |last| last + 1);
        bytes.truncate(end);
        CString::new(bytes).unwrap_or_default()
    })
    .as_ptr()
}

/// Reads `dir/file` into `buf` as a string without its last newline. Returns its length, or -1.
///
/// A text that leaves no room for the terminating zero is an error. It is not shortened.
pub unsafe extern "C" fn ibv_read_sysfs_file(
    dir: *const c_char,
    file: *const c_char,
    buf: *mut c_char,
    size: size_t,
) -> c_int {
    // SAFETY: the caller passes two strings and a buffer of `size` bytes. The buffer may be
    // uninitialised only in the sense of C: every byte is a valid `u8`.
    let (dir, file, buf) = unsafe {
        (
            CStr::from_ptr(dir),
            CStr::from_ptr(file),
            core::slice::from_raw_parts_mut(buf.cast::<u8>(), size),
        )
    };
    let mut path = PathBuf::from(OsStr::from_bytes(dir.to_bytes()));
    // `push` would drop `dir` if the name begins with a slash. The C library joins the two.
    let file = file.to_bytes();
    let start = file.iter().position(|&b| b != b'/').unwrap_or(file.len());
    path.push(OsStr::from_bytes(&file[start..]));
    match read(&path, buf) {
        Err(code) => errno::minus_one(code),
        Ok(0) => 0,
        Ok(len) if buf[len - 1] == b'\n' => {
            buf[len - 1] = 0;
            (len - 1) as c_int
        }
        Ok(len) if len < size => {
            buf[len] = 0;
            len as c_int
        }
        Ok(_) => errno::minus_one(libc::ENOBUFS),
    }
}
