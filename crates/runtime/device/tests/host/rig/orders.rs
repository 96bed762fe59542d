//! A rig executes the orders of the process at the other end of a pipe ([`Rig::obey`]).
use super::*;
use crate::talk::ROLE;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::str::FromStr;

impl Rig {
    /// Executes an order of the other process. An order is a line, and so is the answer.
    pub fn obey(&mut self, line: &str) -> String {
        let mut words = Words(line.split_whitespace());
        let order: String = words.next();
        let w = &mut words;
        match order.as_str() {
            "fill" => {
                let (at, offset, len, seed) = (w.next::<usize>(), w.next(), w.next(), w.next());
                self.regions[at].put(offset, &pattern(len, seed));
            }
            "put" => {
                let (at, offset, word) = (w.next::<usize>(), w.next(), w.next::<u64>());
                self.regions[at].put(offset, &word.to_ne_bytes());
            }
            "destroy" => self.qps[w.next::<usize>()].0.destroy().unwrap(),
            "connect" => self.connect(w.next(), w.next()),
            "recv" => {
                let (at, wr_id) = (w.next(), w.next());
                let mut sges = Vec::new();
                while w.any() {
                    sges.push(self.regions[w.next::<usize>()].sge(w.next(), w.next()));
                }
                self.recv(at, wr_id, &sges);
            }
            // Posts `count` receives, all into the same memory.
            "recvs" => {
                let (at, count, region) = (w.next(), w.next(), w.next::<usize>());
                let sges = [self.regions[region].sge(0, w.next())];
                (0..count).for_each(|n| self.recv(at, n, &sges));
            }
            "flood" => {
                let (at, count, region, len) = (w.next(), w.next(), w.next::<usize>(), w.next());
                let sges = [self.regions[region].sge(0, len)];
                (0..count).for_each(|n| self.send(at, n, SendOp::Send, &sges));
            }
            "arm" => {
                let kind = if w.next::<u8>() == 1 { ArmKind::Solicited } else { ArmKind::Next };
                self.cq.req_notify(kind).unwrap();
            }
            "dereg" => self.regions[w.next::<usize>()].dereg(),
            // Changes the access rights of the queue pair. The right to perform atomics stays.
            "change" => {
                let (at, times) = (w.next::<usize>(), w.next::<usize>());
                for i in 0..times {
                    let access = if i % 2 == 0 { ALL - Access::FLUSH_GLOBAL } else { ALL };
                    let attr = QpAttr { access, ..QpAttr::default() };
                    self.qps[at].0.modify(&attr, AttrMask::ACCESS_FLAGS).unwrap();
                }
            }
            // The process executes another program and keeps its process number.
            "exec" => {
                let mut command = Command::new(std::env::current_exe().unwrap());
                panic!("{}", command.env(ROLE, "other").exec());
            }
            question => return self.answer(question, w),
        }
        String::new()
    }

