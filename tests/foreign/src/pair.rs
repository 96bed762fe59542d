//! A server and a client: when the server listens, how long each may run, and the output of both.

use std::time::{Duration, Instant};

use crate::Verdict;
use crate::process::{Finished, Program, Running, free_port};

/// Time limit for a server to listen.
const LISTEN_LIMIT: Duration = Duration::from_secs(60);
/// How long an end may run after the other has ended. A machine with other work may be slow.
const GRACE: Duration = Duration::from_secs(30);
/// How long a server may run after its client has failed. The server may wait for its client
/// forever.
const AFTER_FAILURE: Duration = Duration::from_secs(2);
/// Pause between two looks at both ends.
const TICK: Duration = Duration::from_millis(5);
/// Number of tries if a port was taken between choosing and binding.
const PORT_TRIES: usize = 3;
/// Stands for the port in the arguments of both ends.
const PORT: &str = "PORT";

/// The port space of connections (IBTA annex A11: the upper half of a service id).
pub const TCP: u64 = 0x106;
/// The port space of datagrams.
pub const UDP: u64 = 0x111;
/// The port space of InfiniBand service ids.
pub const IB: u64 = 0x13f;

/// How a server shows that it listens at its port.
#[derive(Clone, Copy, Debug)]
pub enum Listener {
    /// A TCP socket.
    Socket,
    /// An id of the connection manager in a port space, found by its abstract socket name.
    Id(u64),
    /// A function that waits for the server.
    By(fn(&mut Running, u16) -> Verdict),
}

impl Listener {
    /// Waits until the server listens.
    ///
    /// # Errors
    /// The server ends or the time is over before.
    pub fn wait(self, server: &mut Running, port: u16) -> Verdict {
        let space = match self {
            Self::Socket => return server.wait_for_listener(port, LISTEN_LIMIT),
            Self::By(wait) => return wait(server, port),
            Self::Id(space) => space,
        };
        let name = format!("-cm-{:x}-", space << 16 | u64::from(port));
        let listens =
            || std::fs::read_to_string("/proc/net/unix").is_ok_and(|names| names.contains(&name));
        server.wait_until(&format!("listen with an id at port {port}"), LISTEN_LIMIT, |_| listens())
    }
}

/// A server and a client. The word `PORT` in the arguments of both stands for the port.
#[derive(Clone, Debug)]
pub struct Pair {
    server: Program,
    client: Program,
    /// Appended to the client's arguments.
    host: Option<String>,
    listener: Listener,
    port: Option<u16>,
    limit: Duration,
    ended_well: fn(&Finished) -> bool,
    state: fn() -> String,
}

/// The end of both processes.
#[derive(Clone, Debug)]
pub struct PairOutcome {
    /// The process that was started first.
    pub server: Finished,
    /// The process that connected.
    pub client: Finished,
}

impl Pair {
    /// Both ends run `program` with the same arguments and `-p PORT`, as in perftest and the
    /// ping-pongs. The client gets the server's address, 127.0.0.1, as its last argument.
    pub fn new<S: AsRef<str>>(program: &str, args: &[S], limit: Duration) -> Self {
        let program = Program::new(program, args);
        Self::of(program.clone(), program, limit)
    }

    /// Like [`new`](Self::new), from two separate command lines.
    pub fn of(server: Program, client: Program, limit: Duration) -> Self {
        let with_port = |program: Program| program.arg("-p").arg(PORT);
        let pair = Self::by_address(with_port(server), with_port(client), limit);
        Self { listener: Listener::Socket, ..pair }.host("127.0.0.1")
    }

    /// Two command lines that name port and address. The server listens with an id of the
    /// connection manager, in the port space of connections.
    pub fn by_address(server: Program, client: Program, limit: Duration) -> Self {
        let (listener, ended_well) = (Listener::Id(TCP), Finished::ok);
        Self {
            server,
            client,
            host: None,
            listener,
            port: None,
            limit,
            ended_well,
            state: String::new,
        }
    }

    /// The client gets this address as its last argument.
    #[must_use]
    pub fn host(mut self, address: &str) -> Self {
        self.host = Some(address.to_string());
        self
    }

    /// The server shows in this way that it listens.
    #[must_use]
    pub fn listener(mut self, listener: Listener) -> Self {
        self.listener = listener;
        self
    }

