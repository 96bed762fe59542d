//! Tests of the simulator: seeds pass, reach enough, repeat exactly, and show deliberate mistakes.
use adverb_sim::{
    Action, CONNECTIONS, Kind, NODES, PROGRAMS, Post, Program, World, cm, run, shrink,
};

/// Few seeds, as this runs without optimisation; `make sim` runs more.
const SEEDS: u64 = 300;

/// Runs all seeds. Each passes, together they count enough, and for each of the words `due` some
/// line of a trace that `relevant` chooses has the words. A broken generator would pass all other
/// tests.
fn pass_and_reach(kind: Kind, enough: &[(&str, u64)], relevant: fn(&str) -> bool, due: &[&str]) {
    let (mut due, mut sums) = (due.to_vec(), vec![0; enough.len()]);
    for seed in 0..SEEDS {
        let report = (kind.run)(seed, true);
        assert_eq!(report.failure, None, "{} seed {seed}", kind.name);
        enough.iter().zip(&mut sums).for_each(|((name, _), sum)| *sum += report.count(name));
        // The first line is the configuration.
        for line in report.trace[1..].iter().filter(|line| relevant(line)) {
            due.retain(|words| !line.contains(words));
        }
    }
    for ((name, least), sum) in enough.iter().zip(sums) {
        assert!(sum > least * SEEDS, "{sum} {name} in {SEEDS} worlds of {}", kind.name);
    }
    assert!(due.is_empty(), "no seed of {SEEDS} leads to {due:?}");
}

/// The seeds reach every status and verb.
#[test]
fn programs_pass() {
    let statuses = [
        " Send Success ",
        " RdmaWrite Success ",
        " RdmaRead Success ",
        " CompSwap Success ",
        " FetchAdd Success ",
        " AtomicWrite Success ",
        " Flush Success ",
        " BindMw Success ",
        " BindMw MwBindErr ",
        " FastReg Success ",
        " LocalInv Success ",
        " Recv Success ",
        " RecvRdmaWithImm Success ",
        " Recv WrFlushErr ",
        " Recv LocLenErr ",
        " Recv LocProtErr ",
        " Recv RemInvReqErr ",
        " Send WrFlushErr ",
        " Send LocProtErr ",
        " Send RetryExcErr ",
        " Send RnrRetryExcErr ",
        " RdmaWrite RemAccessErr ",
        " RdmaRead RemAccessErr ",
        " Send RemInvReqErr ",
    ];
    pass_and_reach(PROGRAMS, &[], |line| line.contains(": completion "), &statuses);
}

/// CM-1. The seeds reach every kind of end.
#[test]
fn connections_pass() {
    let ends = [
        "Request",
        "Reply",
        "Established",
        "Disconnected by the peer",
        "Disconnected, confirmed",
        "Disconnected(Unanswered",
        "Rejected: ",
        "Unanswered { message: Req",
        "Unanswered { message: Rep",
        "TimewaitExit",
        "SidrReply",
        " dies",
    ];
    pass_and_reach(CONNECTIONS, &[("connections", 1)], |_| true, &ends);
}

/// CQN-1, CQN-2, CQN-3, CQN-4, CQN-5, CQN-6: the naive queue determines the events that are due.
/// The seeds reach every kind of sleep and end.
#[test]
fn nodes_pass() {
    let sleeps = [
        "at the sockets: false",
        "at the sockets: true",
        "sleeps: Take",
        "sleeps: Call(true)",
        ": Solicited",
        "destroyed: true",
        "destroyed: false",
        "is moderated",
        "beside Some(Requests)",
        "beside Some(Packets)",
        "RdmaRead",
        "RecvRdmaWithImm",
        "FetchAdd",
        "CompSwap",
    ];
    pass_and_reach(NODES, &[("completions", 50), ("events", 10)], |_| true, &sleeps);
}

/// Seeds that failed once. In three programs marks shrink the window in the middle of a burst. In
/// the fourth the oracle mistook a long time without a receive for a world that never rests. In the
/// nodes a responder that forgets an ACK held for the next poll makes the requester ask for the
/// answer.
#[test]
fn seeds_that_failed_pass() {
    let programs = [10_171_907, 10_318_633, 10_733_204, 10_659_657].map(|seed| (PROGRAMS, seed));
    let nodes = [543, 959, 2601, 3176].map(|seed| (NODES, seed));
    for (kind, seed) in programs.into_iter().chain(nodes) {
        let report = (kind.run)(seed, false);
        assert_eq!((&report.failure, report.count("asked")), (&None, 0), "{} {seed}", kind.name);
    }
}

#[test]
fn a_seed_means_the_same_each_time() {
    for kind in [PROGRAMS, CONNECTIONS, NODES] {
        for seed in 0..40 {
            // A trace changes nothing.
            let traced = (kind.run)(seed, true);
            assert_eq!((kind.run)(seed, false).hash, traced.hash, "{} {seed}", kind.name);
            assert!(traced.trace.len() > 1);
        }
        assert_ne!((kind.run)(1, false).hash, (kind.run)(2, false).hash);
    }
    for seed in 0..60 {
        let (one, two) = (Program::draw(seed), Program::draw(seed));
        assert_eq!(one.actions, two.actions);
        // A capture changes nothing.
        let captured = World::new(&two.config).captured().run(&two);
        assert_eq!(run(&one).hash, captured.hash, "seed {seed}");
    }
}

/// The oracle detects a program that uses a queue pair number again before the time-wait is over.
#[test]
fn numbers_used_too_early_are_noticed() {
    let early = |seed| {
        let config = cm::Config::draw(seed);
        cm::run(&cm::Config { hasty: true, numbers: 1, delay: 100, ..config })
    };
    let noticed =
        (0..SEEDS).filter_map(|seed| early(seed).failure).find(|why| why.contains("a packet of"));
    assert!(noticed.is_some(), "the oracle sees nothing");
}

/// Shrinking finds the one relevant action.
#[test]
fn shrink_leaves_what_matters() {
    let is_culprit = |a: &Action| matches!(a, Action::Post(p) if p.signaled && p.len > 20);
    let program =
        (0..).map(Program::draw).find(|p| p.actions.iter().filter(|a| is_culprit(a)).count() > 3);
    let small = shrink(&program.unwrap(), |p| p.actions.iter().any(is_culprit));
    let [Action::Post(post)] = &small.actions[..] else { panic!("left: {:?}", small.actions) };
    let Post { len, inline, fence, chain, .. } = **post;
    assert!((21..=41).contains(&len) && !inline && !fence && !chain, "left: {post:?}");
    assert_eq!((small.config.faults.loss, small.config.pump_delay), (0, 0));
}

/// The capture is well-formed: each block ends with its length and holds one packet.
#[test]
fn capture_is_pcapng() {
    let path = std::env::temp_dir().join(format!("adverb-sim-{}.pcapng", std::process::id()));
    let report = adverb_sim::capture(3, &path).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let (mut at, mut packets) = (0, 0);
    assert_eq!(word(0), 0x0a0d_0d0a);
    while at < bytes.len() {
        let len = word(at + 4) as usize;
        assert_eq!(word(at + len - 4) as usize, len);
        if word(at) == 6 {
            packets += 1;
            // IPv4 without options, UDP to port 4791.
            let ip = at + 28;
            assert_eq!((bytes[ip], bytes[ip + 9]), (0x45, 17));
            assert_eq!(u16::from_be_bytes([bytes[ip + 22], bytes[ip + 23]]), 4791);
        }
        at += len;
    }
    assert_eq!(packets, report.count("packets"));
    assert!(packets > 0);
}
