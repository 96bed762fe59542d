//! Programs that connect by address and port, over the kernel's connection manager in the machine
//! and Adverb's on the host.

use std::time::Duration;

use adverb_foreign::pair::{Listener, Pair};
use adverb_foreign::process::words;

use crate::ends::{Family, Side};
use crate::pair::{Ends, id_in_the_machine, next_port};

/// Command lines of a server and a client. `SERVER` and `PORT` stand for the server's address and
/// port.
#[derive(Clone, Copy, Debug)]
pub struct Lines<'a> {
    /// The listening program.
    pub server: &'a str,
    /// The connecting program.
    pub client: &'a str,
    /// The port space, and the port of a program without an option for it.
    pub place: (u64, Option<u16>),
}

impl Lines<'_> {
    /// The pair of programs at these ends.
    pub fn pair(self, ends: Ends, family: Family, limit: Duration) -> Pair {
        let program = |end: Side, line: &str| {
            let line = words(line.replace("SERVER", ends.server.address(family)));
            end.program(&line[0], &line[1..])
        };
        let (space, port) = self.place;
        let listener = match ends.server {
            Side::Adverb => Listener::Id(space),
            Side::Rxe => Listener::By(id_in_the_machine),
        };
        let pair = Pair::by_address(
            program(ends.server, self.server),
            program(ends.client, self.client),
            limit,
        );
        ends.with_state(pair.listener(listener).at_port(port.unwrap_or_else(next_port)))
    }
}
