//! `ucx_perftest`, over transports of its own or over Adverb.

use adverb_foreign::process::words;

use crate::Result;
use crate::ends::{Ends, PairEnd};
use crate::programs::{Figures, LIMIT, both_ok, shown};

/// The transport over the kernel's TCP.
pub const TCP: &str = "tcp";

/// Runs `n` iterations of a test between two ends. `adverb` says whether under `adverb run`, on
/// Adverb's device.
///
/// # Errors
/// The program failed or printed something else; with its output.
pub fn run(
    test: &str,
    size: usize,
    latency: bool,
    ends: &Ends,
    n: usize,
    tls: &str,
    adverb: bool,
) -> Result<Figures> {
    let end = |end: &PairEnd, more: &str| {
        let program = end.program(&words(format!("ucx_perftest {more}"))).env("UCX_TLS", tls);
        let program = if adverb { program } else { program.bare() };
        match (adverb, tls) {
            (true, _) => program.env("UCX_NET_DEVICES", format!("{}:1", end.device.dev)),
            (false, TCP) => program.env("UCX_NET_DEVICES", &end.interface),
            (false, _) => program,
        }
    };
    let client = format!("-t {test} -s {size} -n {n} -w {} -v -f", n / 10);
    let out = ends.run_two(end(&ends.server, ""), end(&ends.client, &client), LIMIT)?;
    let found = figures(&out.client.text, latency).filter(|_| both_ok(&out));
    found.ok_or_else(|| shown(&out))
}

/// Parses the output of `ucx_perftest -v -f`: a line of names and a line of values.
fn figures(text: &str, latency: bool) -> Option<Figures> {
    let mut lines = text.lines().skip_while(|l| !l.starts_with("iterations,"));
    let names: Vec<&str> = lines.next()?.split(',').collect();
    let values: Option<Vec<f64>> =
        lines.next()?.split(',').map(|v| v.trim().parse().ok()).collect();
    let values = values.filter(|v| v.len() == names.len())?;
    let value = |name: &str| names.iter().position(|n| *n == name).map(|at| values[at]);
    // Units: microseconds, and MiB per second.
    Some(match latency {
        true => Figures::Latency {
            median: value("50.0_percentile_lat")? * 1e-6,
            mean: value("overall_lat")? * 1e-6,
        },
        false => Figures::Stream {
            bytes: value("overall_bw")? * 1_048_576.0,
            messages: value("overall_mr")?,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_ucx_are_read_by_name() {
        let text = "[1795277860.1] [vm:1:0] perftest.c:405 UCX WARN something, else\n\
                    iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n\
                    1000,0.055,0.059,0.060,129.29,130.00,16946683,17000000\n";
        let latency = Figures::Latency { median: 0.055 * 1e-6, mean: 0.060 * 1e-6 };
        assert_eq!(figures(text, true), Some(latency));
        let stream = Figures::Stream { bytes: 130.0 * 1_048_576.0, messages: 17e6 };
        assert_eq!(figures(text, false), Some(stream));
        assert_eq!(figures("iterations,overall_bw\n1000\n", false), None);
        assert_eq!(figures("Failed to run test: Unsupported operation\n", true), None);
    }
}
