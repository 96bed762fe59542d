//! Two processes: this program starts itself a second time. The standard streams of the second
//! process are the channel between them.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::EventFd;
use nix::unistd::Pid;

use crate::Result;
use crate::series::Series;

/// First argument of the second process. The processor follows, or [`ANY`].
pub const CHILD: &str = "child";
/// Takes the place of a processor: no pinning.
pub const ANY: &str = "any";

/// How long a measurement takes, and which ones: what most of the programs are told.
#[derive(Debug, clap::Args)]
pub struct Chosen {
    /// Milliseconds for each measurement
    #[arg(long, default_value_t = 700)]
    pub ms: u64,
    /// The measurements; all of them if none is named
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
}

impl Chosen {
    /// Length of a measurement.
    #[must_use]
    pub fn time(&self) -> Duration {
        Duration::from_millis(self.ms)
    }

    /// The chosen names among the known names, or all known names.
    ///
    /// # Errors
    /// An unknown name, and the list of the known names.
    pub fn of<'a>(&self, known: &[&'a str]) -> Result<Vec<&'a str>> {
        if self.names.is_empty() {
            return Ok(known.to_vec());
        }
        let find = |name: &String| known.iter().find(|k| *k == name).copied();
        let unknown = |name| format!("{name:?} is unknown; there are {}", known.join(", "));
        self.names.iter().map(|name| find(name).ok_or_else(|| unknown(name))).collect()
    }
}

/// Arguments of the second process after the first one; `None` in the first process.
#[must_use]
pub fn child_args() -> Option<Vec<String>> {
    let mut args = std::env::args().skip(1);
    (args.next().as_deref() == Some(CHILD)).then(|| args.collect())
}

/// Ends a program. An error is printed with the program's name.
#[must_use]
pub fn ended(program: &str, result: Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{program}: {why}");
            ExitCode::FAILURE
        }
    }
}

/// The processors of the two ends: the first two allowed for this process.
#[derive(Clone, Copy, Debug)]
pub struct Cpus {
    /// Processor of the measuring end.
    pub here: usize,
    /// Processor of the child. On a machine with one processor both are the same.
    pub there: usize,
}

impl Cpus {
    /// Must be called before this process is pinned.
    pub fn allowed() -> Result<Self> {
        let set =
            sched_getaffinity(Pid::from_raw(0)).map_err(|e| format!("sched_getaffinity: {e}"))?;
        let mut cpus = (0..CpuSet::count()).filter(|c| set.is_set(*c).unwrap_or(false));
        let here = cpus.next().ok_or("no processor to run on")?;
        Ok(Self { here, there: cpus.next().unwrap_or(here) })
    }
}

/// Keeps this process on one processor.
pub fn pin(cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu)
        .and_then(|()| sched_setaffinity(Pid::from_raw(0), &set))
        .map_err(|e| format!("cpu {cpu}: {e}"))
}

/// The second process. Dropping this value kills the process.
pub struct Other {
    child: Child,
    lines: Option<BufReader<ChildStdout>>,
}

impl Other {
    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the end of the process.
    pub fn end(mut self) -> Result<()> {
        let status = self.child.wait().map_err(|e| format!("wait: {e}"))?;
        if status.success() { Ok(()) } else { Err(format!("the other process: {status}")) }
    }

    /// A line of output, without the newline.
    pub fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        let lines = self.lines.as_mut().ok_or("no pipe from the other process")?;
        lines.read_line(&mut line).map_err(|e| format!("other process: {e}"))?;
        Ok(line.trim_end().to_string())
    }

    /// Sends a line to the process.
    pub fn say(&mut self, line: &str) -> Result<()> {
        let pipe = self.child.stdin.as_mut().ok_or("no pipe to the other process")?;
        pipe.write_all(format!("{line}\n").as_bytes()).map_err(|e| format!("other process: {e}"))
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// This program again, behind a command that starts it elsewhere.
fn myself(before: &[String], cpu: Option<usize>, args: &[String]) -> Result<Command> {
    let exe = std::env::current_exe().map_err(|e| format!("own path: {e}"))?;
    let mut line = before.iter().map(OsString::from).chain([exe.into()]);
    let mut command = Command::new(line.next().unwrap_or_default());
    command.args(line);
    command.arg(CHILD).arg(cpu.map_or(ANY.to_string(), |c| c.to_string())).args(args);
    // Connections by address use this device, too.
    command.env("ADVERB_DEVICES", "lo");
    Ok(command)
}

fn spawn(command: &mut Command) -> Result<Other> {
    let mut child = command.spawn().map_err(|e| format!("second process: {e}"))?;
    let lines = child.stdout.take().map(BufReader::new);
    Ok(Other { child, lines })
}

/// Starts the second process on a processor. [`Other::line`] reads its output.
pub fn start(cpu: usize, args: &[String]) -> Result<Other> {
    talk(Some(cpu), args)
}

/// The same behind a command that starts the process elsewhere.
pub fn start_with(before: &[String], cpu: usize, args: &[String]) -> Result<Other> {
    spawn(myself(before, Some(cpu), args)?.stdin(Stdio::piped()).stdout(Stdio::piped()))
}

/// The same on a given processor, or unpinned. [`Other::say`] sends lines to the process, which
/// ends at the end of its input.
pub fn talk(cpu: Option<usize>, args: &[String]) -> Result<Other> {
    talk_with(cpu, args, &[])
}

/// The same with environment variables; `None` removes a variable.
pub fn talk_with(
    cpu: Option<usize>,
    args: &[String],
    env: &[(&str, Option<&str>)],
) -> Result<Other> {
    let mut command = myself(&[], cpu, args)?;
    for (name, value) in env {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()))
}

