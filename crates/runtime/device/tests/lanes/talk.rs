//! The process at the other end, and what both ends of a case have.
use crate::rig::{Kind, Rig, Shape, Words, on_wire, remote};
use adverb_device::engine::wr::Remote;
use adverb_device::engine::{Access, Completion, QpType};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Says which part a process plays.
pub const ROLE: &str = "ADVERB_LANES_ROLE";
pub const CASE: &str = "ADVERB_LANES_CASE";

/// The life of the other end.
pub fn obey() {
    let mut rig = Rig::open();
    for line in std::io::stdin().lock().lines() {
        let answer = rig.obey(&line.unwrap());
        println!("{answer}");
    }
}

/// The other end, seen from this one.
pub struct Other {
    child: Child,
    /// `None` when it is to leave.
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Other {
    fn start(mut command: Command) -> Other {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (orders, answers) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Other { child, orders, answers }
    }

    pub fn new() -> Other {
        Other::playing("target", &[])
    }

    pub fn playing(role: &str, env: &[(&str, &str)]) -> Other {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env(ROLE, role).envs(env.iter().copied());
        Other::start(command)
    }

    /// Gives an order; [`Other::answer`] has to follow.
    pub fn order(&mut self, order: &str) {
        writeln!(self.orders.as_mut().unwrap(), "{order}").unwrap();
    }

    pub fn answer(&mut self) -> String {
        let mut line = String::new();
        assert!(self.answers.read_line(&mut line).unwrap() > 0, "the other end has gone");
        line.trim_end().to_string()
    }

    pub fn ask(&mut self, order: &str) -> String {
        self.order(order);
        self.answer()
    }

    /// A region there: its place, and where it is.
    pub fn region(&mut self, kind: Kind, len: usize, access: Access, pd: usize) -> (usize, Remote) {
        let answer = self.ask(&format!("region {kind:?} {len} {} {pd}", access.bits()));
        let mut words = Words::of(&answer);
        (words.next(), remote(words.next(), words.next()))
    }

    pub fn word(&mut self, region: usize, offset: usize) -> u64 {
        self.ask(&format!("word {region} {offset}")).parse().unwrap()
    }

    pub fn same(&mut self, region: usize, offset: usize, len: usize, seed: u64) -> bool {
        self.ask(&format!("same {region} {offset} {len} {seed}")) == "true"
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id() as i32);
        nix::sys::signal::kill(pid, signal).unwrap();
        if signal == Signal::SIGSTOP {
            // A thread may work on for a moment; all of them stand still once the parent can tell.
            let stopped = waitpid(pid, Some(WaitPidFlag::WUNTRACED)).unwrap();
            assert_eq!(stopped, WaitStatus::Stopped(pid, Signal::SIGSTOP));
        }
    }

    /// Lets it come to its end by itself.
    pub fn leave(mut self) {
        drop(self.orders.take());
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}");
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Both ends of a case, and what it has seen.
pub struct Pair {
    pub a: Rig,
    pub b: Other,
    /// What must be alike on both paths.
    pub seen: Vec<String>,
    /// Which ways requests of this end must have gone on the local path.
    pub wants: Wants,
}

/// Ways that must have been used.
#[derive(Clone, Copy, Default)]
pub struct Wants {
    pub direct: bool,
    pub lane: bool,
    /// The network may be, too.
    pub network: bool,
}

impl Pair {
    pub fn new() -> Pair {
        Pair { a: Rig::open(), b: Other::new(), seen: Vec::new(), wants: Wants::default() }
    }

    /// Makes queue pairs at both ends and connects them; their places, which are the same.
    pub fn connect(&mut self, mine: Shape, theirs: Shape) -> usize {
        let at = self.a.qps.len();
        let number = self.a.qp(mine);
        let other = self.b.ask(&format!("qp {}", theirs.words())).parse().unwrap();
        self.b.ask(&format!("connect {at} {number}"));
        self.a.connect(at, other);
        at
    }

    /// Another process in the place of the other end, with as many queue pairs: places are alike
    /// from here on.
    pub fn renew(&mut self) {
        self.b = Other::new();
        (0..self.a.qps.len()).for_each(|_| drop(self.b.ask(&format!("qp {}", Shape::default().words()))));
    }

    pub fn rc(&mut self) -> usize {
        self.connect(Shape::default(), Shape::default())
    }

    pub fn xrc(&mut self) -> usize {
        let (send, recv) = (QpType::XrcSend, QpType::XrcRecv);
        self.connect(Shape { ty: send, ..Shape::default() }, Shape { ty: recv, ..Shape::default() })
    }

    /// Notes what completed, with the reason but without its numbers.
    pub fn note(&mut self, what: &str, c: &Completion) {
        let why = c.cause.as_ref().map_or(String::new(), |cause| {
            let text = cause.to_string();
            text.split(|ch: char| ch.is_whitespace())
                .map(|w| if w.contains(|ch: char| ch.is_ascii_digit()) { "#" } else { w })
                .collect::<Vec<_>>()
                .join(" ")
        });
        self.seen.push(format!("{what}: {:?} {:?} {}: {why}", c.status, c.opcode, c.byte_len));
    }

    /// The ways were those of the path that was asked for.
    pub fn finish(mut self) -> Vec<String> {
        if std::env::var_os("ADVERB_FAULT").is_some() {
            assert!(self.a.harmed() > 0, "nothing met a fault");
        }
        let [direct, sent, received, network] = self.a.ways();
        let line = self.b.ask("ways");
        let mut theirs = Words::of(&line);
        let theirs: [u64; 4] = std::array::from_fn(|_| theirs.next());
        if on_wire() {
            assert_eq!((direct, sent, received, theirs[1]), (0, 0, 0, 0));
            assert!(network > 0);
        } else {
            let crossed = network + theirs[3];
            assert_eq!(crossed > 0, self.wants.network, "{crossed} packets crossed the network");
            assert!(!self.wants.direct || direct > 0, "nothing was performed directly");
            assert!(!self.wants.lane || (sent > 0 && theirs[2] > 0), "nothing went through the lane");
        }
        self.seen
    }
}
