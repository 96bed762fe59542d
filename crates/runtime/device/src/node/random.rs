//! Random bits.

/// Random bits that a peer cannot guess.
pub(crate) fn random_u32() -> u32 {
    getrandom::u32().unwrap_or_else(|_| random_u64() as u32)
}

/// As [`random_u32`].
pub(crate) fn random_u64() -> u64 {
    getrandom::u64().unwrap_or_else(|_| {
        // Without any entropy source, time and process number still keep processes apart.
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |d| d.as_nanos() as u64);
        now ^ (u64::from(std::process::id()) << 32)
    })
}
