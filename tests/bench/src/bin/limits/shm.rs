//! Memory shared by two processes: the limits of the same-host path, measured by `c/shm.c`.

use std::process::Command;
use std::time::Duration;

use adverb_bench::pair::Cpus;
use adverb_bench::{Result, cc};

/// Message sizes of the ping-pong.
const SPIN: [usize; 5] = [8, 64, 512, 4096, 65536];
/// Sizes of copies.
const COPY: [usize; 7] = [8, 64, 512, 4096, 65536, 1 << 20, 8 << 20];

/// A limit in seconds.
pub struct Limit {
    /// `shm_WHAT` or `shm_WHAT_BYTES`.
    pub name: String,
    what: &'static str,
    size: Option<usize>,
}

/// All limits of shared memory.
pub fn limits() -> Vec<Limit> {
    let sized = |what: &'static str, sizes: &[usize]| {
        let limit =
            |&size: &usize| Limit { name: format!("shm_{what}_{size}"), what, size: Some(size) };
        sizes.iter().map(limit).collect::<Vec<_>>()
    };
    let mut all = sized("spin", &SPIN);
    all.extend(sized("put", &COPY));
    all.extend(sized("get", &COPY));
    all.push(Limit { name: "shm_fadd".to_string(), what: "fadd", size: None });
    all
}

impl Limit {
    /// Seconds for half a round trip, for one copy, or for one operation.
    pub fn measure(&self, cpus: Cpus, time: Duration) -> Result<f64> {
        let mut command = Command::new(cc::program("shm")?);
        command.arg(self.what).args(self.size.map(|s| s.to_string()));
        command.args([time.as_millis().to_string(), cpus.here.to_string()]);
        if self.what == "spin" {
            command.arg(cpus.there.to_string());
        }
        let out = command.output().map_err(|e| format!("{command:?}: {e}"))?;
        let said = String::from_utf8_lossy(&out.stdout);
        let found = said.trim().parse().ok().filter(|_| out.status.success());
        found.ok_or_else(|| {
            format!("{command:?}: {}: {said}{}", out.status, String::from_utf8_lossy(&out.stderr))
        })
    }
}
