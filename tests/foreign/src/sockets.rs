//! Programs of plain sockets under `adverb run --sockets`, with the librdmacm of the distribution
//! or of a directory.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::process::{Finished, Program, Running, free_port, listens, words};
use crate::{Verdict, require, service};

/// Time limit of a program.
pub const LIMIT: Duration = Duration::from_secs(90);
const LISTEN_LIMIT: Duration = Duration::from_secs(60);
/// The port space of connections.
const TCP: u64 = 0x106;
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
pub struct Way {
    path: &'static str,
    flag: String,
}

impl Way {
    /// With the distribution's librdmacm.
    pub fn distribution(path: &'static str) -> Self {
        Self { path, flag: "--sockets".into() }
    }

    /// With the librdmacm of a directory.
    pub fn directory(path: &'static str, directory: &Path) -> Self {
        Self { path, flag: format!("--sockets={}", directory.display()) }
    }

    /// A command line; `PORT` is replaced.
    pub fn program(&self, line: &str, port: u16) -> Program {
        let line = words(line.replace("PORT", &port.to_string()));
        Program::new(&line[0], &line[1..]).flag(&self.flag).env("ADVERB_PATH", self.path)
    }

    /// Starts a server that listens by the connection manager, and not by TCP.
    ///
    /// # Errors
    /// The server ends, or does not listen in time.
    pub fn listening(&self, line: &str, port: u16) -> Result<Running, String> {
        let mut server = self.program(line, port).start()?;
        service::wait(&mut server, TCP, port, LISTEN_LIMIT)?;
        require!(!listens(port), "it listens by TCP: {}", server.text());
        Ok(server)
    }

    /// Checks that all data of the iperf3 client in `streams` streams reached the server, by the
    /// output of both.
    ///
    /// # Errors
    /// The output of both.
    pub fn iperf3(&self, streams: usize, mib: u64) -> Verdict {
        let port = free_port()?;
        let server = self.listening("iperf3 -s -1 -B 127.0.0.1 -p PORT", port)?;
        let line = format!("iperf3 -J -c 127.0.0.1 -p PORT -P {streams} -n {mib}M");
        let client = self.program(&line, port).run(LIMIT)?;
        let server = server.wait(if client.ok() { LIMIT } else { Duration::from_secs(2) });
        require!(client.ok() && server.ok(), "{}", both(&server, &client));
        let got =
            client.text.rsplit_once("\"sum_received\"").and_then(|(_, rest)| rest.split_once("\"bytes\":"));
        let got = got.and_then(|(_, rest)| rest.split(',').next()?.trim().parse::<u64>().ok());
        require!(
            got >= Some((mib << 20) - streams as u64 * UNREAD),
            "{got:?} bytes came: {}",
            both(&server, &client)
        );
        Ok(())
    }

    /// Checks that a store returns the stored values, over several connections at once, and ends in
    /// order.
    ///
    /// # Errors
    /// The output of server and client.
    pub fn store(&self, store: Store, connections: usize) -> Verdict {
        let port = free_port()?;
        let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("data/sockets_store.py");
        let mut server = self.listening(store.line(), port)?;
        let line = format!("python3 {} {} PORT {connections}", script.display(), store.name());
        let client = self.program(&line, port).run(LIMIT)?;
        // The server runs until a signal ends it in order. The server notices the signal at the end
        // of a wait.
        if client.ok() {
            let told = Command::new("kill").args(["-TERM", &server.pid().to_string()]).status();
            require!(told.is_ok_and(|status| status.success()), "no signal: {}", server.text());
        } else {
            server.kill_hard();
        }
        let server = server.wait(LIMIT);
        require!(server.ok(), "{}", both(&server, &client));
        require!(client.ok() && client.text.contains("ok "), "{}", both(&server, &client));
        Ok(())
    }
}

/// The end of both, with their output.
pub fn both(server: &Finished, client: &Finished) -> String {
    format!("client: {}\nserver: {}", client.describe(), server.describe())
}
