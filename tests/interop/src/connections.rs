//! Programs that connect by address and port, over the kernel's connection manager in the machine
//! and Adverb's on the host.

use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use adverb_foreign::pair::Outcome;
use adverb_foreign::process::{Program, Running, words};

use crate::ends::{End, Family};
use crate::pair::{Ends, LISTEN_SECONDS};
use crate::vm;

/// Command lines of a server and a client. `SERVER` and `PORT` stand for the server's address and
/// port.
#[derive(Clone, Copy, Debug)]
pub struct Lines {
    /// The listening program.
    pub server: &'static str,
    /// The connecting program.
    pub client: &'static str,
    /// The port, for a program without an option for it.
    pub port: Option<u16>,
}

/// A port, unused by earlier pairs.
pub fn next_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(24_000);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Lines {
    /// Starts the server and waits until the server listens. Returns the server, and the client to
    /// be started.
    ///
    /// # Errors
    /// The server cannot be started or does not listen.
    pub fn start(self, ends: Ends, family: Family) -> Result<(Running, Program), String> {
        let port = self.port.unwrap_or_else(next_port);
        let program = |end: End, line: &str| {
            let line = line.replace("SERVER", ends.server.address(family)).replace("PORT", &port.to_string());
            let line = words(line);
            end.program(&line[0], &line[1..])
        };
        let mut server = program(ends.server, self.server).start()?;
        let listens = match ends.server {
            End::Adverb => await_name(port, &mut server),
            End::Rxe => vm::await_id(port, LISTEN_SECONDS),
        };
        match listens {
            Ok(()) => Ok((server, program(ends.client, self.client))),
            Err(why) => Err(format!("the server does not listen: {why}\n{}", server.text())),
        }
    }

    /// Runs both to their end or the limit, and requires status 0 of both.
    ///
    /// # Errors
    /// Both command lines with their output.
    pub fn run_ok(self, ends: Ends, family: Family, limit: Duration) -> Result<Outcome, String> {
        let (server, client) = self.start(ends, family)?;
        let outcome = ends.finish(server, client.start()?, limit);
        if outcome.server.ok() && outcome.client.ok() { Ok(outcome) } else { Err(outcome.describe()) }
    }
}

/// Waits for a listener of Adverb. The kernel lists its abstract name, with port space and port at
/// the end. Port spaces differ in the digits before the last four.
fn await_name(port: u16, server: &mut Running) -> Result<(), String> {
    let end = Instant::now() + Duration::from_secs(LISTEN_SECONDS.into());
    let digits = format!("{port:04x}-");
    loop {
        let names = std::fs::read_to_string("/proc/net/unix").map_err(|e| format!("/proc/net/unix: {e}"))?;
        let listens = |line: &str| line.split_once("-cm-").is_some_and(|(_, id)| id.contains(&digits));
        if names.lines().any(listens) {
            return Ok(());
        }
        if server.ended() || Instant::now() > end {
            return Err("it has no name".into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
