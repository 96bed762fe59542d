//! The places of the program's calls, and reports in words.
use super::{Call, Check};
use crate::verbs::caller::is_inline_function;
use crate::verbs::notify::{file_of, name_code, name_code_with_path};
use adverb_check::{CodeAddress, Report, Told, Weight, with_way, without_way};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};
use std::ops::Deref;
use std::sync::atomic::Ordering;

/// Modules of the device and of the C library. The interesting place is in their caller.
const OURS: [&str; 6] = ["libibverbs", "librdmacm", "libadverb", "libc.so", "libc-", "ld-linux"];
/// The number of callers named in a report.
const CALLERS: usize = 2;
/// The number of calls that identify a way.
const DEPTH: usize = 12;
/// Most frames between the library's and the program's call.
const FRAMES: usize = 40;

pub(super) fn is_ours(address: CodeAddress) -> bool {
    let file = file_of(address).map_or(&[][..], |(file, _)| file.to_bytes());
    OURS.iter().any(|ours| file.starts_with(ours.as_bytes()))
}

/// The program's calls that led to a point, last call first. The size is fixed, because a fork
/// allocates nothing.
#[derive(Clone, Copy)]
pub(super) struct Stack {
    calls: [CodeAddress; DEPTH],
    len: usize,
}

impl Deref for Stack {
    type Target = [CodeAddress];

    fn deref(&self) -> &[CodeAddress] {
        &self.calls[..self.len]
    }
}

impl Stack {
    /// The call of the program; 0 if unknown.
    pub fn place(&self) -> CodeAddress {
        self.first().copied().unwrap_or(0)
    }
}

/// The program's calls that led here.
pub(super) fn stack() -> Stack {
    let mut all = Stack { calls: [0; DEPTH], len: 0 };
    let each = |frame: &backtrace::Frame| {
        let address = (frame.ip() as usize).wrapping_sub(1);
        if all.len > 0 || !is_ours(address) && !is_inline_function(address) {
            all.calls[all.len] = address;
            all.len += 1;
        }
        all.len < DEPTH
    };
    // SAFETY: several threads may use the unwinder of this system at once. The lock of
    // `backtrace::trace` would stay locked in the child of a fork, and needs a thread-local
    // variable.
    unsafe { backtrace::trace_unsynchronized(each) };
    all
}

/// The program's call that led here, and the callers named in reports.
pub(super) fn callers() -> Vec<CodeAddress> {
    stack().iter().take(1 + CALLERS).copied().filter(|address| !is_ours(*address)).collect()
}

/// The program's call that led here, and a hash of the calls that led there.
pub(super) fn way() -> (CodeAddress, u64) {
    let stack = stack();
    let mut hash = DefaultHasher::new();
    stack.iter().for_each(|address| hash.write_usize(*address));
    (stack.place(), hash.finish())
}

/// The program's call that led here.
pub(super) fn place() -> CodeAddress {
    way().0
}

/// The program's calls that led to a place, last call first; 0 for none.
type Callers = [CodeAddress; CALLERS];

/// The callers of places, each once. A place has the number of its callers.
pub(super) struct Ways {
    numbers: BTreeMap<Callers, usize>,
    all: Vec<Callers>,
}

impl Ways {
    pub const NONE: Ways = Ways { numbers: BTreeMap::new(), all: Vec::new() };

    fn place(&mut self, place: CodeAddress, callers: Callers) -> CodeAddress {
        let number = *self.numbers.entry(callers).or_insert_with(|| {
            self.all.push(callers);
            self.all.len()
        });
        with_way(place, number)
    }

    fn callers(&self, number: usize) -> Option<Callers> {
        self.all.get(number.checked_sub(1)?).copied()
    }
}

impl Check {
    /// The place of a call that is being made, with the calls that led there.
    pub(super) fn place_of(&self, call: &Call<'_>) -> CodeAddress {
        let place = call.place();
        let (mut callers, mut len, mut frames) = ([0; CALLERS], None, 0);
        let each = |frame: &backtrace::Frame| {
            let address = (frame.ip() as usize).wrapping_sub(1);
            frames += 1;
            match &mut len {
                None => len = (address == place).then_some(0),
                Some(len) => {
                    callers[*len] = address;
                    *len += 1;
                }
            }
            len.map_or(frames < FRAMES, |len| len < CALLERS)
        };
        // SAFETY: as in `stack`.
        unsafe { backtrace::trace_unsynchronized(each) };
        if callers[0] == 0 { place } else { self.known.lock().ways.place(place, callers) }
    }

    /// Logs a report, unless suppressed. `stack` led to the reported call.
    pub(super) fn report(&self, report: &Report, stack: &Stack) {
        let callers = |at: CodeAddress| -> Vec<CodeAddress> {
            let (address, way) = without_way(at);
            let here = || {
                let rest = stack.split_first().filter(|(first, _)| **first == address)?.1;
                Some(rest.iter().take(CALLERS).copied().collect())
            };
            let then = self.known.lock().ways.callers(way);
            let all = then.map(Vec::from).or_else(here).unwrap_or_default();
            all.into_iter().filter(|at| *at != 0 && !is_ours(*at)).collect()
        };
        let name_code = |at: CodeAddress| name_code(without_way(at).0);
        let name_code_with_path = |at: CodeAddress| name_code_with_path(without_way(at).0);
        let name = |(what, at): &(&str, CodeAddress)| {
            let mut text = format!("{what} at {}", name_code(*at));
            for at in callers(*at) {
                text += &format!(", from {}", name_code(at));
            }
            text
        };
        let places: Vec<_> = report.places.iter().map(name).collect();
        let places =
            if places.is_empty() { String::new() } else { format!(" ({})", places.join("; ")) };
        let words = format!("{}{places}", report.text);
        if self.suppressions.has(report.code, &words) {
            return;
        }
        self.told.fetch_add(u64::from(!report.state), Ordering::Relaxed);
        log::warn!("check: {}: {words}", report.code);
        if self.reports.is_none() {
            return;
        }
        let named = |what: &str, at| (what.to_owned(), name_code_with_path(at));
        let with_callers = |(what, at): &(&str, CodeAddress)| {
            let own = std::iter::once(named(what, *at));
            own.chain(callers(*at).into_iter().map(|at| named("from", at))).collect::<Vec<_>>()
        };
        let told = Told {
            process: std::process::id(),
            code: report.code,
            text: report.text.clone(),
            places: report.places.iter().flat_map(with_callers).collect(),
            state: report.state,
        };
        // The hunt ends the program after a mistake.
        if report.code.weight() == Weight::Mistake {
            self.tell_picture();
        }
        self.say(&told.to_string());
    }
}
