//! Where the program's calls come from, and reports in words.
use super::Check;
use crate::verbs::notify::{module_of, name_code};
use adverb_check::{Place, Report};
use std::hash::{DefaultHasher, Hasher};
use std::sync::atomic::Ordering;

/// Modules of the device and of the C library: the place that matters is behind them.
const OURS: [&str; 6] = ["libibverbs", "librdmacm", "libadverb", "libc.so", "libc-", "ld-linux"];
/// So many callers are named.
const CALLERS: usize = 2;
/// So many calls of a way count.
const DEPTH: usize = 12;

fn is_ours(address: Place) -> bool {
    let module = module_of(address);
    OURS.iter().any(|ours| module.starts_with(ours))
}

/// The calls of the program that led here, the last one first.
fn stack() -> Vec<Place> {
    let mut all = Vec::with_capacity(DEPTH);
    backtrace::trace(|frame| {
        let address = (frame.ip() as usize).wrapping_sub(1);
        if !all.is_empty() || !is_ours(address) {
            all.push(address);
        }
        all.len() < DEPTH
    });
    all
}

/// The call of the program that led here, and its callers as far as reports name them.
pub(super) fn callers() -> Vec<Place> {
    let mut all = stack();
    all.truncate(1 + CALLERS);
    all.retain(|address| !is_ours(*address));
    all
}

/// The call of the program that led here, and a number of the calls that led there.
pub fn way() -> (Place, u64) {
    let stack = stack();
    let mut hash = DefaultHasher::new();
    stack.iter().for_each(|address| hash.write_usize(*address));
    (stack.first().copied().unwrap_or(0), hash.finish())
}

/// The call of the program that led here.
#[must_use]
pub fn place() -> Place {
    way().0
}

impl Check {
    /// Says it, unless it is suppressed.
    pub(super) fn report(&self, report: &Report) {
        let stack = stack();
        let name = |(what, at): &(&str, Place)| {
            let mut text = format!("{what} at {}", name_code(*at));
            // Of the call that the report is made in its callers are known.
            if stack.first() == Some(at) {
                stack[1..].iter().take(CALLERS).for_each(|at| text += &format!(", from {}", name_code(*at)));
            }
            text
        };
        let places: Vec<_> = report.places.iter().map(name).collect();
        let places = if places.is_empty() { String::new() } else { format!(" ({})", places.join("; ")) };
        let words = format!("{}{places}", report.text);
        if self.suppressions.has(report.code, &words) {
            return;
        }
        self.told.fetch_add(1, Ordering::Relaxed);
        log::warn!("check: {}: {words}", report.code);
    }
}
