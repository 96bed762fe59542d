//! Programs that ask the system for RDMA devices instead of the library: by netlink, by files, and
//! by the connection manager's file.

use std::path::PathBuf;
use std::time::Duration;

use adverb_foreign::Verdict;
use adverb_foreign::cc::compile;
use adverb_foreign::device::{devices, loopback};
use adverb_foreign::pair::Pair;
use adverb_foreign::process::{Finished, Program, target_dir, which};
use adverb_foreign::require;
use adverb_foreign::sockets::{rcopy, streams};
use adverb_foreign::suite::{Case, case};

const LIMIT: Duration = Duration::from_secs(60);
/// Sizes of the messages of streams.
const SIZES: [u32; 3] = [64, 4096, 65536];

pub fn cases() -> Vec<Case> {
    vec![
        case("SYS-1/rdma_dev", || every_device(&["dev"], &["node_type ca", "fw "])),
        case("SYS-1/rdma_dev_json", || every_device(&["-j", "dev"], &["\"node_guid\""])),
        case("SYS-1/rdma_dev_says_what_verbs_say", capabilities),
        case("SYS-1/rdma_link", || {
            every_device(&["link"], &["state ACTIVE", "physical_state LINK_UP", "netdev"])
        }),
        case("SYS-1/rdma_link_json", || every_device(&["-j", "link"], &["\"netdev\":"])),
        case("SYS-1/rdma_link_of_a_device", rdma_link),
        case("SYS-1/rdma_statistic_qp_mode", || {
            every_device(&["statistic", "qp", "mode"], &["auto off"])
        }),
        case("SYS-1/rdma_system", || rdma(&["system"])?.require_words(&["copy-on-fork on"])),
        case("SYS-1/what_would_change_something_is_refused", refused),
        case("SYS-1/another_protocol_of_netlink_is_the_kernels", other_netlink),
        case("SYS-2/ibstat", ibstat),
        case("SYS-2/ibstatus", || shell("ibstatus", &["link_layer:\t Ethernet", "4: ACTIVE"])),
        case("SYS-2/ibv_devinfo", || shell("ibv_devinfo -v", &["link_layer:", "adverb0"])),
        case("SYS-2/a_script_over_gids", show_gids),
        case("SYS-2/names_are_of_the_kernels_kinds", || {
            Program::of_file(&compile("sysfs")?).run_ok(LIMIT)?.require_words(&["ok sysfs"])
        }),
        case("SYS-2/python_lists_directories", python),
        case("SYS-2/what_the_connection_manager_says_of_itself", || {
            shell(
                "cat /sys/class/misc/rdma_cm/abi_version /proc/sys/net/rdma_ucm/max_backlog",
                &["4\n1024\n"],
            )
        }),
        case("SYS-4/stock_rping", || {
            let server = "rping -s -a 127.0.0.1 -C 20 -p PORT";
            let client = "rping -c -a 127.0.0.1 -v -V -C 20 -p PORT";
            stock(server, client)?.run_ok()?.client.require_words(&["rdma-ping-19"])
        }),
        case("SYS-4/stock_rstream", || streams("rstream -T b", &SIZES, stock)),
        case("SYS-4/stock_rstream_without_blocking", || streams("rstream", &SIZES, stock)),
        case("SYS-4/stock_riostream", || streams("riostream -T b", &SIZES, stock)),
        case("SYS-4/stock_rcopy", || rcopy(stock)),
    ]
}

fn rdma(args: &[&str]) -> Result<Finished, String> {
    Program::new("rdma", args).run_ok(LIMIT)
}

fn rdma_link() -> Verdict {
    let program = Program::new("rdma", &["link", "show", "adverb_lo/1"]).option("--device", "lo");
    program.run_ok(LIMIT)?.require_words(&["netdev lo"])
}

/// The answer has each device that `ibv_devinfo` lists, and these words.
fn every_device(args: &[&str], words: &[&str]) -> Verdict {
    let out = rdma(args)?;
    let names: Vec<&str> = devices()?.iter().map(|device| device.name.as_str()).collect();
    out.require_words(&names)?;
    out.require_words(words)
}

