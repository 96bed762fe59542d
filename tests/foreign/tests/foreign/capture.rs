//! Captures of unmodified programs and of the demonstration. Wireshark's `tshark` reads them, and
//! the result is compared with Adverb's parse of the same bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use adverb_foreign::device::{loopback, on_loopback};
use adverb_foreign::pair::{Pair, PairOutcome};
use adverb_foreign::process::{Finished, Program, adverb, free_port};
use adverb_foreign::scratch::Scratch;
use adverb_foreign::suite::{Case, case};
use adverb_foreign::tshark::{Reading, Seen, capture};
use adverb_foreign::{Verdict, require};
use adverb_wire::{Opcode, Operation, Syndrome, Transport};

const LIMIT: Duration = Duration::from_secs(90);

pub fn cases() -> Vec<Case> {
    vec![
        case("demonstration/every_operation", every_operation),
        case("pingpong/both_ends_record_the_same", || both_ends_record_the_same("wire")),
        case("CAP-1/both_ends_record_the_same_within_the_host", || {
            both_ends_record_the_same("local")
        }),
        case("CAP-2/the_path_is_as_without_a_capture", same_path),
        case("CAP-3/one_sided_requests", one_sided),
        case("pingpong/ud_and_uc_without_the_network", directly),
        case("faults/what_befell_a_packet_is_said", || faults_are_said("wire")),
        case("FLT-5/what_befell_a_packet_within_the_host_is_said", || faults_are_said("local")),
        case("names/each_process_has_its_own_file", own_files),
        case("names/a_forked_child_has_its_own_file", forked),
        case("names/an_earlier_capture_is_replaced_and_nothing_else", replaced),
        case("killed/the_file_is_whole_up_to_its_last_packet", || killed("wire")),
        case("killed/the_file_is_whole_up_to_its_last_packet_within_the_host", || killed("local")),
        case("errors/a_bad_path_harms_nothing", bad_path),
    ]
}

/// How often each packet was sent, or received, by content.
fn counted(reading: &Reading, sent: bool) -> BTreeMap<&[u8], usize> {
    let mut all = BTreeMap::new();
    for packet in reading.packets.iter().filter(|p| p.sent == sent) {
        *all.entry(&packet.bytes[..]).or_default() += 1;
    }
    all
}

/// Every received packet was sent, byte for byte, and nearly all sent packets are received. A
/// packet to an end that has exited may be lost. A packet that a slow machine sends again may be
/// lost, too.
fn same_both_ways(a: &Reading, b: &Reading) -> Verdict {
    for (from, to) in [(a, b), (b, a)] {
        let (sent, received) = (counted(from, true), counted(to, false));
        let odd =
            received.iter().find(|(bytes, count)| sent.get(*bytes).is_none_or(|sent| sent < count));
        require!(odd.is_none(), "received more often than sent: {odd:02x?}");
        let total = |of: &BTreeMap<_, usize>| of.values().sum::<usize>();
        let (sent, received) = (total(&sent), total(&received));
        require!(received * 100 >= sent * 95, "{sent} packets were sent, {received} received");
    }
    Ok(())
}

/// The demonstration runs every operation between two processes, with one receive posted 20 ms
/// late. The receive is not late if the machine stops the process for as long. So one of three runs
/// must see an RNR NAK.
fn every_operation() -> Verdict {
    let mut rnrs = 0;
    for _ in 0..3 {
        rnrs += demonstrated()?;
        if rnrs > 0 {
            return Ok(());
        }
    }
    Err("no RNR NAK in three runs".to_string())
}

/// The number of RNR NAKs.
fn demonstrated() -> Result<usize, String> {
    let scratch = Scratch::new("demo")?;
    let demo = Program::of_file(&adverb()?).bare().env("ADVERB_PATH", "wire");
    demo.args(&["demo", "--no-measure", "--device", &loopback()?.dev])
        .env("ADVERB_CAPTURE", scratch.path("demo.pcapng"))
        .run_ok(LIMIT)?;
    let files = scratch.files()?;
    let [second, first] = &files[..] else {
        return Err(format!("two files were expected: {files:?}"));
    };
    let (first, second) = (capture(first)?, capture(second)?);
    same_both_ways(&first, &second)?;
    let seen: BTreeSet<u8> = first.packets.iter().map(|p| p.headers.bth.opcode.as_u8()).collect();
    let all = (0..=u8::MAX).filter_map(Opcode::from_u8);
    let missing: Vec<Opcode> = all.filter(|o| wanted(*o) && !seen.contains(&o.as_u8())).collect();
    require!(missing.is_empty(), "never captured: {missing:?}");
    let kinds = first.packets.iter().filter_map(Seen::syndrome);
    let (mut acks, mut rnrs, mut naks) = (0, 0, 0);
    for kind in kinds {
        match kind {
            Syndrome::Ack { .. } => acks += 1,
            Syndrome::RnrNak { .. } => rnrs += 1,
            Syndrome::Nak(_) => naks += 1,
            Syndrome::Reserved(byte) => return Err(format!("a syndrome of {byte:#04x}")),
        }
    }
    require!(acks > 0 && naks > 0, "{acks} ACKs, {rnrs} RNR NAKs, {naks} NAKs");
    Ok(rnrs)
}