/// Two eventfds, one for each direction, with a process of the given kind as an echo.
pub fn eventfds(cpu: usize, kind: &str) -> Result<(File, File, Other)> {
    let pair = || -> Result<(File, OwnedFd)> {
        let ours: OwnedFd = EventFd::new().map_err(|e| format!("eventfd: {e}"))?.into();
        let theirs = ours.try_clone().map_err(|e| format!("eventfd: {e}"))?;
        Ok((File::from(ours), theirs))
    };
    let ((there, stdin), (back, stdout)) = (pair()?, pair()?);
    let mut command = myself(&[], Some(cpu), &[kind.to_string()])?;
    Ok((there, back, spawn(command.stdin(stdin).stdout(stdout))?))
}

/// The child's ends of [`eventfds`].
pub fn inherited_eventfds() -> Result<(File, File)> {
    let own = |fd: std::os::fd::BorrowedFd<'_>| {
        fd.try_clone_to_owned().map(File::from).map_err(|e| e.to_string())
    };
    Ok((own(std::io::stdin().as_fd())?, own(std::io::stdout().as_fd())?))
}

/// An epoll for reading descriptors, level-triggered. The data of each descriptor is the index.
pub fn epoll_of<F: AsFd>(fds: &[F]) -> Result<Epoll> {
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(|e| format!("epoll: {e}"))?;
    for (n, fd) in fds.iter().enumerate() {
        let event = EpollEvent::new(EpollFlags::EPOLLIN, n as u64);
        epoll.add(fd, event).map_err(|e| format!("epoll: {e}"))?;
    }
    Ok(epoll)
}

/// Sleeps until a descriptor is readable; `false` at the time limit.
pub fn sleep(epoll: &Epoll, limit: EpollTimeout) -> Result<bool> {
    loop {
        match epoll.wait(&mut [EpollEvent::empty()], limit) {
            Ok(n) => return Ok(n > 0),
            Err(Errno::EINTR) => {}
            Err(e) => return Err(format!("epoll_wait: {e}")),
        }
    }
}

/// Round trips, timed one by one as in perftest, so both quote a median.
pub struct Trips {
    end: Instant,
    last: Instant,
    trips: Vec<Duration>,
}

impl Trips {
    /// Round trips for this time. The memory for them is allocated now.
    pub fn new(time: Duration) -> Self {
        let now = Instant::now();
        Self { end: now + time, last: now, trips: Vec::with_capacity(1 << 20) }
    }

    /// Whether there is time for another round trip.
    pub fn more(&self) -> bool {
        self.last < self.end && self.trips.len() < self.trips.capacity()
    }

    /// A round trip is complete.
    pub fn done(&mut self) {
        let now = Instant::now();
        self.trips.push(now - self.last);
        self.last = now;
    }

    /// Half of the median, in seconds.
    pub fn half_median(self) -> f64 {
        let trips = Series::of(self.trips.iter().map(Duration::as_secs_f64));
        trips.map_or(f64::NAN, |s| s.median / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        chosen: Chosen,
    }

    #[test]
    fn names_are_chosen_and_unknown_ones_refused() {
        let read = |line: &str| Line::try_parse_from(line.split(' ')).unwrap().chosen;
        let known = ["a", "b"];
        assert_eq!(read("limits --ms 20 b").of(&known).unwrap(), ["b"]);
        assert_eq!(read("limits").of(&known).unwrap(), known);
        assert_eq!(
            (read("limits").time(), read("limits --ms 20").ms),
            (Duration::from_millis(700), 20)
        );
        let why = read("limits c").of(&known).unwrap_err();
        assert!(why.contains("\"c\"") && why.contains("a, b"), "{why}");
        assert!(Line::try_parse_from(["limits", "--ms", "x"]).is_err());
    }
}