/// Names of the bits of `device_cap_flags` in the output of `rdma -d dev`, compared with the number
/// in `ibv_devinfo -v`.
fn capabilities() -> Verdict {
    const BITS: &[(u32, &str)] = &[
        (6, "UD_AV_PORT_ENFORCE"),
        (7, "CURR_QP_STATE_MOD"),
        (11, "SYS_IMAGE_GUID"),
        (12, "RC_RNR_NAK_GEN"),
        (13, "SRQ_RESIZE"),
        (17, "MEM_WINDOW"),
        (20, "XRC"),
        (21, "MEM_MGT_EXTENSIONS"),
        (24, "MEM_WINDOW_TYPE_2B"),
    ];
    let info = Program::new("ibv_devinfo", &["-v", "-d", &loopback()?.dev]).run_ok(LIMIT)?;
    let flags =
        info.text.lines().find_map(|l| l.trim().strip_prefix("device_cap_flags:")).map(str::trim);
    let flags = flags.and_then(|f| u32::from_str_radix(f.trim_start_matches("0x"), 16).ok());
    let flags = flags.ok_or_else(|| info.describe())?;
    let text = rdma(&["-d", "dev", "show", &loopback()?.dev])?.text;
    let names = text
        .split_once("caps: <")
        .and_then(|(_, rest)| rest.split_once('>'))
        .ok_or(text.clone())?
        .0;
    require!(names.split(", ").count() == flags.count_ones() as usize, "{flags:#x}: {names}");
    for (bit, name) in BITS {
        require!(names.contains(name) == (flags >> bit & 1 != 0), "{flags:#x}: {name}: {names}");
    }
    Ok(())
}

fn refused() -> Verdict {
    let out = Program::new("rdma", &["dev", "set", "adverb0", "name", "rxe0"]).run(LIMIT)?;
    out.require(!out.ok() && out.describe().contains("not supported"))
}

fn other_netlink() -> Verdict {
    let out = Program::new("ip", &["link", "show", "lo"]).run(LIMIT)?;
    out.require(out.ok() && out.text.contains("LOOPBACK"))
}

fn ibstat() -> Verdict {
    let out = Program::of_line("ibstat").run_ok(LIMIT)?;
    for device in devices()? {
        out.require_words(&[&format!("CA '{}'", device.name)])?;
    }
    out.require_words(&["State: Active", "Physical state: LinkUp"])
}

fn shell(script: &str, words: &[&str]) -> Verdict {
    Program::new("sh", &["-c", script]).run_ok(LIMIT)?.require_words(words)
}

/// The file accesses of scripts like `show_gids`: lists, loops and `cat`.
fn show_gids() -> Verdict {
    let script = "cd /sys/class/infiniband && for d in *; do for p in $(ls $d/ports); do for g in $(ls $d/ports/$p/gids); do \
                  v=$(cat /sys/class/infiniband/$d/ports/$p/gids/$g); [ $v = 0000:0000:0000:0000:0000:0000:0000:0000 ] && continue; \
                  echo $d $p $g $v $(cat $d/ports/$p/gid_attrs/types/$g) $(cat $d/ports/$p/gid_attrs/ndevs/$g); done; done; done";
    let lo = loopback()?;
    let lo = format!("{} 1 {} 0000:0000:0000:0000:0000:ffff:7f00:0001 RoCE v2 lo", lo.dev, lo.gid);
    shell(script, &[&lo])
}

fn python() -> Verdict {
    let script = "import os, glob\n\
                  for d in sorted(os.listdir('/sys/class/infiniband')):\n    \
                  p = f'/sys/class/infiniband/{d}/ports/1/gid_attrs/ndevs'\n    \
                  print(d, os.listdir(p), open(p + '/0').read().strip())\n\
                  print(glob.glob('/sys/class/infiniband/*/ports/1/gid_attrs/ndevs/0'))\n";
    let out = Program::new("python3", &["-c", script]).run_ok(LIMIT)?;
    let lo = loopback()?.dev;
    out.require_words(&[&format!("{lo} ['"), "/gid_attrs/ndevs/0'"])
}

/// A directory with only Debian's librdmacm, which comes before the drop-in libraries.
fn stock_directory() -> Result<PathBuf, String> {
    let real = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64"]
        .iter()
        .map(|dir| PathBuf::from(dir).join("librdmacm.so.1"))
        .find(|path| path.exists())
        .ok_or("no librdmacm.so.1 of the system's: run scripts/test-deps")?;
    let dir = target_dir()?.join("foreign-c/stock-rdmacm");
    std::fs::create_dir_all(&dir).map_err(|e| e.to_string())?;
    let _ = std::os::unix::fs::symlink(real, dir.join("librdmacm.so.1"));
    Ok(dir)
}

/// A server and a client on Debian's librdmacm over the drop-in libibverbs.
fn stock(server: &str, client: &str) -> Result<Pair, String> {
    let directory = stock_directory()?.display().to_string();
    let end = |line: &str| {
        let script = format!("export LD_LIBRARY_PATH={directory}:$LD_LIBRARY_PATH; exec {line}");
        Program::new("sh", &["-c", &script]).flag("--no-replace")
    };
    which(server.split(' ').next().unwrap_or_default())?;
    Ok(Pair::by_address(end(server), end(client), LIMIT))
}
