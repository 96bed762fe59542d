//! Violations found in a world.

/// A violation, in words.
#[derive(Clone, Debug)]
pub(crate) struct Violation(pub(crate) String);

pub(crate) type Check<T = ()> = Result<T, Violation>;

/// Returns with a violation unless the condition holds.
macro_rules! ensure {
    ($holds:expr, $($words:tt)*) => {
        if !$holds {
            return Err($crate::verdict::Violation(format!($($words)*)));
        }
    };
}
pub(crate) use ensure;
