//! A test of messages of one size: a program of perftest, or a test of `ucx_perftest`.

use adverb_foreign::process::{Program, words};

use crate::ends::{Ends, PairEnd};
use crate::programs::{Figures, LIMIT, PATH, both_ok, latencies, middle, row, shown};
use crate::{Result, ucx};

/// A program of perftest, or a test of `ucx_perftest`, for one message size.
#[derive(Clone, Copy, Debug)]
pub struct Test<'a> {
    /// Program or test, and options.
    pub program: &'a str,
    /// Bytes of a message.
    pub size: usize,
    /// Whether the test measures latency.
    pub latency: bool,
    /// What carries the messages.
    pub over: Over<'a>,
}

/// What carries the messages of a test.
#[derive(Clone, Copy, Debug)]
pub enum Over<'a> {
    /// Adverb's verbs: perftest.
    Verbs {
        /// Value of [`PATH`], if set.
        path: Option<&'a str>,
        /// The peer maps none of the programs' allocations (`ADVERB_ADOPT=off`).
        private: bool,
    },
    /// UCX over these transports (`UCX_TLS`), without Adverb.
    Ucx(&'a str),
    /// UCX over these transports, on Adverb's device.
    UcxOnAdverb(&'a str),
}

impl Test<'_> {
    /// Runs `n` iterations between two ends.
    ///
    /// # Errors
    /// The program failed or printed something else; with its output.
    pub fn run(&self, ends: &Ends, n: usize) -> Result<Figures> {
        match self.over {
            Over::Verbs { path, private } => self.perftest(ends, n, path, private),
            Over::Ucx(tls) => ucx::run(self.program, self.size, self.latency, ends, n, tls, false),
            Over::UcxOnAdverb(tls) => {
                ucx::run(self.program, self.size, self.latency, ends, n, tls, true)
            }
        }
    }

    /// The latencies of a message: half a round trip is quoted, but the whole one for READ and
    /// atomics.
    #[must_use]
    pub fn trips(&self) -> f64 {
        let whole = ["ib_read", "ib_atomic", "ucp_get", "ucp_fadd"];
        if whole.iter().any(|start| self.program.starts_with(start)) { 1.0 } else { 2.0 }
    }

    /// A latency comes from all measured round trips, because the program's own table rounds to
    /// hundredths of a microsecond.
    fn perftest(
        &self,
        ends: &Ends,
        n: usize,
        path: Option<&str>,
        private: bool,
    ) -> Result<Figures> {
        let out = ends.run(|end| self.program(end, n, path, private), LIMIT)?;
        if !both_ok(&out) {
            return Err(shown(&out));
        }
        let text = &out.client.text;
        let found =
            if self.latency { latencies(text).and_then(middle) } else { row(text, self.size) };
        found.ok_or_else(|| shown(&out))
    }

    fn program(&self, end: &PairEnd, n: usize, path: Option<&str>, private: bool) -> Program {
        let more = if self.latency { "-H" } else { "-N" };
        let args = end.device.args("-x", &format!("-F -s {} -n {n} {more}", self.size)).join(" ");
        let program = end.program(&words(format!("{} {args}", self.program)));
        let program = path.into_iter().fold(program, |p, path| p.env(PATH, path));
        if private { program.env("ADVERB_ADOPT", "off") } else { program }
    }
}