    /// Executes an order that has an answer.
    fn answer(&mut self, question: &str, w: &mut Words<'_>) -> String {
        match question {
            "region" => {
                let kind: String = w.next();
                let all = [KINDS.as_slice(), &[Kind::OnDemand, Kind::Dm, Kind::Null]].concat();
                let kind = all.into_iter().find(|k| format!("{k:?}") == kind).expect("a kind");
                let at =
                    self.region(kind, w.next(), Access::from_bits_truncate(w.next()), w.next());
                let region = &self.regions[at];
                format!("{at} {} {}", region.addr, region.key())
            }
            "same" => {
                let (at, offset, len, seed) =
                    (w.next::<usize>(), w.next(), w.next::<usize>(), w.next());
                (self.regions[at].get(offset, len) == pattern(len, seed)).to_string()
            }
            // Compares the bytes from `offset` on in a filled region.
            "tail" => {
                let (at, offset, len, seed) =
                    (w.next::<usize>(), w.next(), w.next::<usize>(), w.next());
                (self.regions[at].get(offset, len - offset) == pattern(len, seed)[offset..])
                    .to_string()
            }
            "word" => {
                let at: usize = w.next();
                self.regions[at].word(w.next()).to_string()
            }
            // Reads memory only and calls no verb.
            "spin" => {
                let (at, offset, word) = (w.next::<usize>(), w.next(), w.next::<u64>());
                let end = Instant::now() + HANG_LIMIT;
                while self.regions[at].word(offset) != word && Instant::now() < end {
                    std::thread::yield_now();
                }
                self.regions[at].word(offset).to_string()
            }
            "qp" => self.qp(Shape::parse(w)).to_string(),
            "cut" => self.cut(w.next(), w.next(), w.next()).to_string(),
            "wait" => self.wait(w.next()).iter().map(show).collect::<Vec<_>>().join(" "),
            "event" => match self.channel.next_event(Some(Instant::now() + HANG_LIMIT)) {
                Ok(cq) => {
                    cq.ack_events(1);
                    "true".into()
                }
                Err(Errno::ETIMEDOUT) => "false".into(),
                Err(e) => panic!("{e}"),
            },
            "any_event" => {
                self.context.node().progress();
                self.channel.try_event().is_some().to_string()
            }
            "bind" => {
                let at = w.next();
                let ty = if w.next::<u8>() == 1 { MwType::Type1 } else { MwType::Type2 };
                self.bind(at, ty, w.next(), w.next(), w.next()).to_string()
            }
            // Takes memory or a queue pair from peers that write.
            "withdraw" => {
                let how: String = w.next();
                let (at, region, len) = (w.next::<usize>(), w.next(), w.next());
                self.wait_for_bytes(region, len);
                match how.as_str() {
                    "dereg" => self.regions[region].dereg(),
                    "reset" => self.to(at, QpState::Reset),
                    "error" => self.to(at, QpState::Err),
                    _ => self.qps[at].0.destroy().unwrap(),
                }
                self.stays(region, len).to_string()
            }
            "counters" => {
                let counters = self.qps[w.next::<usize>()].0.counters();
                format!("{} {}", counters.naks_sent, counters.duplicates)
            }
            "xrc_srq" => self.xrc_srq.number().to_string(),
            "ways" => self.ways().map(|n| n.to_string()).join(" "),
            other => panic!("no such order: {other}"),
        }
    }

    /// Moves a queue pair to ERR when `first` completions are there, or after 100 ms. Then waits
    /// for the completions of all receives and returns the number of successful ones.
    fn cut(&self, at: usize, count: usize, first: usize) -> usize {
        let end = Instant::now() + Duration::from_millis(100);
        while self.cq.len() < first && Instant::now() < end {
            self.context.node().progress();
        }
        self.to(at, QpState::Err);
        self.wait(count).iter().filter(|done| done.status == WcStatus::Success).count()
    }

    /// Reads memory until a peer has written the last bytes.
    fn wait_for_bytes(&self, region: usize, len: usize) {
        let (end, zeros) = (Instant::now() + HANG_LIMIT, vec![0; 8]);
        while self.regions[region].get(len - 8, 8) == zeros {
            assert!(Instant::now() < end, "nothing is written");
            std::thread::yield_now();
        }
    }

    /// Whether memory stays unchanged after the peers have lost access. The check takes 50 ms, so a
    /// peer that still writes gets the processor many times.
    fn stays(&self, region: usize, len: usize) -> bool {
        let canary = pattern(len, 0x00c0_ffee);
        self.regions[region].put(0, &canary);
        (0..50).all(|_| {
            std::thread::sleep(Duration::from_millis(1));
            self.regions[region].get(0, len) == canary
        })
    }
}

/// The words of a line, parsed on request.
pub struct Words<'a>(std::str::SplitWhitespace<'a>);

impl<'a> Words<'a> {
    pub fn of(line: &'a str) -> Self {
        Words(line.split_whitespace())
    }
    /// Whether another word follows.
    fn any(&self) -> bool {
        self.0.clone().next().is_some()
    }
    pub fn next<T: FromStr>(&mut self) -> T {
        let word = self.0.next().expect("another word");
        word.parse().unwrap_or_else(|_| panic!("{word:?} is something else"))
    }
}
