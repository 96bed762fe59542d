//! The command and its libraries in the virtual machine, and runs of perftest there.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use adverb_bench::cc;
use adverb_bench::programs::number_after;
use adverb_foreign::process::Finished;
use adverb_interop::vm;

const LIMIT: Duration = Duration::from_secs(180);
/// Where the command is in the machine; it looks for its libraries beside itself.
const HOME: &str = "/usr/adverb";
/// Where the program is that measures it.
const FIRST_BYTE: &str = "/usr/adverb/first_byte";
/// Files of one build, as cargo names them.
const LIBRARIES: [&str; 4] = ["libibverbs.so", "librdmacm.so", "libadverb_preload.so", "libadverb_audit.so"];

/// Whose device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The kernel's `rxe0`, whose loopback never leaves the driver.
    Rxe,
    /// The drop-in libraries, every packet on the network. Rxe holds UDP port 4791 of its network
    /// namespace, so they get one of their own.
    Wire,
    /// The same as it is without being told: two processes of one host.
    Host,
}

/// Copies the command, its libraries, and what these load into the machine.
pub fn install(adverb: &Path) -> Result<(), String> {
    let beside = adverb.parent().unwrap_or(Path::new("/"));
    vm::shell(&format!("mkdir -p {HOME}")).run(LIMIT)?.require_ok()?;
    vm::put(adverb, &format!("{HOME}/adverb"))?;
    needs(adverb)?;
    for name in LIBRARIES {
        let file = [beside.join("deps").join(name), beside.join(name)];
        let file = file
            .iter()
            .find(|f| f.is_file())
            .ok_or_else(|| format!("{name} is not built beside {}: run `make`", adverb.display()))?;
        vm::put(file, &format!("{HOME}/{name}"))?;
        needs(file)?;
    }
    vm::put(&cc::program("first_byte")?, FIRST_BYTE)
}

/// Copies the shared libraries of a file that the machine does not have yet.
fn needs(file: &Path) -> Result<(), String> {
    let out = Command::new("ldd").arg(file).output().map_err(|e| format!("ldd: {e}"))?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    // `NAME => FILE (ADDRESS)`, or `FILE (ADDRESS)`. What ldd finds amiss with the system's
    // libibverbs is no such line.
    let file_of = |line: &'_ str| {
        let (file, _) = line.split_once(" (0x")?;
        let file = file.rsplit("=> ").next()?.trim();
        file.starts_with('/').then(|| file.to_owned())
    };
    for library in text.lines().filter_map(file_of) {
        let library = library.as_str();
        if !vm::shell(&format!("test -e {library}")).run(LIMIT)?.ok() {
            vm::put(Path::new(library), library)?;
        }
    }
    Ok(())
}

/// Its kernel and processors.
pub fn kernel() -> Result<String, String> {
    let out = vm::shell("echo Linux $(uname -r), $(nproc) processors").run(LIMIT)?;
    out.require_ok()?;
    Ok(out.text.trim().to_string())
}

/// How programs are started on a side, and the address that they meet at.
fn start_of(side: Side) -> (String, &'static str) {
    match side {
        Side::Rxe => (String::new(), "10.77.0.2"),
        Side::Wire | Side::Host => {
            let path = if side == Side::Wire { "wire" } else { "local" };
            (format!("env ADVERB_PATH={path} {HOME}/adverb run -- "), "127.0.0.1")
        }
    }
}

/// Runs a line of the shell where the side has its device.
fn line_of(side: Side, line: &str) -> Result<Finished, String> {
    let out = match side {
        Side::Rxe => vm::shell(line).run(LIMIT)?,
        Side::Wire | Side::Host => {
            let line = format!("/usr/bin/ip link set lo up; {line}");
            vm::program("unshare", &["-n", "sh", "-c", &line]).run(LIMIT)?
        }
    };
    out.require_ok()?;
    Ok(out)
}

/// A server that listens by its connection manager until it is killed, and its client, of which the
/// words come back. In the lines `HOST` and `PORT` are where they meet.
fn meet(side: Side, server: &str, client: &str) -> Result<Finished, String> {
    let port = next_port();
    let (run, host) = start_of(side);
    let [server, client] =
        [server, client].map(|line| line.replace("HOST", host).replace("PORT", &port.to_string()));
    // A listener of ours is a name with port space and port in it.
    let listens = match side {
        Side::Rxe => format!("await-cm {port} 40"),
        Side::Wire | Side::Host => format!(
            "n=0; until grep -q -- -cm-106{port:04x}- /proc/net/unix; do n=$((n + 1)); [ $n -lt 400 ] || break; usleep 100000; done"
        ),
    };
    line_of(
        side,
        &format!(
            "{run}{server} >/tmp/server 2>&1 & server=$!; {listens}; {run}{client}; status=$?; \
             kill -9 $server; [ $status = 0 ] || cat /tmp/server; exit $status"
        ),
    )
}

/// Connections that two processes of cmtime make a second, so many at once: from the addresses to
/// the last one established.
pub fn connections(side: Side, count: u32) -> Result<f64, String> {
    let out = meet(side, "cmtime -b HOST -p PORT", &format!("cmtime -s HOST -p PORT -c {count}"))?;
    let step = |name: &str| {
        let line = out.text.lines().find(|l| l.split(':').next().is_some_and(|n| n.trim() == name))?;
        line.split_once(':')?.1.split_whitespace().next()?.parse::<f64>().ok()
    };
    let steps = ["resolve addr", "resolve route", "create qp", "connect"].map(step);
    let milliseconds: Option<f64> = steps.into_iter().sum();
    let total = milliseconds.ok_or_else(|| format!("no lines of times:\n{}", out.describe()))?;
    Ok(f64::from(count) * 1000.0 / total)
}

/// Microseconds from the first call for a connection until a byte of the other end is there, the
/// median of so many.
pub fn first_byte(side: Side, count: u32) -> Result<f64, String> {
    let client = format!("{FIRST_BYTE} rdma client HOST PORT {count}");
    let out = meet(side, &format!("{FIRST_BYTE} rdma server HOST PORT"), &client)?;
    let seconds = number_after(&out.text, "first_byte").ok_or_else(|| out.describe())?;
    Ok(seconds * 1e6)
}

fn next_port() -> u16 {
    static NEXT_PORT: AtomicU16 = AtomicU16::new(30_000);
    NEXT_PORT.fetch_add(1, Ordering::Relaxed)
}

/// One server and one client; gives the number in the column of the client's line of results.
pub fn run(side: Side, program: &str, flags: &str, column: usize) -> Result<f64, String> {
    let port = next_port();
    let (run, host) = start_of(side);
    let (device, gid) = if side == Side::Rxe { ("rxe0", 1) } else { ("adverb_lo", 0) };
    // Timers of 4 s: an emulated process may be away for longer than the default 67 ms.
    let line = format!("{run}{program} -F -d {device} -x {gid} -m 4096 -u 20 -p {port} {flags}");
    let out = line_of(
        side,
        &format!(
            "{line} >/tmp/server 2>&1 & server=$!; await-port {port} 40 && {line} {host}; status=$?; \
             [ $status = 0 ] || kill $server; wait $server; [ $status = 0 ] || cat /tmp/server; exit $status"
        ),
    )?;
    let row = out
        .text
        .lines()
        .filter_map(|l| l.split_whitespace().map(|w| w.parse().ok()).collect::<Option<Vec<f64>>>())
        .find(|r| r.len() > column && r.len() >= 4);
    row.map(|r| r[column]).ok_or_else(|| format!("no line of results:\n{}", out.describe()))
}