/// All opcodes of RC; for the other transports the opcodes of the demonstration.
fn wanted(opcode: Opcode) -> bool {
    use Operation::*;
    let operation = opcode.operation();
    match opcode.transport() {
        // Long SENDs with invalidate are rare, and covered by tests of the engine.
        Transport::Rc => operation != SendLastInv,
        Transport::Uc => {
            matches!(operation, SendFirst | SendMiddle | SendLast | SendOnly | WriteFirst)
        }
        Transport::Ud => operation == SendOnlyImm,
        Transport::Xrc => operation == Acknowledge,
        Transport::Cnp => false,
    }
}

fn pingpong(
    scratch: &Scratch,
    program: &str,
    flags: &str,
    faults: &str,
    path: &str,
) -> Result<[Reading; 2], String> {
    let args = on_loopback("-g", &format!("{flags} -c"))?;
    let end = |file: &str| {
        let end = Program::new(program, &args).env("ADVERB_PATH", path);
        let end = end.option("--capture", scratch.path(file));
        if faults.is_empty() { end } else { end.option("--fault", faults) }
    };
    Pair::of(end("server.pcapng"), end("client.pcapng"), LIMIT).run_ok()?;
    Ok([capture(&scratch.file("server.pcapng"))?, capture(&scratch.file("client.pcapng"))?])
}

fn both_ends_record_the_same(path: &str) -> Verdict {
    let scratch = Scratch::new("pingpong")?;
    let [server, client] =
        pingpong(&scratch, "ibv_rc_pingpong", "-s 5000 -n 200 -m 1024", "", path)?;
    same_both_ways(&server, &client)?;
    // A packet within the host is longer, so a single packet is enough.
    let kind = if path == "wire" { Operation::SendFirst } else { Operation::SendOnly };
    // A slow machine may send a packet again.
    let messages = |reading: &Reading| {
        let first = |p: &&Seen| p.sent && p.headers.bth.opcode.operation() == kind;
        let psns = reading.packets.iter().filter(first).map(|p| p.headers.bth.psn.get());
        psns.collect::<BTreeSet<u32>>().len()
    };
    let counts = (messages(&server), messages(&client));
    require!(counts == (200, 200), "{counts:?} messages");
    let known = if path == "wire" {
        ["sent", "received", "sent to its process directly", "received from a process of this host"]
            .as_slice()
    } else {
        &["sent through shared memory", "received through shared memory"]
    };
    let odd = server.packets.iter().find(|p| !known.contains(&&*p.comment));
    require!(odd.is_none(), "a comment that should not be: {odd:?}");
    Ok(())
}

fn directly() -> Verdict {
    for program in ["ibv_ud_pingpong", "ibv_uc_pingpong"] {
        let scratch = Scratch::new(program)?;
        let [server, client] = pingpong(&scratch, program, "-s 1000 -n 100", "", "local")?;
        same_both_ways(&server, &client)?;
        let count =
            server.packets.iter().filter(|p| p.comment == "sent to its process directly").count();
        require!(count == 100, "{program}: {count} of 100 packets");
    }
    Ok(())
}

fn faults_are_said(path: &str) -> Verdict {
    let scratch = Scratch::new("faults")?;
    let spec = "drop=2%,dup=2%,reorder=2%,corrupt=2%,first=300,seed=5";
    let readings = pingpong(&scratch, "ibv_rc_pingpong", "-n 500", spec, path)?;
    // Only the network path damages bits.
    let damaged = readings.iter().any(|r| r.damaged > 0);
    require!(damaged == (path == "wire"), "a damaged packet is recorded: {damaged}");
    for words in ["injected: dropped", "injected: duplicated", "injected: held until"] {
        let said = |p: &Seen| !p.sent && p.comment.contains(words);
        require!(readings.iter().any(|r| r.packets.iter().any(said)), "no packet says {words:?}");
    }
    // A packet recorded as lost was sent by the other end, so both captures show a loss.
    for (here, there) in [(0, 1), (1, 0)] {
        let sent = counted(&readings[there], true);
        let lost =
            readings[here].packets.iter().filter(|p| p.comment.contains("injected: dropped"));
        let strange = lost.into_iter().find(|p| !sent.contains_key(&p.bytes[..]));
        require!(strange.is_none(), "dropped and never sent: {strange:?}");
    }
    Ok(())
}

