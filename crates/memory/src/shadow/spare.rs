//! Mappings in reserve: a process may have so many (`vm.max_map_count`), and what has moved must be able to go back.

const PAGES: u64 = 8;

/// Some mappings that nobody uses.
#[derive(Debug)]
pub(super) struct Spare(u64);

impl Spare {
    /// None where there are too many already.
    pub fn new() -> Option<Spare> {
        let page = crate::page_size();
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a reservation at an address of the kernel's choice disturbs nothing.
        let at = unsafe {
            libc::mmap(std::ptr::null_mut(), (PAGES * page) as usize, libc::PROT_NONE, flags, -1, 0)
        };
        if at == libc::MAP_FAILED {
            return None;
        }
        let spare = Spare(at as u64);
        // Every other page gets other rights, and so a mapping of its own.
        let mut odd = (1..PAGES).step_by(2).map(|n| spare.0 + n * page);
        // SAFETY: pages of the reservation.
        odd.all(|at| unsafe { libc::mprotect(at as *mut libc::c_void, page as usize, libc::PROT_READ) } == 0)
            .then_some(spare)
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        // SAFETY: the reservation, of which nobody knows.
        unsafe { libc::munmap(self.0 as *mut libc::c_void, (PAGES * crate::page_size()) as usize) };
    }
}
