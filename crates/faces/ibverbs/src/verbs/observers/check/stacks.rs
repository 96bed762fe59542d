//! The place in the program's code that a thread is at, from its registers and its stack.
//!
//! The stack holds the return addresses of the calls. The place is the innermost call in the
//! program's own code: the first word of the stack that points behind a call instruction there.
use super::report::is_ours;
use crate::verbs::caller::is_inline_function;
use adverb_check::CodeAddress;
use core::ffi::c_void;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Bytes of a stack that are searched for a call of the program.
const STACK: usize = 32 << 10;
/// Most calls that are found on a stack.
const CALLS: usize = 64;

/// The program's code and memory.
pub(super) struct Stacks {
    memory: Option<File>,
    /// Executable mappings of the program: not the device's, and not the C library's.
    code: Vec<(usize, usize)>,
    /// The mappings of the program's own file.
    own: Vec<(usize, usize)>,
}

impl Stacks {
    pub fn new() -> Stacks {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let exe = std::fs::read_link("/proc/self/exe").unwrap_or_default();
        let exe = exe.to_string_lossy();
        let of_exe = maps.lines().filter(|line| line.ends_with(&*exe));
        Stacks {
            memory: File::open("/proc/self/mem").ok(),
            code: maps.lines().filter_map(code_in).collect(),
            own: of_exe.filter_map(code_in).collect(),
        }
    }

    /// The innermost place in the program's code, for a thread with these registers; 0 if unknown.
    pub fn place(&self, code: usize, stack: usize) -> CodeAddress {
        if self.is_code(code) && !is_inline_function(code) {
            return code;
        }
        let mut bytes = vec![0; STACK];
        let read = self.read(stack, &mut bytes);
        // A call leaves its return address where the stack is aligned. Other words that point into
        // the code are values of calls that have returned.
        let words = bytes[..read].chunks_exact(size_of::<usize>());
        let words = words.zip((stack..).step_by(size_of::<usize>()));
        let words = words.filter(|(_, at)| !cfg!(target_arch = "x86_64") || at % 16 == 8);
        let words = words.filter_map(|(word, _)| Some(usize::from_ne_bytes(word.try_into().ok()?)));
        let is_call = |word: &usize| self.is_code(*word) && self.follows_call(*word);
        let calls = words.filter(|word| is_call(word) && !is_inline_function(word - 1));
        let calls: Vec<_> = calls.take(CALLS).map(|at| at - 1).collect();
        // The program's own file says more than its libraries.
        let own = calls.iter().find(|call| in_range(&self.own, **call));
        own.or(calls.first()).copied().unwrap_or(0)
    }

    fn is_code(&self, address: usize) -> bool {
        in_range(&self.code, address)
    }

    /// Does a call instruction end at this address?
    #[cfg(target_arch = "x86_64")]
    fn follows_call(&self, address: usize) -> bool {
        let mut before = [0; 7];
        if self.read(address - 7, &mut before) < 7 {
            return false;
        }
        // A call of an address in a register or in memory: FF with 2 in the middle of the next
        // byte.
        let indirect = |len: usize| {
            let at = 7 - len;
            before[at] == 0xff && before[at + 1] >> 3 & 7 == 2
        };
        before[2] == 0xe8 || [2, 3, 4, 6, 7].into_iter().any(indirect)
    }

    #[cfg(target_arch = "aarch64")]
    fn follows_call(&self, address: usize) -> bool {
        let mut before = [0; 4];
        if self.read(address - 4, &mut before) < 4 {
            return false;
        }
        let instruction = u32::from_le_bytes(before);
        // BL, and BLR with any register.
        instruction >> 26 == 0b10_0101 || instruction & 0xffff_fc1f == 0xd63f_0000
    }

    /// Reads memory of the process through the kernel, because the memory may go at any moment.
    /// Answers the number of bytes read.
    pub fn read(&self, address: usize, into: &mut [u8]) -> usize {
        let Some(memory) = &self.memory else { return 0 };
        memory.read_at(into, address as u64).unwrap_or(0)
    }
}

fn in_range(ranges: &[(usize, usize)], address: usize) -> bool {
    ranges.iter().any(|(start, end)| (*start..*end).contains(&address))
}

/// The range of an executable mapping of the program, from a line of `/proc/self/maps`.
fn code_in(line: &str) -> Option<(usize, usize)> {
    let mut words = line.split_whitespace();
    let (range, rights) = (words.next()?, words.next()?);
    let path = words.nth(3)?;
    let (start, end) = range.split_once('-')?;
    let start = usize::from_str_radix(start, 16).ok()?;
    let end = usize::from_str_radix(end, 16).ok()?;
    let of_program = rights.as_bytes().get(2) == Some(&b'x') && path.starts_with('/');
    (of_program && !is_ours(start)).then_some((start, end))
}

/// The program counter and the stack pointer in the context of a signal handler.
///
/// # Safety
/// `context` is the third argument of a handler with `SA_SIGINFO`.
#[allow(clippy::unnecessary_cast, reason = "the types differ between processors")]
pub(super) unsafe fn registers(context: *mut c_void) -> (usize, usize) {
    // SAFETY: the caller's promise.
    let context = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext };
    #[cfg(target_arch = "x86_64")]
    return (
        context.gregs[libc::REG_RIP as usize] as usize,
        context.gregs[libc::REG_RSP as usize] as usize,
    );
    #[cfg(target_arch = "aarch64")]
    return (context.pc as usize, context.sp as usize);
}