    /// Uses this port instead of a free one.
    #[must_use]
    pub fn at_port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// Judges the end of the client, instead of the exit status alone.
    #[must_use]
    pub fn ended_well(mut self, judge: fn(&Finished) -> bool) -> Self {
        self.ended_well = judge;
        self
    }

    /// What the report adds if the server does not end after its client.
    #[must_use]
    pub fn state(mut self, state: fn() -> String) -> Self {
        self.state = state;
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

    /// Starts the server and waits until the server listens. Returns the server, and the client to
    /// be started.
    ///
    /// # Errors
    /// The server cannot be started, or never listens.
    pub fn listening(&self) -> Result<(Running, Program), String> {
        for again in (0..PORT_TRIES).rev() {
            let port = self.port.map_or_else(free_port, Ok)?;
            let mut server = self.server.at_port(PORT, port).start()?;
            match self.listener.wait(&mut server, port) {
                Ok(()) => {
                    let client = self.client.at_port(PORT, port);
                    return Ok((
                        server,
                        self.host.iter().fold(client, |client, host| client.arg(host)),
                    ));
                }
                Err(why) => {
                    let taken = ["Address already in use", "Couldn't listen to port"];
                    if again == 0 || !taken.iter().any(|words| why.contains(words)) {
                        return Err(format!("the server does not listen: {why}"));
                    }
                }
            }
        }
        Err("no try".to_string())
    }

    /// Runs both processes to their end or the time limit.
    ///
    /// # Errors
    /// An end cannot be started, or the server never listens. The caller judges the exit statuses.
    pub fn run(&self) -> Result<PairOutcome, String> {
        let (server, client) = self.listening()?;
        Ok(self.finish(server, client.start()?))
    }

    /// Runs both processes and requires their success.
    ///
    /// # Errors
    /// Both command lines with their output.
    pub fn run_ok(&self) -> Result<PairOutcome, String> {
        let outcome = self.run()?;
        outcome.require(outcome.server.ok() && (self.ended_well)(&outcome.client))?;
        Ok(outcome)
    }

    /// Waits for the end of both processes, at most until the limit. An end without its peer may
    /// wait forever, and gets a shorter time.
    pub fn finish(&self, mut server: Running, mut client: Running) -> PairOutcome {
        let mut alone: Option<Instant> = None;
        wait_until(self.limit, || {
            if alone.is_none() && server.ended() {
                alone = Some(Instant::now());
            }
            client.ended() || alone.is_some_and(|since| since.elapsed() > GRACE)
        });
        let client = client.wait(Duration::ZERO);
        let grace = if (self.ended_well)(&client) { GRACE } else { AFTER_FAILURE };
        wait_until(grace, || server.ended());
        let state = if grace == GRACE && !server.ended() { (self.state)() } else { String::new() };
        let mut server = server.wait(Duration::ZERO);
        server.text += &state;
        PairOutcome { server, client }
    }
}

/// Looks every few milliseconds until a condition holds, or the time is over.
fn wait_until(limit: Duration, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + limit;
    while !done() && Instant::now() < end {
        std::thread::sleep(TICK);
    }
}

impl PairOutcome {
    /// Command lines, statuses and output of both processes.
    pub fn describe(&self) -> String {
        format!("client: {}\nserver: {}", self.client.describe(), self.server.describe())
    }

    /// Fails with the output of both unless the condition holds.
    ///
    /// # Errors
    /// Command lines, statuses and output of both processes.
    pub fn require(&self, holds: bool) -> Verdict {
        if holds { Ok(()) } else { Err(self.describe()) }
    }

    /// Fails with the output of both unless each end has all these words, and none of the `bad`.
    ///
    /// # Errors
    /// The missing or bad words, and the output of both processes.
    pub fn require_of_both(&self, words: &[&str], bad: &[&str]) -> Verdict {
        for text in [&self.server.text, &self.client.text] {
            if let Some(missing) = words.iter().find(|words| !text.contains(**words)) {
                return Err(format!("no {missing:?}:\n{}", self.describe()));
            }
            if let Some(bad) = bad.iter().find(|words| text.contains(**words)) {
                return Err(format!("{bad:?} in the output:\n{}", self.describe()));
            }
        }
        Ok(())
    }
}
