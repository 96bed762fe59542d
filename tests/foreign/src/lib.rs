//! Runs programs that know nothing of Adverb on its drop-in libraries, and judges them by their
//! output.
//!
//! The tests are one binary without the standard harness ([`suite`]), so that each program with
//! each set of options is a named test. A program that is missing, hangs or is killed is a failure
//! with its output in the message. Every skipped test is named.
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
pub mod scratch;
pub mod sockets;
pub mod suite;
pub mod tshark;

/// Result of a test: success, or the reason of the failure in words.
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
