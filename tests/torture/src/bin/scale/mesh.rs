//! Fully meshed processes: each sends to every other process, and sleeps on its CQ when there is
//! nothing to do.
//!
//! | figure | meaning |
//! |---|---|
//! | `mesh_connect`, `mesh_exchange` | seconds until all were connected, and until all messages had arrived |
//! | `mesh_messages` | messages of a kilobyte that arrived, all verified |
//! | `mesh_pss`, `mesh_rss` | bytes of the largest process at the end |
//! | `mesh_peer_pss` | growth of a process in bytes since it opened the device, for each other process |
//! | `mesh_fds` | the largest number of descriptors in a process |

use adverb_bench::Result;
use adverb_bench::member::{Member, ask_all, line_of, numbers};
use adverb_bench::procfs::descriptors;

use crate::{memory, timed};

const BYTES: usize = 1024;
/// Messages from each process to each other process.
const MESSAGES: usize = 20;
/// Limit of outstanding requests of a process.
const WINDOW: usize = 16;

pub fn measure(processes: usize) -> Result<()> {
    let peers = processes - 1;
    let mut members = (0..processes).map(|_| Member::start(None)).collect::<Result<Vec<_>>>()?;
    ask_all(&mut members, &format!("open {peers} {BYTES}"))?;
    let open = memory(&members)?;
    let ((), connecting) = timed(|| connect(&mut members))?;
    let (received, exchanging) =
        timed(|| ask_all(&mut members, &format!("exchange {MESSAGES} {WINDOW}")))?;
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

/// Connects the queue pairs of a process to the others in order, beginning with the next process,
/// so that not all processes begin with the same one.
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
