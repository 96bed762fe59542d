//! The two ends of a transfer.
//!
//! The stream goes through a ring of [`SLOTS`] messages at either end. An end that has filled a
//! slot, or has taken and checked a slot, sends immediate data with the message's number. So a slot
//! is filled again only after it was checked. With Write and Send the client has the stream, with
//! Read the server has it. The client always moves the bytes.
use std::fmt;
use std::io::Read;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use adverb::connect::{Listener, Options, connect_with};
use adverb::{Buffer, Completion, Qp, RemoteBuf, WcOpcode};
use adverb_bench::Result as Text;

use crate::pattern;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Bytes of a message, and limit of outstanding messages.
const MESSAGE: u64 = 1 << 20;
const SLOTS: u64 = 16;
/// Longest wait for a completion. After a longer silence the peer's queue pair has failed.
const HANG_LIMIT: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Write,
    Send,
    Read,
}

impl Verb {
    pub(crate) const ALL: [Verb; 3] = [Verb::Write, Verb::Send, Verb::Read];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Verb::Write => "write",
            Verb::Send => "send",
            Verb::Read => "read",
        }
    }
    pub(crate) fn named(name: &str) -> Text<Verb> {
        let found = Verb::ALL.into_iter().find(|v| v.name() == name);
        found.ok_or_else(|| format!("{name}: write, send or read"))
    }
}

/// Result of a transfer, at one end or both.
#[derive(Debug)]
pub(crate) struct TransferOutcome {
    pub(crate) seconds: f64,
    /// Packets with a fault.
    pub(crate) harmed: u64,
}

impl TransferOutcome {
    pub(crate) fn parse(line: &str) -> Text<TransferOutcome> {
        let mut words = line.split_whitespace();
        let mut next = || words.next().ok_or_else(|| format!("not an outcome: {line:?}"));
        let seconds = next()?.parse().map_err(|e| format!("{line:?}: {e}"))?;
        let harmed =
            words.nth(1).ok_or("no count")?.parse().map_err(|e| format!("{line:?}: {e}"))?;
        Ok(TransferOutcome { seconds, harmed })
    }
}

impl fmt::Display for TransferOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} s, {} packets harmed", self.seconds, self.harmed)
    }
}

/// One end: its ring, and the connection to the other end.
struct TransferEnd {
    end: adverb::testing::Endpoint,
    ring: Buffer,
    scratch: Vec<u8>,
    messages: u64,
}

impl TransferEnd {
    fn new(mib: u64) -> Result<TransferEnd> {
        let depth = 4 * SLOTS as u32;
        let end = adverb::testing::Endpoint::new(|qp| qp.max_send_wr(depth).max_recv_wr(depth))?;
        let ring = end.buffer((SLOTS * MESSAGE) as usize)?;
        Ok(TransferEnd { end, ring, scratch: vec![0; MESSAGE as usize], messages: mib })
    }

    /// The slot of a message.
    fn place(message: u64) -> std::ops::Range<usize> {
        let at = (message % SLOTS * MESSAGE) as usize;
        at..at + MESSAGE as usize
    }

    fn fill(&mut self, message: u64) -> Result<()> {
        pattern::fill(message * MESSAGE, &mut self.scratch);
        Ok(self.ring.write(Self::place(message).start, &self.scratch)?)
    }

    /// Checks every byte of a message and clears the slot.
    fn check(&mut self, message: u64) -> Result<()> {
        let at = Self::place(message).start;
        self.ring.read(at, &mut self.scratch)?;
        if let Some(wrong) = pattern::first_wrong(message * MESSAGE, &self.scratch) {
            return Err(format!("byte {wrong} of the stream is wrong").into());
        }
        self.scratch.fill(0);
        Ok(self.ring.write(at, &self.scratch)?)
    }

    fn qp(&self) -> &Qp {
        &self.end.qp
    }
    fn next(&self) -> Result<Completion> {
        Ok(self.end.cq.wait(HANG_LIMIT)?.ok()?)
    }

    /// Posts the receive for one notice; for the payload of a Send, the receive of the message.
    fn await_notice(&self, verb: Verb, message: u64, serves: bool) -> Result<()> {
        if verb == Verb::Send && serves {
            return Ok(self.qp().recv(self.ring.slice(Self::place(message))).id(message).post()?);
        }
        Ok(self.qp().recv(()).post()?)
    }

    /// Tells the other end that a message is ready, or taken.
    fn notify(&self, message: u64) -> Result<()> {
        Ok(self.qp().send_imm((), message as u32).signaled(false).post()?)
    }