/// A pair of perftest on the loopback device, with captures in a directory or without.
fn perftest(program: &str, flags: &str, capture: Option<&Scratch>) -> Result<PairOutcome, String> {
    let args = on_loopback("-x", flags)?;
    let end = |name: &str| {
        // Set even if the whole suite runs on the network path, because these cases test shared
        // memory.
        let end = Program::new(program, &args).option("--log", "info").env("ADVERB_PATH", "local");
        match capture {
            Some(scratch) => end.option("--capture", scratch.path(name)),
            None => end,
        }
    };
    Pair::of(end("server.pcapng"), end("client.pcapng"), LIMIT).run_ok()
}

/// A capture does not change the path: rings, and requests that the initiator performs.
fn same_path() -> Verdict {
    for program in ["ib_write_lat", "ib_send_lat", "ib_read_lat", "ib_atomic_lat"] {
        let scratch = Scratch::new(program)?;
        let [with, without] = [Some(&scratch), None].map(|to| perftest(program, "-n 1000", to));
        let (with, without) = (with?, without?);
        for (with, without) in [(&with.server, &without.server), (&with.client, &without.client)] {
            // The posted requests, and how each was carried out.
            for name in ["committed", "qp_one_sided", "tx_packets"] {
                let counts = (with.counter(name), without.counter(name));
                require!(
                    counts.0 == counts.1,
                    "{program}: {name} is {counts:?}\n{}",
                    with.describe()
                );
            }
            let lane = |end: &Finished| end.counter("ring_sent") > 0;
            require!(lane(with) == lane(without), "{program}: another path\n{}", with.describe());
        }
    }
    Ok(())
}

/// Each request that the initiator performs is in its capture, with its bytes, and Wireshark can
/// parse it.
fn one_sided() -> Verdict {
    use Operation::*;
    for (program, flags, kinds) in [
        ("ib_write_bw", "-s 70000 -n 50", &[WriteOnly][..]),
        ("ib_read_bw", "-s 1000 -n 50", &[ReadRequest, ReadResponseOnly]),
        ("ib_atomic_bw", "-n 50", &[FetchAdd, AtomicAcknowledge]),
    ] {
        let scratch = Scratch::new(program)?;
        let outcome = perftest(program, flags, Some(&scratch))?;
        let reading = capture(&scratch.file("client.pcapng"))?;
        for kind in kinds {
            let of_kind = |p: &&Seen| {
                p.headers.bth.opcode.operation() == *kind
                    && p.comment.starts_with("performed by the initiator")
            };
            let count = reading.packets.iter().filter(of_kind).count();
            let direct = outcome.client.counter("qp_one_sided");
            require!(
                count as u64 == direct && direct >= 50,
                "{program}: {count} of {direct} {kind:?}"
            );
        }
    }
    Ok(())
}

fn own_files() -> Verdict {
    let scratch = Scratch::new("names")?;
    let script = "ibv_devinfo > /dev/null; ibv_devinfo > /dev/null; exec ibv_devinfo";
    let file = scratch.file("a.pcapng");
    let out = Program::new("sh", &["-c", script])
        .option("--capture", file.display().to_string())
        .run_ok(LIMIT)?;
    let files = scratch.files()?;
    require!(files.len() == 3 && files.contains(&file), "{files:?}\n{}", out.describe());
    for other in files.iter().filter(|f| **f != file) {
        let name = other.display().to_string();
        require!(out.text.contains(&name), "{name} is not named:\n{}", out.describe());
    }
    files.iter().try_for_each(|f| capture(f).map(drop))
}

