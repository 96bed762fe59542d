//! Programs of plain sockets under `adverb run --sockets`, with a librdmacm of the distribution or
//! of a directory.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::process::{Finished, Program, Running, free_port, listens, words};
use crate::{Verdict, require, service};

/// How long a program may take.
pub const LIMIT: Duration = Duration::from_secs(90);
const LISTEN_LIMIT: Duration = Duration::from_secs(60);
/// The port space of connections.
const TCP: u64 = 0x106;
/// What of each stream iperf3's server may leave: it reads no more when the other connection says
/// that the test is over.
const UNREAD: u64 = 1 << 20;

/// A store that programs put values into and get them back from.
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

/// Where packets go and whose rsockets carry them.
#[derive(Clone, Debug)]
pub struct Way {
    path: &'static str,
    flag: String,
}

impl Way {
    /// The distribution's librdmacm.
    pub fn distribution(path: &'static str) -> Self {
        Self { path, flag: "--sockets".into() }
    }

    /// That of a directory.
    pub fn directory(path: &'static str, directory: &Path) -> Self {
        Self { path, flag: format!("--sockets={}", directory.display()) }
    }

    /// A command line, with a port for `PORT`.
    pub fn program(&self, line: &str, port: u16) -> Program {
        let line = words(line.replace("PORT", &port.to_string()));
        Program::new(&line[0], &line[1..]).flag(&self.flag).env("ADVERB_PATH", self.path)
    }

    /// A server that listens by the connection manager, and not by TCP.
    ///
    /// # Errors
    /// When it ends, or does not listen in time.
    pub fn listening(&self, line: &str, port: u16) -> Result<Running, String> {
        let mut server = self.program(line, port).start()?;
        service::wait(&mut server, TCP, port, LISTEN_LIMIT)?;
        require!(!listens(port), "it listens by TCP: {}", server.text());
        Ok(server)
    }

    /// What the client of iperf3 sent in this number of streams came to the server, by the words of
    /// both.
    ///
    /// # Errors
    /// What both said.
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

    /// A store gives back what was put into it, by several connections at once, and ends in order.
    ///
    /// # Errors
    /// What server and client said.
    pub fn store(&self, store: Store, connections: usize) -> Verdict {
        let port = free_port()?;
        let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("data/sockets_store.py");
        let mut server = self.listening(store.line(), port)?;
        let line = format!("python3 {} {} PORT {connections}", script.display(), store.name());
        let client = self.program(&line, port).run(LIMIT)?;
        // It serves until it is told to end, which it does in order: it hears of the signal at the
        // end of a wait.
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

/// How both ended, with their output.
pub fn both(server: &Finished, client: &Finished) -> String {
    format!("client: {}\nserver: {}", client.describe(), server.describe())
}
