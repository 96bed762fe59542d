//! After a program is killed at one end, the other end gets DISCONNECTED within a second.

use std::time::{Duration, Instant};

use adverb_foreign::pair::TCP;
use adverb_foreign::suite::{Case, by_length};
use adverb_foreign::{Verdict, require};
use adverb_interop::connections::Lines;
use adverb_interop::ends::{Family, Side};
use adverb_interop::pair::{Ends, FROM_RXE, TO_RXE};
use adverb_interop::vm;

use crate::counted;

const START: Duration = Duration::from_secs(60);
/// Longer than any message takes, and shorter than the retries of a requester with a silent peer.
const NEWS: Duration = Duration::from_secs(20);
/// Limit of the time until the peer gets the event, without the machine's waits for a processor.
const SECOND: Duration = Duration::from_secs(1);
/// Number of deaths, one of which must meet the limit, because a loaded host is sometimes late.
const TRIES: usize = 3;
const TALK: Lines<'static> = Lines {
    server: "rping -s -a SERVER -p PORT -v",
    client: "rping -c -a SERVER -p PORT -v",
    place: (TCP, None),
};

pub fn push(cases: &mut Vec<Case>) {
    for dies in by_length(&[Side::Adverb, Side::Rxe][..], &[Side::Adverb][..]) {
        for (family, ends) in [(Family::V4, TO_RXE), (Family::V6, FROM_RXE)] {
            let who = if ends.server == *dies { "server" } else { "client" };
            let name = format!("deaths/{dies}_{who}_is_killed");
            cases.push(counted(name, "killed".into(), ends, family, move || {
                killed(*dies, ends, family)
            }));
        }
    }
}

/// Both programs exchange messages until one of them is killed with all its children. The other
/// prints its events.
fn killed(dies: Side, ends: Ends, family: Family) -> Verdict {
    let mut took = Vec::new();
    for _ in 0..TRIES {
        let net = one_death(dies, ends, family)?;
        took.push(net);
        if net < SECOND {
            return Ok(());
        }
    }
    Err(format!("the peer heard of it only after {took:?}"))
}

fn one_death(dies: Side, ends: Ends, family: Family) -> Result<Duration, String> {
    let (mut server, client) = TALK.pair(ends, family, START).listening()?;
    let mut client = client.start()?;
    // Output to a pipe comes in pages.
    client.wait_for_text("ping data: rdma-ping-5", START)?;
    let (victim, peer) =
        if ends.server == dies { (&mut server, &mut client) } else { (&mut client, &mut server) };
    require!(!peer.text().contains("DISCONNECT EVENT"), "over before it began: {}", peer.text());
    let (since, waited) = (Instant::now(), vm::waited_for_processor());
    victim.kill_hard();
    peer.wait_for_text("DISCONNECT EVENT", NEWS)?;
    let away = vm::waited_for_processor().saturating_sub(waited);
    Ok(since.elapsed().saturating_sub(away))
}
