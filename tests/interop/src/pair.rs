//! A server at one end and a client at the other.

use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use adverb_foreign::pair::{Listener, Pair, PairOutcome};
use adverb_foreign::process::{Program, Running};

use crate::ends::{Family, Side};
use crate::vm;

/// Time limit for a server in the machine to listen; emulation is slow.
const LISTEN_SECONDS: u32 = 40;

/// The sides of server and client.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    /// Started first.
    pub server: Side,
    /// Connects, and is the requester if the program has a requester.
    pub client: Side,
}

/// Adverb requests, rxe responds.
pub const TO_RXE: Ends = Ends { server: Side::Rxe, client: Side::Adverb };
/// Rxe requests, Adverb responds.
pub const FROM_RXE: Ends = Ends { server: Side::Adverb, client: Side::Rxe };
/// Both ends are rxe, in one machine: the reference for Adverb's results.
pub const REFERENCE: Ends = Ends { server: Side::Rxe, client: Side::Rxe };

impl Ends {
    /// A name like `adverb_to_rxe`, requester first.
    pub fn name(self) -> String {
        format!("{}_to_{}", self.client, self.server)
    }

    /// Runs both programs to their end or the limit, and requires status 0 of both. Both get `-p
    /// PORT`, and the client gets the server's IPv4 address. The programs exchange queue pair
    /// numbers over this address, with any GIDs.
    ///
    /// # Errors
    /// Both command lines with their output.
    pub fn run_ok(
        self,
        program: impl Fn(Side) -> Result<Program, String>,
        limit: Duration,
    ) -> Result<PairOutcome, String> {
        let pair = Pair::of(program(self.server)?, program(self.client)?, limit);
        let listener = match self.server {
            Side::Adverb => Listener::Socket,
            Side::Rxe => Listener::By(socket_in_the_machine),
        };
        let pair = pair.host(self.server.address(Family::V4)).listener(listener);
        self.with_state(pair.at_port(next_port())).run_ok()
    }

    /// A hang of a server in the machine is reported with the state of rxe.
    pub(crate) fn with_state(self, pair: Pair) -> Pair {
        if self.server == Side::Rxe { pair.state(vm::state_of_rxe) } else { pair }
    }
}

/// A port, unused by earlier pairs. No other program uses ports in the namespace or the machine.
pub fn next_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(20_000);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn socket_in_the_machine(_: &mut Running, port: u16) -> Result<(), String> {
    vm::await_port(port, LISTEN_SECONDS)
}

/// Waits until an id of the machine's connection manager listens at the port.
pub(crate) fn id_in_the_machine(_: &mut Running, port: u16) -> Result<(), String> {
    vm::await_id(port, LISTEN_SECONDS)
}
