//! A server at one end and a client at the other.

use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use adverb_foreign::pair::Outcome;
use adverb_foreign::process::{Program, Running};

use crate::ends::{End, Family};
use crate::vm;

/// Time limit for a server to listen; emulation is slow.
pub(crate) const LISTEN_SECONDS: u32 = 40;

/// How long an end may run after the other has ended.
const GRACE: Duration = Duration::from_secs(30);

/// Checks every few milliseconds until a condition holds, or the time is over.
fn wait_until(limit: Duration, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + limit;
    while !done() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The sides of server and client.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    /// Started first.
    pub server: End,
    /// Connects, and is the requester if the program has a requester.
    pub client: End,
}

/// Adverb requests, rxe responds.
pub const TO_RXE: Ends = Ends { server: End::Rxe, client: End::Adverb };
/// Rxe requests, Adverb responds.
pub const FROM_RXE: Ends = Ends { server: End::Adverb, client: End::Rxe };
/// Both ends are rxe, in one machine: the reference for Adverb's results.
pub const REFERENCE: Ends = Ends { server: End::Rxe, client: End::Rxe };

impl Ends {
    /// A name like `adverb_to_rxe`, requester first.
    pub fn name(self) -> String {
        format!("{}_to_{}", self.client, self.server)
    }

    /// Runs both programs to their end or the limit. Both get `-p PORT`, and the client gets the
    /// server's IPv4 address. The programs exchange queue pair numbers over this address, with any
    /// GIDs.
    ///
    /// # Errors
    /// An end cannot be started, or the server never listens. The caller judges the exit statuses.
    pub fn run(
        self,
        program: impl Fn(End) -> Result<Program, String>,
        limit: Duration,
    ) -> Result<Outcome, String> {
        // Each pair has its own port. No other program uses ports in the namespace or the machine.
        static NEXT_PORT: AtomicU16 = AtomicU16::new(20_000);
        let port = NEXT_PORT.fetch_add(1, Ordering::Relaxed);
        let mut server = program(self.server)?.arg("-p").arg(port.to_string()).start()?;
        let listens = match self.server {
            End::Adverb => server.wait_for_listener(port, Duration::from_secs(LISTEN_SECONDS.into())),
            End::Rxe => vm::await_port(port, LISTEN_SECONDS),
        };
        if let Err(why) = listens {
            return Err(format!("the server does not listen: {why}\n{}", server.text()));
        }
        let client = program(self.client)?.arg("-p").arg(port.to_string());
        let client = client.arg(self.server.address(Family::V4)).start()?;
        Ok(self.finish(server, client, limit))
    }

    /// Waits for the end of both, at most until the limit.
    pub fn finish(self, mut server: Running, mut client: Running, limit: Duration) -> Outcome {
        // An end without its peer may wait forever.
        let mut alone: Option<Instant> = None;
        wait_until(limit, || {
            if alone.is_none() && server.ended() {
                alone = Some(Instant::now());
            }
            client.ended() || alone.is_some_and(|since| since.elapsed() > GRACE)
        });
        let client = client.wait(Duration::ZERO);
        wait_until(if client.ok() { GRACE } else { GRACE / 15 }, || server.ended());
        let state = if client.ok() && self.server == End::Rxe && !server.ended() {
            vm::state_of_rxe()
        } else {
            String::new()
        };
        let mut server = server.wait(Duration::ZERO);
        server.text += &state;
        Outcome { server, client }
    }

    /// Like [`run`](Self::run), and requires status 0 of both.
    ///
    /// # Errors
    /// Both command lines with their output.
    pub fn run_ok(
        self,
        program: impl Fn(End) -> Result<Program, String>,
        limit: Duration,
    ) -> Result<Outcome, String> {
        let outcome = self.run(program, limit)?;
        if outcome.server.ok() && outcome.client.ok() { Ok(outcome) } else { Err(outcome.describe()) }
    }
}