    /// The end that receives the stream by Write or Send.
    fn sink(&mut self, verb: Verb) -> Result<()> {
        for message in 0..self.messages {
            let got = self.next()?;
            let order = got.imm() == Some(message as u32);
            if !got.is_recv() || !order {
                return Err(format!("message {message} is due, there came {got:?}").into());
            }
            self.check(message)?;
            self.await_notice(verb, message + SLOTS, true)?;
            self.notify(message)?;
        }
        Ok(())
    }

    /// The end that moves its own stream to the other end.
    fn source(&mut self, verb: Verb, remote: RemoteBuf) -> Result<()> {
        let (mut sent, mut done, mut taken) = (0, 0, 0);
        while taken < self.messages || done < self.messages {
            while sent < self.messages && sent < taken.min(done) + SLOTS {
                self.fill(sent)?;
                let slice = self.ring.slice(Self::place(sent));
                let to = remote.slice(Self::place(sent));
                match verb {
                    Verb::Send => self.qp().send_imm(slice, sent as u32).post()?,
                    _ => self.qp().write_imm(slice, to, sent as u32).post()?,
                }
                sent += 1;
            }
            let got = self.next()?;
            if got.is_recv() {
                self.await_notice(verb, 0, false)?;
                taken += 1;
            } else {
                done += 1;
            }
        }
        Ok(())
    }

    /// The end that has the stream and lets the other end read it.
    fn shelf(&mut self, verb: Verb) -> Result<()> {
        for message in 0..self.messages + SLOTS {
            if message >= SLOTS {
                let got = self.next()?;
                self.await_notice(verb, 0, true)?;
                if got.imm() != Some((message - SLOTS) as u32) {
                    return Err(
                        format!("message {} was to be taken: {got:?}", message - SLOTS).into()
                    );
                }
            }
            if message < self.messages {
                self.fill(message)?;
                self.notify(message)?;
            }
        }
        Ok(())
    }

    /// The end that reads the other end's stream.
    fn reader(&mut self, verb: Verb, remote: RemoteBuf) -> Result<()> {
        let (mut asked, mut read) = (0, 0);
        while read < self.messages {
            let got = self.next()?;
            if got.is_recv() {
                self.await_notice(verb, 0, false)?;
                let place = Self::place(asked);
                let from = remote.slice(place.clone());
                self.qp().read(self.ring.slice(place), from).id(asked).post()?;
                asked += 1;
            } else if got.opcode() == WcOpcode::RdmaRead {
                if got.wr_id() != read {
                    return Err(format!("READ {read} is due, there came {got:?}").into());
                }
                self.check(read)?;
                self.notify(read)?;
                read += 1;
            }
        }
        Ok(())
    }

    fn outcome(&self, started: Instant) -> TransferOutcome {
        let harmed = self.end.context.stats().packets_harmed;
        TransferOutcome { seconds: started.elapsed().as_secs_f64(), harmed }
    }
}

/// Prints the result, and stays until its input ends. The other end may still wait for a lost
/// answer.
fn part(outcome: &TransferOutcome) -> Result<()> {
    println!("{outcome}");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// The listening process.
pub(crate) fn serve(verb: Verb, mib: u64) -> Result<()> {
    let listener = Listener::bind("127.0.0.1:0")?;
    let mut end = TransferEnd::new(mib)?;
    for message in 0..SLOTS {
        end.await_notice(verb, message, true)?;
    }
    println!("{}", listener.local_addr()?);
    let told = Options { timeout: HANG_LIMIT, ..Options::private(end.ring.remote().to_bytes()) };
    let _connection = listener.accept()?.accept_with(end.qp(), &told)?;
    let started = Instant::now();
    match verb {
        Verb::Read => end.shelf(verb)?,
        _ => end.sink(verb)?,
    }
    part(&end.outcome(started))
}

/// The connecting process.
pub(crate) fn call(verb: Verb, mib: u64, address: &str) -> Result<()> {
    let address: SocketAddr = address.parse()?;
    let mut end = TransferEnd::new(mib)?;
    for _ in 0..2 * SLOTS {
        end.await_notice(verb, 0, false)?;
    }
    // Faults also affect the MADs of the connection, which are repeated every five seconds.
    let options = Options { timeout: HANG_LIMIT, ..Options::default() };
    let connection = connect_with(address, end.qp(), &options)?;
    let remote = RemoteBuf::from_bytes(&connection.peer().private_prefix());
    let started = Instant::now();
    match verb {
        Verb::Read => end.reader(verb, remote)?,
        _ => end.source(verb, remote)?,
    }
    part(&end.outcome(started))
}
