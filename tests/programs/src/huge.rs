//! Huge pages of 2 MiB, reserved for a while if this user has the right.

use std::path::Path;

const DIR: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";

/// Reserved pages. Dropping this value releases the pages.
#[derive(Debug)]
pub struct Huge {
    before: usize,
}

fn count(name: &str) -> Option<usize> {
    std::fs::read_to_string(Path::new(DIR).join(name)).ok()?.trim().parse().ok()
}

fn set(pages: usize) -> bool {
    std::fs::write(Path::new(DIR).join("nr_hugepages"), pages.to_string()).is_ok()
}

impl Huge {
    /// Reserves `pages` free pages. `None` if the machine has no room or this user no right.
    pub fn reserve(pages: usize) -> Option<Self> {
        let reserved = Self { before: count("nr_hugepages")? };
        let enough = || count("free_hugepages").is_some_and(|free| free >= pages);
        (enough() || set(reserved.before + pages) && enough()).then_some(reserved)
    }
}

impl Drop for Huge {
    fn drop(&mut self) {
        if count("nr_hugepages") != Some(self.before) {
            set(self.before);
        }
    }
}
