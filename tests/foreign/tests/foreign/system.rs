//! Programs that ask the system for RDMA devices instead of the library: by netlink, by files, and
//! by the connection manager's file.

use std::path::PathBuf;
use std::time::Duration;

use adverb_foreign::Verdict;
use adverb_foreign::cc::compile;
use adverb_foreign::device::{devices, loopback};
use adverb_foreign::pair::{Pair, PairOutcome};
use adverb_foreign::process::{Program, target_dir};
use adverb_foreign::require;
use adverb_foreign::suite::{Case, case};

const LIMIT: Duration = Duration::from_secs(60);

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
        case("SYS-1/rdma_system", || said(&["system"], "copy-on-fork on")),
        case("SYS-1/what_would_change_something_is_refused", refused),
        case("SYS-1/another_protocol_of_netlink_is_the_kernels", other_netlink),
        case("SYS-2/ibstat", ibstat),
        case("SYS-2/ibstatus", || shell("ibstatus", &["link_layer:\t Ethernet", "4: ACTIVE"])),
        case("SYS-2/ibv_devinfo", || shell("ibv_devinfo -v", &["link_layer:", "adverb0"])),
        case("SYS-2/a_script_over_gids", show_gids),
        case("SYS-2/names_are_of_the_kernels_kinds", kinds),
        case("SYS-2/python_lists_directories", python),
        case("SYS-2/what_the_connection_manager_says_of_itself", || {
            shell(
                "cat /sys/class/misc/rdma_cm/abi_version /proc/sys/net/rdma_ucm/max_backlog",
                &["4\n1024\n"],
            )
        }),
        case("SYS-4/stock_rping", || {
            stock(
                "rping",
                &["-s", "-a", "127.0.0.1", "-C", "20"],
                &["-c", "-a", "127.0.0.1", "-v", "-V", "-C", "20"],
                "rdma-ping-19",
            )
        }),
        case("SYS-4/stock_rstream", || stock_stream("rstream", &["-T", "b"])),
        case("SYS-4/stock_rstream_without_blocking", || stock_stream("rstream", &[])),
        case("SYS-4/stock_riostream", || stock_stream("riostream", &["-T", "b"])),
        case("SYS-4/stock_rcopy", rcopy),
    ]
}

fn kinds() -> Verdict {
    let out = Program::new(compile("sysfs")?.display().to_string(), &[] as &[&str]).run(LIMIT)?;
    out.require_ok()?;
    require!(out.text.contains("ok sysfs"), "{}", out.describe());
    Ok(())
}

fn rdma(args: &[&str]) -> Result<String, String> {
    let out = Program::new("rdma", args).run(LIMIT)?;
    out.require_ok()?;
    Ok(out.text)
}

fn rdma_link() -> Verdict {
    let program = Program::new("rdma", &["link", "show", "adverb_lo/1"]).option("--device", "lo");
    let out = program.run(LIMIT)?;
    out.require_ok()?;
    require!(out.text.contains("netdev lo"), "{}", out.describe());
    Ok(())
}

fn said(args: &[&str], what: &str) -> Verdict {
    let text = rdma(args)?;
    require!(text.contains(what), "{text}");
    Ok(())
}

/// The answer has each device that `ibv_devinfo` lists, and these words.
fn every_device(args: &[&str], words: &[&str]) -> Verdict {
    let text = rdma(args)?;
    for device in devices()? {
        require!(text.contains(&device.name), "no {}: {text}", device.name);
    }
    for word in words {
        require!(text.contains(word), "no {word}: {text}");
    }
    Ok(())
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
    let info = Program::new("ibv_devinfo", &["-v", "-d", &loopback()?.dev]).run(LIMIT)?;
    info.require_ok()?;
    let flags =
        info.text.lines().find_map(|l| l.trim().strip_prefix("device_cap_flags:")).map(str::trim);
    let flags = flags.and_then(|f| u32::from_str_radix(f.trim_start_matches("0x"), 16).ok());
    let flags = flags.ok_or_else(|| info.describe())?;
    let text = rdma(&["-d", "dev", "show", &loopback()?.dev])?;
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
    require!(!out.ok() && out.describe().contains("not supported"), "{}", out.describe());
    Ok(())
}

