//! Encoded times (IBTA 9.7.5.2.8, 9.7.6.1.3).

/// Units of 10 microseconds (IBTA table 45); code 0 is the longest.
const RNR_TIMER: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

/// Microseconds of an RNR NAK timer code (its five low bits): 10 to 655,360.
#[must_use]
pub const fn rnr_timer_us(code: u8) -> u32 {
    RNR_TIMER[(code & 0x1f) as usize] * 10
}

/// Nanoseconds of a local ACK timeout code (its five low bits): 4.096 us * 2^code. `None` for code
/// 0, which means no timeout.
#[must_use]
pub const fn ack_timeout_ns(code: u8) -> Option<u64> {
    match code & 0x1f {
        0 => None,
        c => Some(4096 << c),
    }
}
