//! The command and its libraries in the virtual machine, and runs of perftest there.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use adverb_bench::cc;
use adverb_bench::programs::number_after;
use adverb_foreign::process::Finished;
use adverb_interop::pair::next_port;
use adverb_interop::vm;

const LIMIT: Duration = Duration::from_secs(180);
/// Directory of the command in the machine. The command looks for its libraries in its own
/// directory.
const HOME: &str = "/usr/adverb";
/// Path of the benchmark program in the machine.
const FIRST_BYTE: &str = "/usr/adverb/first_byte";
/// Files of one build, named as by cargo.
const LIBRARIES: [&str; 4] =
    ["libibverbs.so", "librdmacm.so", "libadverb_preload.so", "libadverb_audit.so"];

/// The device under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// The kernel's `rxe0`. Its loopback traffic never leaves the driver.
    Rxe,
    /// The drop-in libraries, with every packet on the network. Rxe holds UDP port 4791 of its
    /// network namespace, so the libraries run in a separate one.
    Wire,
    /// The drop-in libraries with the default path: two processes of one host.
    Host,
}

/// Copies the command, its libraries, and their dependencies into the machine.
pub fn install(adverb: &Path) -> Result<(), String> {
    let beside = adverb.parent().unwrap_or(Path::new("/"));
    vm::shell(&format!("mkdir -p {HOME}")).run(LIMIT)?.require_ok()?;
    vm::put(adverb, &format!("{HOME}/adverb"))?;
    needs(adverb)?;
    for name in LIBRARIES {
        let file = [beside.join("deps").join(name), beside.join(name)];
        let file = file.iter().find(|f| f.is_file()).ok_or_else(|| {
            format!("{name} is not built beside {}: run `make`", adverb.display())
        })?;
        vm::put(file, &format!("{HOME}/{name}"))?;
        needs(file)?;
    }
    vm::put(&cc::program("first_byte")?, FIRST_BYTE)
}

/// Copies the shared libraries that a file needs and the machine does not have yet.
fn needs(file: &Path) -> Result<(), String> {
    let out = Command::new("ldd").arg(file).output().map_err(|e| format!("ldd: {e}"))?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    // `NAME => FILE (ADDRESS)`, or `FILE (ADDRESS)`. Complaints of ldd about the system's
    // libibverbs have another form.
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

/// Kernel and processors of the machine.
pub fn kernel() -> Result<String, String> {
    let out = vm::shell("echo Linux $(uname -r), $(nproc) processors").run_ok(LIMIT)?;
    Ok(out.text.trim().to_string())
}

/// The prefix of command lines on a side, and the server's address.
fn start_of(side: Side) -> (String, &'static str) {
    match side {
        Side::Rxe => (String::new(), "10.77.0.2"),
        Side::Wire | Side::Host => {
            let path = if side == Side::Wire { "wire" } else { "local" };
            (format!("env ADVERB_PATH={path} {HOME}/adverb run --device lo -- "), "127.0.0.1")
        }
    }
}

/// Runs a shell line in the network namespace of the side's device.
fn line_of(side: Side, line: &str) -> Result<Finished, String> {
    match side {
        Side::Rxe => vm::shell(line).run_ok(LIMIT),
        Side::Wire | Side::Host => {
            let line = format!("/usr/bin/ip link set lo up; {line}");
            vm::program("unshare", &["-n", "sh", "-c", &line]).run_ok(LIMIT)
        }
    }
}

/// Runs a server that listens by its connection manager until it is killed, and a client. Returns
/// the client. `HOST` and `PORT` in the lines stand for the server's address.
fn meet(side: Side, server: &str, client: &str) -> Result<Finished, String> {
    let port = next_port();
    let (run, host) = start_of(side);
    let [server, client] =
        [server, client].map(|line| line.replace("HOST", host).replace("PORT", &port.to_string()));
    // A listener of Adverb has an abstract socket name with port space and port.
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

/// Connections per second between two processes of cmtime, with `count` connections at once. The
/// time runs from the address resolution to the last established connection.
pub fn connections(side: Side, count: u32) -> Result<f64, String> {
    let out = meet(side, "cmtime -b HOST -p PORT", &format!("cmtime -s HOST -p PORT -c {count}"))?;
    let step = |name: &str| {
        let line =
            out.text.lines().find(|l| l.split(':').next().is_some_and(|n| n.trim() == name))?;
        line.split_once(':')?.1.split_whitespace().next()?.parse::<f64>().ok()
    };
    let steps = ["resolve addr", "resolve route", "create qp", "connect"].map(step);
    let milliseconds: Option<f64> = steps.into_iter().sum();
    let total = milliseconds.ok_or_else(|| format!("no lines of times:\n{}", out.describe()))?;
    Ok(f64::from(count) * 1000.0 / total)
}

/// Microseconds from the first call of a connection until a byte of the other end arrives, the
/// median of `count` connections.
pub fn first_byte(side: Side, count: u32) -> Result<f64, String> {
    let client = format!("{FIRST_BYTE} rdma client HOST PORT {count}");
    let out = meet(side, &format!("{FIRST_BYTE} rdma server HOST PORT"), &client)?;
    let seconds = number_after(&out.text, "first_byte").ok_or_else(|| out.describe())?;
    Ok(seconds * 1e6)
}

/// Runs one server and one client. Returns the number in a column of the client's results.
pub fn run(side: Side, program: &str, flags: &str, column: usize) -> Result<f64, String> {
    let port = next_port();
    let (run, host) = start_of(side);
    let (device, gid) = if side == Side::Rxe { ("rxe0", 1) } else { ("adverb_lo", 0) };
    // A timeout of 4 s: an emulated process may be without a processor for longer than the default
    // of 67 ms.
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