fn other_netlink() -> Verdict {
    let out = Program::new("ip", &["link", "show", "lo"]).run(LIMIT)?;
    require!(out.ok() && out.text.contains("LOOPBACK"), "{}", out.describe());
    Ok(())
}

fn ibstat() -> Verdict {
    let out = Program::new("ibstat", &[] as &[&str]).run(LIMIT)?;
    out.require_ok()?;
    for device in devices()? {
        require!(out.text.contains(&format!("CA '{}'", device.name)), "{}", out.describe());
    }
    require!(
        out.text.contains("State: Active") && out.text.contains("Physical state: LinkUp"),
        "{}",
        out.describe()
    );
    Ok(())
}

fn shell(script: &str, words: &[&str]) -> Verdict {
    let out = Program::new("sh", &["-c", script]).run(LIMIT)?;
    out.require_ok()?;
    for word in words {
        require!(out.text.contains(word), "no {word}: {}", out.describe());
    }
    Ok(())
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
    let out = Program::new("python3", &["-c", script]).run(LIMIT)?;
    out.require_ok()?;
    let lo = loopback()?.dev;
    require!(
        out.text.contains(&format!("{lo} ['")) && out.text.contains("/gid_attrs/ndevs/0'"),
        "{}",
        out.describe()
    );
    Ok(())
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

/// A program on Debian's librdmacm over the drop-in libibverbs.
fn on_stock(name: &str, args: &[&str]) -> Result<Program, String> {
    let script = format!(
        "export LD_LIBRARY_PATH={}:$LD_LIBRARY_PATH; exec \"$@\"",
        stock_directory()?.display()
    );
    let mut all = vec!["-c", &script, name, name];
    all.extend(args);
    Ok(Program::new("sh", &all).flag("--no-replace"))
}

/// A server and a client on Debian's librdmacm.
fn pair(name: &str, server: &[&str], client: &[&str]) -> Result<Pair, String> {
    adverb_foreign::process::which(name)?;
    Ok(Pair::by_address(on_stock(name, server)?, on_stock(name, client)?, LIMIT))
}

fn stock(name: &str, server: &[&str], client: &[&str], words: &str) -> Verdict {
    let port = ["-p", "PORT"];
    let outcome = pair(name, &[server, &port].concat(), &[client, &port].concat())?.run_ok()?;
    require!(outcome.client.text.contains(words), "{}", outcome.describe());
    Ok(())
}

/// `rstream` and `riostream`: streams of rsockets, of three sizes.
fn stock_stream(name: &str, how: &[&str]) -> Verdict {
    for size in ["64", "4096", "65536"] {
        let server = [&["-S", size, "-I", "10", "-C", "20", "-T", "v"], how].concat();
        stock(name, &server, &[&server[..], &["-s", "127.0.0.1"]].concat(), "custom")?;
    }
    Ok(())
}

fn rcopy() -> Verdict {
    let dir = target_dir()?.join("foreign-c");
    let (from, to) = (dir.join("rcopy.in"), dir.join(format!("rcopy.out.{}", std::process::id())));
    let bytes: Vec<u8> =
        (0..3_000_001_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::create_dir_all(&dir)
        .and_then(|()| std::fs::write(&from, &bytes))
        .map_err(|e| e.to_string())?;
    let (source, target) = (from.display().to_string(), format!("127.0.0.1:{}", to.display()));
    let pair = pair("rcopy", &["-p", "PORT"], &[&source, &target, "-p", "PORT"])?;
    let (mut server, client) = pair.listening()?;
    let client = client.run(LIMIT)?;
    // The server waits for further clients forever.
    server.kill_hard();
    let outcome = PairOutcome { server: server.wait(Duration::from_secs(5)), client };
    let got = std::fs::read(&to).unwrap_or_default();
    let _ = std::fs::remove_file(&to);
    require!(outcome.client.ok() && got == bytes, "{}", outcome.describe());
    Ok(())
}