/// The parent has the device open when it forks, and uses it after the fork.
fn forked() -> Verdict {
    let scratch = Scratch::new("forked")?;
    let lo = loopback()?;
    let script = format!(
        "import os\nfrom pyverbs.device import Context\nc = Context(name='{0}')\nif os.fork() == 0:\n    \
         Context(name='{0}')\n    os._exit(0)\nos.wait()\nContext(name='{0}')\n",
        lo.dev
    );
    let file = scratch.file("a.pcapng");
    // Debian's interpreter, which has pyverbs.
    let out = Program::new("/usr/bin/python3", &["-c", &script])
        .option("--capture", file.display().to_string())
        .run_ok(LIMIT)?;
    let files = scratch.files()?;
    require!(files.len() == 2 && files.contains(&file), "{files:?}\n{}", out.describe());
    files.iter().try_for_each(|f| capture(f).map(drop))
}

fn replaced() -> Verdict {
    let scratch = Scratch::new("replaced")?;
    let file = scratch.file("a.pcapng");
    let once =
        || Program::of_line("ibv_devinfo").option("--capture", scratch.path("a.pcapng")).run(LIMIT);
    once()?.require_ok()?;
    once()?.require_ok()?;
    let files = scratch.files()?;
    require!(files.len() == 1, "{files:?}");
    std::fs::write(&file, "a letter").map_err(|e| e.to_string())?;
    let out = once()?;
    out.require(out.code() == Some(125) && out.text.contains("not overwritten"))?;
    let kept = std::fs::read_to_string(&file).map_err(|e| e.to_string())?;
    require!(kept == "a letter", "it was overwritten");
    Ok(())
}

/// Both ends were killed by SIGKILL in mid-traffic. Removes the last block if it is cut: Linux ends
/// a write of several pages at a page boundary when the process is killed. All blocks before it
/// must be whole, and the cut part is one batch at most.
fn without_cut_block(path: &Path) -> Verdict {
    const BATCH: usize = 4 << 20;
    let bytes = std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let length = |at: usize| -> Option<usize> {
        let field =
            |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?) as usize);
        let len = field(at + 4).filter(|len| *len >= 12 && len.is_multiple_of(4))?;
        (field(at + len - 4)? == len).then_some(len)
    };
    let mut whole = 0;
    while let Some(len) = length(whole) {
        whole += len;
    }
    let rest = bytes.len() - whole;
    require!(rest < BATCH, "{}: {rest} bytes behind the last whole block", path.display());
    // The cut block begins like a packet block, and its length goes beyond the file.
    if let Some(head) = bytes.get(whole..whole + 8) {
        let cut = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        require!(
            head[..4] == [6, 0, 0, 0] && cut > rest,
            "{}: no packet at {whole}: {head:?}",
            path.display()
        );
    }
    let file = std::fs::File::options().write(true).open(path).map_err(|e| e.to_string())?;
    file.set_len(whole as u64).map_err(|e| e.to_string())
}

fn killed(path: &str) -> Verdict {
    let scratch = Scratch::new("killed")?;
    let port = free_port()?;
    let args = on_loopback("-x", &format!("-s 65536 -D 30 -p {port}"))?;
    let end = |name: &str| {
        let end = Program::new("ib_write_bw", &args).env("ADVERB_PATH", path);
        end.option("--capture", scratch.path(name))
    };
    let mut server = end("server.pcapng").start()?;
    server.wait_for_listener(port, LIMIT)?;
    let mut client = end("client.pcapng").arg("127.0.0.1").start()?;
    let grown =
        || std::fs::metadata(scratch.file("client.pcapng")).is_ok_and(|m| m.len() > 1 << 20);
    let until = std::time::Instant::now() + LIMIT;
    while !grown() {
        require!(std::time::Instant::now() < until, "nothing is captured:\n{}", client.text());
        std::thread::sleep(Duration::from_millis(5));
    }
    client.kill_hard();
    server.kill_hard();
    for name in ["server.pcapng", "client.pcapng"] {
        without_cut_block(&scratch.file(name))?;
        let reading = capture(&scratch.file(name))?;
        // Within the host the server does not see the requests that its client performs.
        let least = if path == "local" { 12 * usize::from(name == "client.pcapng") } else { 101 };
        require!(reading.packets.len() >= least, "{name}: {} packets", reading.packets.len());
    }
    Ok(())
}

fn bad_path() -> Verdict {
    let refused = Program::of_line("ibv_devinfo")
        .option("--capture", "/no/such/directory/a.pcapng")
        .run(LIMIT)?;
    refused.require(refused.code() == Some(125))?;
    refused.require_words(&["there is no such directory"])?;
    let out = Program::of_line("ibv_devinfo")
        .env("ADVERB_CAPTURE", "/no/such/directory/a.pcapng")
        .run_ok(LIMIT)?;
    out.require_words(&["packets are not captured"])
}
