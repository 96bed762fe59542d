//! Two network namespaces of this program, joined by a virtual cable.

use std::net::Ipv4Addr;
use std::process::Stdio;
use std::time::Duration;

use adverb_bench::Result;
use adverb_bench::ends::{Ends, PairEnd};
use adverb_bench::lean::LeanPath;
use adverb_bench::places::CABLES;
use adverb_foreign::device::{DeviceArgs, parse_devinfo};
use adverb_foreign::hosts::cabled;
use adverb_foreign::process::{Program, words};

/// Goes on as the arguments. UCX looks for interfaces in /sys, which `ip netns exec` mounts anew in
/// the other namespace.
const GO_ON: &str = r#"
mount -t sysfs none /sys
exec "$@"
"#;

const HERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const THERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
/// The prefix of commands in the other namespace.
const ELSEWHERE: &str = "ip netns exec other";
/// Time limit for a device to appear on its interface, and the number of looks.
const UP: Duration = Duration::from_secs(10);
const LOOKS: usize = 100;

/// Runs this program again in new namespaces with this cable.
pub fn outside(cable: &str, check: bool, time: Duration) -> Result<()> {
    let mtu = CABLES.iter().find(|(name, ..)| *name == cable).map(|(_, mtu, _)| *mtu);
    let mtu = mtu.ok_or_else(|| format!("no cable {cable:?}"))?;
    let me = std::env::current_exe().map_err(|e| format!("own path: {e}"))?;
    let mut command = cabled(mtu, GO_ON);
    command.arg(me).args(["--inside", "--ms", &time.as_millis().to_string(), cable]);
    if check {
        command.arg("--check");
    }
    // `adverb run` would keep its tree in this directory, and the new /run hides it.
    command.env_remove("XDG_RUNTIME_DIR").stdin(Stdio::null());
    let status = command.status().map_err(|e| format!("unshare: {e}"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("no network namespaces with a cable: {status}"))
    }
}

/// The ends of the cable, when both devices are there. The server is in the first namespace.
pub fn ends() -> Result<Ends> {
    let end = |before: &str, address: Ipv4Addr, interface: &str| -> Result<PairEnd> {
        let before = words(before);
        Ok(PairEnd { device: device(&before, address)?, before, interface: interface.to_string() })
    };
    Ok(Ends {
        server: end("", HERE, "here")?,
        client: end(ELSEWHERE, THERE, "there")?,
        host: HERE.to_string(),
    })
}

/// The way of the lean program: from this namespace to the client's.
pub fn way(client: &PairEnd) -> LeanPath<'_> {
    LeanPath { here: HERE, there: THERE, before: &client.before }
}

/// The device with this address.
fn device(before: &[String], address: Ipv4Addr) -> Result<DeviceArgs> {
    let argv: Vec<String> = before.iter().cloned().chain(words("ibv_devinfo -v")).collect();
    let mut last = String::new();
    for _ in 0..LOOKS {
        let out = Program::new(&argv[0], &argv[1..]).run(UP)?;
        for device in parse_devinfo(&out.text).unwrap_or_default() {
            let index = device.gid_index(address.to_ipv6_mapped());
            if let Some(index) =
                index.filter(|_| device.field("state").is_some_and(|s| s.contains("ACTIVE")))
            {
                return Ok(DeviceArgs { dev: device.name, gid: index.to_string() });
            }
        }
        last = out.describe();
        std::thread::sleep(UP / LOOKS as u32);
    }
    Err(format!("no active device with the address {address}: {last}"))
}
