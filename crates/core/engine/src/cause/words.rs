//! Causes of a refused access as numbers, for peers on the same host.
use crate::cause::Cause;
use crate::types::Access;

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

impl Cause {
    /// The values, if a responder refuses an access or a message for this cause.
    #[must_use]
    pub fn to_words(&self) -> Option<[u64; 5]> {
        let code = self.vendor_err();
        Some(match *self {
            Cause::UnknownKey { key }
            | Cause::WrongPd { key }
            | Cause::WindowNotUsable { key }
            | Cause::NotRegistered { key } => [pair(code, key), 0, 0, 0, 0],
            Cause::OutOfBounds { key, va, len, start, size } => {
                [pair(code, key), va, len, start, size]
            }
            Cause::AccessDenied { key, needed, granted } => {
                [pair(code, key), pair(needed.bits(), granted.bits()), 0, 0, 0]
            }
            Cause::QpAccessDenied { needed } => [pair(code, needed.bits()), 0, 0, 0, 0],
            Cause::Fault { addr } => [code.into(), addr, 0, 0, 0],
            Cause::Misaligned { va } => [code.into(), va, 0, 0, 0],
            Cause::RecvTooShort { message, buffers } => [code.into(), message, buffers, 0, 0],
            _ => return None,
        })
    }

    /// The cause with these values. Any other process may have written the values.
    #[must_use]
    pub fn from_words(words: [u64; 5]) -> Option<Cause> {
        let [first, b, c, d, e] = words;
        let (key, access) = ((first >> 32) as u32, Access::from_bits_truncate);
        let candidates = [
            Cause::UnknownKey { key },
            Cause::WrongPd { key },
            Cause::WindowNotUsable { key },
            Cause::NotRegistered { key },
            Cause::OutOfBounds { key, va: b, len: c, start: d, size: e },
            Cause::AccessDenied {
                key,
                needed: access(b as u32),
                granted: access((b >> 32) as u32),
            },
            Cause::QpAccessDenied { needed: access(key) },
            Cause::Fault { addr: b },
            Cause::Misaligned { va: b },
            Cause::RecvTooShort { message: b, buffers: c },
        ];
        candidates.into_iter().find(|cause| cause.vendor_err() == first as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_the_same_after_its_way_through_words() {
        let (key, needed, granted) = (0x1234_5678, Access::REMOTE_WRITE, Access::LOCAL_WRITE);
        for cause in [
            Cause::UnknownKey { key },
            Cause::WrongPd { key },
            Cause::WindowNotUsable { key },
            Cause::NotRegistered { key },
            Cause::OutOfBounds { key, va: 1 << 40, len: 2, start: 3, size: u64::MAX },
            Cause::AccessDenied { key, needed, granted },
            Cause::QpAccessDenied { needed },
            Cause::Fault { addr: 1 << 50 },
            Cause::Misaligned { va: 9 },
            Cause::RecvTooShort { message: 5, buffers: 4 },
        ] {
            assert_eq!(cause.to_words().and_then(Cause::from_words), Some(cause));
        }
        assert_eq!(Cause::Injected.to_words(), None);
        assert_eq!(Cause::from_words([0; 5]), None);
        assert_eq!(Cause::from_words([u64::MAX; 5]), None);
    }
}
