//! Processes of which every two are connected: each sends to every other, asleep on its CQ while
//! there is nothing to do.
//!
//! | figure | what it is |
//! |---|---|
//! | `mesh_connect`, `mesh_exchange` | seconds until all were connected, and until all messages had arrived |
//! | `mesh_messages` | messages of a kilobyte that arrived, all verified |
//! | `mesh_pss`, `mesh_rss` | bytes of the largest process at the end |
//! | `mesh_peer_pss` | bytes that a process has grown by since it opened the device, for each other process |
//! | `mesh_fds` | descriptors of the process that has most |

use adverb_bench::Result;
use adverb_bench::member::{Member, ask_all, line_of, numbers};
use adverb_bench::procfs::descriptors;

use crate::{memory, timed};

const BYTES: usize = 1024;
/// Messages that each process sends each other one.
const MESSAGES: usize = 20;
/// Requests of a process that are under way at a time.
const WINDOW: usize = 16;

pub fn measure(processes: usize) -> Result<()> {
    let peers = processes - 1;
    let mut members = (0..processes).map(|_| Member::start(None)).collect::<Result<Vec<_>>>()?;
    ask_all(&mut members, &format!("open {peers} {BYTES}"))?;
    let open = memory(&members)?;
    let ((), connecting) = timed(|| connect(&mut members))?;
    let (received, exchanging) = timed(|| ask_all(&mut members, &format!("exchange {MESSAGES} {WINDOW}")))?;
    let all = peers * MESSAGES;
    if let Some(n) = received.iter().position(|r| *r != all.to_string()) {
        return Err(format!("process {n} of {processes} received {}, not {all}", received[n]));
    }
    let end = memory(&members)?;
    let mut fds = 0;
    for member in &members {
        fds = fds.max(descriptors(member.pid())?);
    }
    let grown: u64 = end.iter().zip(&open).map(|(e, o)| e.since(*o).pss).sum();
    println!("mesh_processes {processes} 1");
    println!("mesh_connect {connecting:e} s");
    println!("mesh_exchange {exchanging:e} s");
    println!("mesh_messages {} 1", all * processes);
    println!("mesh_pss {} B", end.iter().map(|m| m.pss).max().unwrap_or(0));
    println!("mesh_rss {} B", end.iter().map(|m| m.rss).max().unwrap_or(0));
    println!("mesh_peer_pss {:e} B", grown as f64 / (processes * peers) as f64);
    println!("mesh_fds {fds} 1");
    Ok(())
}

/// The queue pairs of a process lead to the others in their order, from the one after itself, so
/// that not all begin with the same one.
fn connect(members: &mut [Member]) -> Result<()> {
    let all = members.len();
    ask_all(members, "cq")?;
    let made = ask_all(members, &format!("make {}", all - 1))?;
    let made = made.iter().map(|line| numbers(line)).collect::<Result<Vec<Vec<u32>>>>()?;
    for (me, member) in members.iter_mut().enumerate() {
        let place = |of: usize, to: usize| (to + all - of - 1) % all;
        let others = (0..all - 1).map(|n| (me + 1 + n) % all);
        let theirs = others.map(|other| made[other].get(place(other, me)).copied());
        let theirs = theirs.collect::<Option<Vec<u32>>>().ok_or("a queue pair is missing")?;
        member.order(&format!("connect {}", line_of(&theirs)))?;
    }
    members.iter_mut().try_for_each(|m| m.answer().map(drop))
}
