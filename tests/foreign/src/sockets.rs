//! Programs of plain sockets under `adverb run --sockets`, with the librdmacm of the distribution
//! or of a directory.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::pair::{Listener, Pair, PairOutcome, TCP};
use crate::process::{Program, Running, listens};
use crate::scratch::Scratch;
use crate::{Verdict, require};

/// Time limit of a program.
pub const LIMIT: Duration = Duration::from_secs(90);
/// Bytes of each stream that iperf3's server may leave unread. The server stops reading when the
/// control connection says that the test is over.
const UNREAD: u64 = 1 << 20;

/// A key-value store: programs put values in and get them back.
#[derive(Clone, Copy, Debug)]
pub struct Store {
    /// Its name, for the client.
    pub name: &'static str,
    line: &'static str,
}

/// Redis, and memcached with two threads.
pub const STORES: [Store; 2] = [
    Store {
        name: "redis",
        line: "redis-server --save --bind 127.0.0.1 --port PORT --appendonly no",
    },
    Store { name: "memcached", line: "memcached -u root -l 127.0.0.1 -p PORT -U 0 -t 2 -I 2m" },
];

/// The path of packets, and the librdmacm with the rsockets.
#[derive(Clone, Debug)]
pub struct SocketPath {
    path: &'static str,
    flag: String,
}

impl SocketPath {
    /// With the distribution's librdmacm.
    pub fn distribution(path: &'static str) -> Self {
        Self { path, flag: "--sockets".into() }
    }

    /// With the librdmacm of a directory.
    pub fn directory(path: &'static str, directory: &Path) -> Self {
        Self { path, flag: format!("--sockets={}", directory.display()) }
    }

    /// A command line under `adverb run --sockets`.
    pub fn program(&self, line: &str) -> Program {
        Program::of_line(line).flag(&self.flag).env("ADVERB_PATH", self.path)
    }

    /// A server and a client; the word `PORT` stands for the port. The server listens by the
    /// connection manager, and not by TCP.
    pub fn pair(&self, server: &str, client: &str) -> Pair {
        Pair::by_address(self.program(server), self.program(client), LIMIT)
            .listener(Listener::By(by_id_alone))
    }

    /// Checks that all data of the iperf3 client in `streams` streams reached the server, by the
    /// output of both.
    ///
    /// # Errors
    /// The output of both.
    pub fn iperf3(&self, streams: usize, mib: u64) -> Verdict {
        let client = format!("iperf3 -J -c 127.0.0.1 -p PORT -P {streams} -n {mib}M");
        let outcome = self.pair("iperf3 -s -1 -B 127.0.0.1 -p PORT", &client).run_ok()?;
        let got = outcome.client.text.rsplit_once("\"sum_received\"");
        let got = got.and_then(|(_, rest)| rest.split_once("\"bytes\":"));
        let got = got.and_then(|(_, rest)| rest.split(',').next()?.trim().parse::<u64>().ok());
        let enough = got >= Some((mib << 20) - streams as u64 * UNREAD);
        require!(enough, "{got:?} bytes came: {}", outcome.describe());
        Ok(())
    }

    /// Checks that a store returns the stored values, over several connections at once, and ends in
    /// order.
    ///
    /// # Errors
    /// The output of server and client.
    pub fn store(&self, store: Store, connections: usize) -> Verdict {
        let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("data/sockets_store.py");
        let client = format!("python3 {} {} PORT {connections}", script.display(), store.name);
        let (mut server, client) = self.pair(store.line, &client).listening()?;
        let client = client.run(LIMIT)?;
        // The server runs until a signal ends it in order. The server notices the signal at the end
        // of a wait.
        if client.ok() {
            let told = Command::new("kill").args(["-TERM", &server.pid().to_string()]).status();
            require!(told.is_ok_and(|status| status.success()), "no signal: {}", server.text());
        } else {
            server.kill_hard();
        }
        let outcome = PairOutcome { server: server.wait(LIMIT), client };
        let fine =
            outcome.server.ok() && outcome.client.ok() && outcome.client.text.contains("ok ");
        outcome.require(fine)
    }
}

/// Streams of rsockets, of these sizes and verified (`-T v`), between two programs that `pair`
/// makes of their lines.
///
/// # Errors
/// The output of both.
pub fn streams(
    line: &str,
    sizes: &[u32],
    pair: impl Fn(&str, &str) -> Result<Pair, String>,
) -> Verdict {
    for size in sizes {
        let line = format!("{line} -p PORT -S {size} -I 10 -C 20 -T v");
        let outcome = pair(&line, &format!("{line} -s 127.0.0.1"))?.run_ok()?;
        outcome.client.require_words(&["custom"])?;
    }
    Ok(())
}

/// A file is copied between two programs that `pair` makes of their lines.
///
/// # Errors
/// The output of both, or what hinders the copy.
pub fn rcopy(pair: impl Fn(&str, &str) -> Result<Pair, String>) -> Verdict {
    let scratch = Scratch::new("rcopy")?;
    let bytes: Vec<u8> =
        (0..3_000_001_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(scratch.file("in"), &bytes).map_err(|e| e.to_string())?;
    let line = format!("rcopy {} 127.0.0.1:{} -p PORT", scratch.path("in"), scratch.path("out"));
    let (mut server, client) = pair("rcopy -p PORT", &line)?.listening()?;
    let client = client.run(LIMIT)?;
    // The server waits for further clients forever.
    server.kill_hard();
    let outcome = PairOutcome { server: server.wait(Duration::from_secs(5)), client };
    let got = std::fs::read(scratch.file("out")).unwrap_or_default();
    outcome.require(outcome.client.ok() && got == bytes)
}

fn by_id_alone(server: &mut Running, port: u16) -> Verdict {
    Listener::Id(TCP).wait(server, port)?;
    require!(!listens(port), "it listens by TCP: {}", server.text());
    Ok(())
}
