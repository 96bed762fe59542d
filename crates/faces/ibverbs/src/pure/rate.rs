//! Static rates: code, multiple of 2.5 Gb/s, Mb/s on the wire.

use core::ffi::c_int;

use crate::abi::*;

/// One rate. `mult` is 0 if the interface defines no multiple for the code.
struct Rate {
    code: ibv_rate,
    mult: c_int,
    mbps: c_int,
}

const fn rate(code: ibv_rate, mult: c_int, mbps: c_int) -> Rate {
    Rate { code, mult, mbps }
}

/// For lanes of SDR, DDR and QDR, the figure counts raw bits. From FDR on, it is the signalling
/// rate, so the numbers are odd.
const RATES: [Rate; 23] = [
    rate(IBV_RATE_2_5_GBPS, 1, 2_500),
    rate(IBV_RATE_5_GBPS, 2, 5_000),
    rate(IBV_RATE_10_GBPS, 4, 10_000),
    rate(IBV_RATE_20_GBPS, 8, 20_000),
    rate(IBV_RATE_30_GBPS, 12, 30_000),
    rate(IBV_RATE_40_GBPS, 16, 40_000),
    rate(IBV_RATE_60_GBPS, 24, 60_000),
    rate(IBV_RATE_80_GBPS, 32, 80_000),
    rate(IBV_RATE_120_GBPS, 48, 120_000),
    rate(IBV_RATE_14_GBPS, 0, 14_062),
    rate(IBV_RATE_56_GBPS, 0, 56_250),
    rate(IBV_RATE_112_GBPS, 0, 112_500),
    rate(IBV_RATE_168_GBPS, 0, 168_750),
    rate(IBV_RATE_25_GBPS, 0, 25_781),
    rate(IBV_RATE_100_GBPS, 0, 103_125),
    rate(IBV_RATE_200_GBPS, 0, 206_250),
    rate(IBV_RATE_300_GBPS, 0, 309_375),
    rate(IBV_RATE_28_GBPS, 11, 28_125),
    rate(IBV_RATE_50_GBPS, 20, 53_125),
    rate(IBV_RATE_400_GBPS, 160, 425_000),
    rate(IBV_RATE_600_GBPS, 240, 637_500),
    rate(IBV_RATE_800_GBPS, 320, 850_000),
    rate(IBV_RATE_1200_GBPS, 480, 1_275_000),
];

/// The multiple of 2.5 Gb/s of a rate code, or -1 if there is none.
pub extern "C" fn ibv_rate_to_mult(code: ibv_rate) -> c_int {
    RATES.iter().find(|r| r.code == code && r.mult != 0).map_or(-1, |r| r.mult)
}

/// The rate code of a multiple of 2.5 Gb/s, or `IBV_RATE_MAX` if there is none.
pub extern "C" fn mult_to_ibv_rate(mult: c_int) -> ibv_rate {
    RATES.iter().find(|r| r.mult == mult && r.mult != 0).map_or(IBV_RATE_MAX, |r| r.code)
}

/// The rate in Mb/s of a rate code, or -1 if there is none.
pub extern "C" fn ibv_rate_to_mbps(code: ibv_rate) -> c_int {
    RATES.iter().find(|r| r.code == code).map_or(-1, |r| r.mbps)
}

/// The rate code of a rate in Mb/s, or `IBV_RATE_MAX` if there is none.
pub extern "C" fn mbps_to_ibv_rate(mbps: c_int) -> ibv_rate {
    RATES.iter().find(|r| r.mbps == mbps).map_or(IBV_RATE_MAX, |r| r.code)
}
