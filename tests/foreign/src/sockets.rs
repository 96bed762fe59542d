//! Programs of plain sockets under `adverb run --sockets`, with the librdmacm of the distribution
//! or of a directory.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::pair::{Listener, Pair, PairOutcome, TCP};
use crate::process::{Program, Running, listens};
use crate::{Verdict, require};

/// Time limit of a program.
pub const LIMIT: Duration = Duration::from_secs(90);
/// Bytes of each stream that iperf3's server may leave unread. The server stops reading when the
/// control connection says that the test is over.
const UNREAD: u64 = 1 << 20;

/// A key-value store: programs put values in and get them back.
#[derive(Clone, Copy, Debug)]
pub enum Store {
    /// Redis.
    Redis,
    /// memcached, with two threads.
    Memcached,
}

impl Store {
    fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Memcached => "memcached",
        }
    }

    fn line(self) -> &'static str {
        match self {
            Self::Redis => "redis-server --save --bind 127.0.0.1 --port PORT --appendonly no",
            Self::Memcached => "memcached -u root -l 127.0.0.1 -p PORT -U 0 -t 2 -I 2m",
        }
    }
}

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
        let client = format!("python3 {} {} PORT {connections}", script.display(), store.name());
        let (mut server, client) = self.pair(store.line(), &client).listening()?;
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
        require!(fine, "{}", outcome.describe());
        Ok(())
    }
}

fn by_id_alone(server: &mut Running, port: u16) -> Verdict {
    Listener::Id(TCP).wait(server, port)?;
    require!(!listens(port), "it listens by TCP: {}", server.text());
    Ok(())
}
