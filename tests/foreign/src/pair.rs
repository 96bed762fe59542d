//! A server and a client of the same program, as in perftest and the ping-pongs.

use std::time::Duration;

use crate::process::{Finished, Program, free_port};

/// Time limit for a server to listen.
const LISTEN_LIMIT: Duration = Duration::from_secs(60);

/// Number of tries if a port was taken between choosing and binding.
const PORT_TRIES: usize = 3;

/// A server and a client. Both get `-p PORT`, and the client gets the server's address as its last
/// argument.
#[derive(Clone, Debug)]
pub struct Pair {
    server: Program,
    client: Program,
    host: String,
    limit: Duration,
}

/// The end of both processes.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The process that was started first.
    pub server: Finished,
    /// The process that connected.
    pub client: Finished,
}

impl Pair {
    /// Both ends run `program` with the same arguments; the client connects to 127.0.0.1.
    pub fn new<S: AsRef<str>>(program: &str, args: &[S], limit: Duration) -> Self {
        let program = Program::new(program, args);
        Self { server: program.clone(), client: program, host: "127.0.0.1".to_string(), limit }
    }

    /// A pair from two separate command lines.
    pub fn of(server: Program, client: Program, limit: Duration) -> Self {
        Self { server, client, host: "127.0.0.1".to_string(), limit }
    }

    /// The client connects to this address instead of 127.0.0.1.
    #[must_use]
    pub fn host(mut self, address: &str) -> Self {
        self.host = address.to_string();
        self
    }

    /// Adds arguments to the server only.
    #[must_use]
    pub fn server_arg(mut self, arg: &str) -> Self {
        self.server = self.server.arg(arg);
        self
    }

    /// Gives the `adverb run` of both ends an option.
    #[must_use]
    pub fn option(mut self, name: &str, value: &str) -> Self {
        self.server = self.server.option(name, value);
        self.client = self.client.option(name, value);
        self
    }

    /// Sets an environment variable of both ends.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.server = self.server.env(name, value);
        self.client = self.client.env(name, value);
        self
    }

    /// Runs both processes to their end or the time limit.
    ///
    /// # Errors
    /// An end cannot be started, or the server never listens. The caller judges the exit statuses.
    pub fn run(&self) -> Result<Outcome, String> {
        let mut last = String::new();
        for _ in 0..PORT_TRIES {
            let port = free_port()?;
            let mut server = self.server.clone().arg("-p").arg(port.to_string()).start()?;
            if let Err(why) = server.wait_for_listener(port, LISTEN_LIMIT) {
                last = why;
                if last.contains("Address already in use") || last.contains("Couldn't listen to port") {
                    continue;
                }
                return Err(last);
            }
            let client = self.client.clone().arg("-p").arg(port.to_string()).arg(&self.host).start()?;
            let client = client.wait(self.limit);
            // The server ends by itself soon after its client. After a failed client the server may
            // never end.
            let server = if client.ok() {
                server.wait(self.limit + Duration::from_secs(5))
            } else {
                std::thread::sleep(Duration::from_millis(500));
                server.wait(Duration::ZERO)
            };
            return Ok(Outcome { server, client });
        }
        Err(last)
    }

    /// Runs both processes and requires status 0 of both.
    ///
    /// # Errors
    /// Both command lines with their output.
    pub fn run_ok(&self) -> Result<Outcome, String> {
        let outcome = self.run()?;
        if outcome.server.ok() && outcome.client.ok() {
            return Ok(outcome);
        }
        Err(outcome.describe())
    }
}

impl Outcome {
    /// Command lines, statuses and output of both processes.
    pub fn describe(&self) -> String {
        format!("client: {}\nserver: {}", self.client.describe(), self.server.describe())
    }
}
