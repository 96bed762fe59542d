//! The command and its libraries in the virtual machine, and runs of perftest there.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use adverb_interop::vm;

const LIMIT: Duration = Duration::from_secs(180);
/// Where the command is in the machine; it looks for its libraries beside itself.
const HOME: &str = "/usr/adverb";
/// Files of one build, as cargo names them.
const LIBRARIES: [&str; 2] = ["libibverbs.so", "libadverb_preload.so"];

/// Whose device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The kernel's `rxe0`, whose loopback never leaves the driver.
    Rxe,
    /// The drop-in libraries, every packet on the network. Rxe holds UDP port 4791 of its network namespace, so they get one of their
    /// own.
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
    Ok(())
}

/// Copies the shared libraries of a file that the machine does not have yet.
fn needs(file: &Path) -> Result<(), String> {
    let out = Command::new("ldd").arg(file).output().map_err(|e| format!("ldd: {e}"))?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    for library in text.split_whitespace().filter(|w| w.starts_with('/')) {
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

/// One server and one client; gives the number in the column of the client's line of results.
pub fn run(side: Side, program: &str, flags: &str, column: usize) -> Result<f64, String> {
    static NEXT_PORT: AtomicU16 = AtomicU16::new(30_000);
    let port = NEXT_PORT.fetch_add(1, Ordering::Relaxed);
    let (before, run, device, gid, host) = match side {
        Side::Rxe => ("", String::new(), "rxe0", 1, "10.77.0.2"),
        Side::Wire | Side::Host => {
            let path = if side == Side::Wire { "wire" } else { "local" };
            let run = format!("env ADVERB_PATH={path} {HOME}/adverb run -- ");
            ("/usr/bin/ip link set lo up; ", run, "adverb_lo", 0, "127.0.0.1")
        }
    };
    // Timers of 4 s: an emulated process may be away for longer than the default 67 ms.
    let line = format!("{run}{program} -F -d {device} -x {gid} -m 4096 -u 20 -p {port} {flags}");
    let both = format!(
        "{before}{line} >/tmp/server 2>&1 & server=$!; await-port {port} 40 && {line} {host}; status=$?; \
         [ $status = 0 ] || kill $server; wait $server; [ $status = 0 ] || cat /tmp/server; exit $status"
    );
    let out = match side {
        Side::Rxe => vm::shell(&both).run(LIMIT)?,
        Side::Wire | Side::Host => vm::program("unshare", &["-n", "sh", "-c", &both]).run(LIMIT)?,
    };
    out.require_ok()?;
    let row = out
        .text
        .lines()
        .filter_map(|l| l.split_whitespace().map(|w| w.parse().ok()).collect::<Option<Vec<f64>>>())
        .find(|r| r.len() > column && r.len() >= 4);
    row.map(|r| r[column]).ok_or_else(|| format!("no line of results:\n{}", out.describe()))
}
