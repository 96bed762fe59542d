//! The two ends of a pair of programs: where each of them runs, and on which device.

use std::time::Duration;

use adverb_foreign::device::DeviceArgs;
use adverb_foreign::pair::{Pair, PairOutcome};
use adverb_foreign::process::Program;

use crate::Result;
use crate::pair::Cpus;

/// One end of a pair.
#[derive(Clone, Debug)]
pub struct PairEnd {
    /// A command that starts the program: `taskset`, `ip netns exec`, or nothing.
    pub before: Vec<String>,
    /// Adverb's device.
    pub device: DeviceArgs,
    /// The network interface of the device.
    pub interface: String,
}

impl PairEnd {
    /// A program at this end, under `adverb run`.
    #[must_use]
    pub fn program(&self, argv: &[String]) -> Program {
        let mut all = self.before.iter().chain(argv).cloned();
        let name = all.next().unwrap_or_default();
        Program::new(name, &all.collect::<Vec<_>>())
    }
}

/// Both ends.
#[derive(Clone, Debug)]
pub struct Ends {
    /// The end that starts first.
    pub server: PairEnd,
    /// The end that connects.
    pub client: PairEnd,
    /// The server's address.
    pub host: String,
}

impl Ends {
    /// Both ends on the loopback interface.
    #[must_use]
    pub fn loopback(device: &DeviceArgs) -> Self {
        let end =
            PairEnd { before: Vec::new(), device: device.clone(), interface: "lo".to_string() };
        Self { server: end.clone(), client: end, host: "127.0.0.1".to_string() }
    }

    /// The same ends, each kept on its processor.
    #[must_use]
    pub fn pinned(&self, cpus: Cpus) -> Self {
        let mut ends = self.clone();
        for (end, cpu) in [(&mut ends.server, cpus.there), (&mut ends.client, cpus.here)] {
            end.before.extend(["taskset".to_string(), "-c".to_string(), cpu.to_string()]);
        }
        ends
    }

    /// Runs the program of each end.
    ///
    /// # Errors
    /// An end cannot be started, or the server never listens.
    pub fn run(
        &self,
        program: impl Fn(&PairEnd) -> Program,
        limit: Duration,
    ) -> Result<PairOutcome> {
        self.run_two(program(&self.server), program(&self.client), limit)
    }

    /// Runs a server and a client.
    ///
    /// # Errors
    /// An end cannot be started, or the server never listens.
    pub fn run_two(
        &self,
        server: Program,
        client: Program,
        limit: Duration,
    ) -> Result<PairOutcome> {
        Pair::of(server, client, limit).host(&self.host).run()
    }
}
