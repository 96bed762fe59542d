//! A program killed at one end is news at the other: DISCONNECTED, within a second.

use std::time::{Duration, Instant};

use adverb_foreign::suite::by_length;
use adverb_foreign::{Verdict, require};
use adverb_interop::connections::Lines;
use adverb_interop::ends::{End, Family};
use adverb_interop::pair::{Ends, FROM_RXE, TO_RXE};
use adverb_interop::vm;
use libtest_mimic::Trial;

use crate::counted;

const START: Duration = Duration::from_secs(60);
/// Longer than any news takes, and shorter than the retries of a requester whose peer is silent.
const NEWS: Duration = Duration::from_secs(20);
/// Within this the peer hears of it, the machine's waits for a processor not counted …
const SECOND: Duration = Duration::from_secs(1);
/// … in one of so many deaths: a loaded host is late with other things, too.
const TRIES: usize = 3;
const TALK: Lines =
    Lines { server: "rping -s -a SERVER -p PORT -v", client: "rping -c -a SERVER -p PORT -v", port: None };

pub fn push(cases: &mut Vec<Trial>) {
    for dies in by_length(&[End::Adverb, End::Rxe][..], &[End::Adverb][..]) {
        for (family, ends) in [(Family::V4, TO_RXE), (Family::V6, FROM_RXE)] {
            let who = if ends.server == *dies { "server" } else { "client" };
            let name = format!("deaths/{dies}_{who}_is_killed");
            cases.push(counted(name, "killed".into(), ends, family, move || killed(*dies, ends, family)));
        }
    }
}

/// Both talk without end until one is killed with all that it started; the other says what it
/// hears.
fn killed(dies: End, ends: Ends, family: Family) -> Verdict {
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

fn one_death(dies: End, ends: Ends, family: Family) -> Result<Duration, String> {
    let (mut server, client) = TALK.start(ends, family)?;
    let mut client = client.start()?;
    // Their words come by the page.
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
