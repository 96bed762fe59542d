//! Runs programs that know nothing of Adverb on its drop-in libraries, and judges them by what they
//! print.
//!
//! The tests under `tests/` are binaries of their own (`harness = false`, libtest-mimic), so that
//! each program with each set of options is a test with a name. A program that is missing, hangs or
//! is killed is a failure with its output in the message; nothing is skipped in silence.
#![forbid(unsafe_code)]

pub mod alone;
pub mod cases;
pub mod cc;
pub mod device;
pub mod hosts;
pub mod machine;
pub mod pair;
pub mod process;
pub mod pyverbs;
pub mod service;
pub mod sockets;
pub mod suite;
pub mod tshark;

/// What a test returns: nothing, or the reason in words.
pub type Verdict = Result<(), String>;

/// Fails the surrounding test with a formatted reason unless the condition holds.
#[macro_export]
macro_rules! require {
    ($cond:expr, $($why:tt)+) => {
        if !$cond {
            return Err(format!($($why)+));
        }
    };
}
