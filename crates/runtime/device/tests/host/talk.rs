//! The process at the other end, and the state of a case with two ends.
use crate::rig::{Kind, Rig, Shape, Words, on_wire, remote};
use adverb_device::engine::wr::Remote;
use adverb_device::engine::{Access, Completion, QpType};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The environment variable for the role of a process.
pub const ROLE: &str = "ADVERB_HOST_ROLE";
pub const CASE: &str = "ADVERB_HOST_CASE";

/// The work of the process at the other end.
pub fn obey() {
    let mut rig = Rig::open();
    for line in std::io::stdin().lock().lines() {
        let answer = rig.obey(&line.unwrap());
        println!("{answer}");
    }
}

/// The process at the other end, seen from this process.
pub struct Other {
    child: Child,
    /// `None` after the process was told to leave.
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

    /// Sends an order. A call of [`Other::answer`] must follow.
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

    /// Registers a region in the other process. Returns the index, the address and the key.
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
            // A thread may work on for a moment after the signal. All threads have stopped when
            // `waitpid` reports the stop.
            let stopped = waitpid(pid, Some(WaitPidFlag::WUNTRACED)).unwrap();
            assert_eq!(stopped, WaitStatus::Stopped(pid, Signal::SIGSTOP));
        }
    }

    /// Lets the process end by itself.
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

/// Both ends of a case, and the observations.
pub struct Pair {
    pub a: Rig,
    pub b: Other,
    /// Observations that must be equal on both paths.
    pub seen: Vec<String>,
    /// The ways that requests of this end must take on the local path.
    pub wants: Wants,
}

/// Ways that a case must use.
#[derive(Clone, Copy, Default)]
pub struct Wants {
    pub one_sided: bool,
    pub tx_ring: bool,
    /// `true`: packets must cross the network. `false`: no packet may cross the network.
    pub network: bool,
}

impl Pair {
    pub fn new() -> Pair {
        Pair { a: Rig::open(), b: Other::new(), seen: Vec::new(), wants: Wants::default() }
    }

    /// Makes a queue pair at each end and connects them. Returns the index, which is equal at both
    /// ends.
    pub fn connect(&mut self, mine: Shape, theirs: Shape) -> usize {
        let at = self.a.qps.len();
        let number = self.a.qp(mine);
        let other = self.b.ask(&format!("qp {}", theirs.words())).parse().unwrap();
        self.b.ask(&format!("connect {at} {number}"));
        self.a.connect(at, other);
        at
    }

    /// Replaces the process at the other end. The new process gets as many queue pairs as this end
    /// has, so later indices are equal at both ends.
    pub fn renew(&mut self) {
        self.b = Other::new();
        (0..self.a.qps.len())
            .for_each(|_| drop(self.b.ask(&format!("qp {}", Shape::default().words()))));
    }

    pub fn rc(&mut self) -> usize {
        self.connect(Shape::default(), Shape::default())
    }

    pub fn xrc(&mut self) -> usize {
        let (send, recv) = (QpType::XrcSend, QpType::XrcRecv);
        self.connect(Shape { ty: send, ..Shape::default() }, Shape { ty: recv, ..Shape::default() })
    }

    /// Records a completion with the cause. The text has no numbers, because numbers differ between
    /// runs.
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

    /// Checks that the requests took the ways of the requested path.
    pub fn finish(mut self) -> Vec<String> {
        if std::env::var_os("ADVERB_FAULT").is_some() {
            assert!(self.a.harmed() > 0, "nothing met a fault");
        }
        let [one_sided, sent, received, network] = self.a.ways();
        let line = self.b.ask("ways");
        let mut theirs = Words::of(&line);
        let theirs: [u64; 4] = std::array::from_fn(|_| theirs.next());
        if on_wire() {
            assert_eq!((one_sided, sent, received, theirs[1]), (0, 0, 0, 0));
            assert!(network > 0);
        } else {
            let crossed = network + theirs[3];
            assert_eq!(crossed > 0, self.wants.network, "{crossed} packets crossed the network");
            assert!(!self.wants.one_sided || one_sided > 0, "nothing was performed directly");
            assert!(
                !self.wants.tx_ring || (sent > 0 && theirs[2] > 0),
                "nothing went through the ring"
            );
        }
        self.seen
    }
}
