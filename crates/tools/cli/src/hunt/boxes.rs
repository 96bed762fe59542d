//! A box for each run of a hunt: a network of its own, and a `/tmp` of its own. So runs at the same
//! time meet neither in a port nor in a file under `/tmp`.
//!
//! 1. The hunt starts the hidden command [`BOX`]. This process makes the namespaces and writes
//!    [`MADE`], or the reason why there is no box.
//! 2. The hunt opens the files of the namespaces, which keep the namespaces alive, and closes the
//!    process's standard input.
//! 3. The process runs the command of `--before` and ends with the status of this command.
//! 4. Each program's `adverb run` enters the namespaces by the hunt's descriptors
//!    (`run/namespaces.rs`). The box ends with its last process.
//!
//! The network has the loopback interface, with all addresses of this machine that lead out. `/tmp`
//! is an overlay: it shows the host's `/tmp`, and what the run writes there goes with the box.
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The name of the command that makes a box.
pub const BOX: &str = "hunt-box";
/// Written by the command when the namespaces are there.
const MADE: &str = "made";
/// The namespaces of a box, in the order in which a process enters them.
const KINDS: [&str; 3] = ["user", "mnt", "net"];
/// Interval between two checks whether the command of `--before` has ended.
const LOOK: Duration = Duration::from_millis(2);
/// The directory that may be private.
const TMP: &str = "/tmp";

/// The boxes of a hunt's runs.
pub struct Boxes {
    exe: PathBuf,
    directory: PathBuf,
    before: Option<OsString>,
    used: AtomicBool,
}

/// The box of a run. Without namespaces, the run uses the host's network and `/tmp`.
#[derive(Default)]
pub struct RunBox {
    namespaces: Vec<File>,
}

impl RunBox {
    /// The arguments of `adverb run` for a program in the box.
    pub fn arguments(&self) -> impl Iterator<Item = String> {
        let of = |file: &File| format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        self.namespaces.iter().flat_map(move |file| ["--namespace".into(), of(file)])
    }
}

impl Boxes {
    pub fn new(exe: &Path, directory: &Path, before: Option<&OsString>) -> Self {
        Boxes {
            exe: exe.to_owned(),
            directory: directory.to_owned(),
            before: before.cloned(),
            used: AtomicBool::new(true),
        }
    }

    /// Has the next run a box?
    pub fn are_used(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }

    /// Gives the next runs a box or none. A command that was written for a box never runs outside
    /// of a box.
    pub fn use_them(&self, used: bool) {
        self.used.store(used || self.before.is_some(), Ordering::Relaxed);
    }

    /// Makes the box of run `n`, and runs the command of `--before` in the box. `mark` is in the
    /// environment of this command. `None`: `is_over` became true first.
    pub fn make(
        &self,
        n: usize,
        mark: (&str, &Path),
        is_over: impl Fn() -> bool,
    ) -> Result<Option<RunBox>, String> {
        if !self.are_used() {
            return Ok(Some(RunBox::default()));
        }
        let failed = |e: io::Error| format!("a box cannot be made: {e}");
        let out = self.directory.join(format!("{n}.before"));
        let output = File::create(&out).map_err(failed)?;
        let mut command = Command::new(&self.exe);
        command.arg(BOX).arg(&self.directory).args(&self.before).env(mark.0, mark.1);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(output).process_group(0);
        adverb_survivor::prepare(&mut command);
        let mut child = command.spawn().map_err(failed)?;
        let mut said = String::new();
        let told = child.stdout.take().map(|lines| BufReader::new(lines).read_line(&mut said));
        let opened = match said.trim_end() {
            MADE => namespaces(child.id()),
            _ => Ok(Vec::new()),
        };
        drop(child.stdin.take());
        let status = loop {
            match child.try_wait().map_err(failed)? {
                Some(status) => break status,
                None if is_over() => {
                    // The process is not reaped yet, so the group is its own.
                    let _ = killpg(Pid::from_raw(child.id().cast_signed()), Signal::SIGKILL);
                    child.wait().map_err(failed)?;
                    return Ok(None);
                }
                None => std::thread::sleep(LOOK),
            }
        };
        let text = fs::read(&out).map_err(failed)?;
        let text = String::from_utf8_lossy(&text);
        let _ = fs::remove_file(&out);
        told.transpose().map_err(failed)?;
        let namespaces = opened.map_err(failed)?;
        if let Some(words) = &self.before {
            let words = words.to_string_lossy();
            if namespaces.is_empty() {
                return Err(format!("--before needs a box, and no box can be made: {said}{text}"));
            } else if !status.success() {
                return Err(format!("--before: `{words}` failed ({status}):\n{}", text.trim_end()));
            }
        } else if namespaces.is_empty() {
            self.use_them(false);
        }
        Ok(Some(RunBox { namespaces }))
    }
}

/// Opens the namespaces of a process that differ from those of this process.
fn namespaces(of: u32) -> io::Result<Vec<File>> {
    let path = |of: &str, kind: &str| format!("/proc/{of}/ns/{kind}");
    let mut all = Vec::new();
    for kind in KINDS {
        let theirs = path(&of.to_string(), kind);
        if fs::read_link(&theirs)? != fs::read_link(path("self", kind))? {
            all.push(File::open(theirs)?);
        }
    }
    Ok(all)
}

/// Makes the box of a run.
#[derive(clap::Args)]
pub struct BoxArgs {
    /// The directory of the hunt.
    directory: PathBuf,
    /// The command of `--before`.
    before: Option<OsString>,
}

/// Makes the namespaces, waits until the hunt has them, and runs the command of `--before`.
pub fn main(args: &BoxArgs) -> ExitCode {
    if let Err(why) = namespaces_for(&args.directory) {
        crate::out::outln!("{why}");
        return ExitCode::SUCCESS;
    }
    crate::out::outln!("{MADE}");
    let _ = io::stdin().read_to_end(&mut Vec::new());
    let Some(words) = &args.before else { return ExitCode::SUCCESS };
    let mut command = Command::new("sh");
    command.arg("-c").arg(words).stdin(Stdio::null()).stdout(io::stderr());
    let error = command.exec();
    crate::out::errln!("sh cannot be started: {error}");
    ExitCode::from(crate::run::OWN_FAILURE)
}

/// Moves this process into namespaces of its own. `shared`: a directory that stays the host's.
fn namespaces_for(shared: &Path) -> Result<(), String> {
    let all = adverb_device::interfaces::all().map_err(|e| format!("the interfaces: {e}"))?;
    let leads_out = |ip: &IpAddr| match ip {
        IpAddr::V4(ip) => !ip.is_loopback(),
        // A link-local address needs its interface.
        IpAddr::V6(ip) => !ip.is_loopback() && !ip.is_unicast_link_local(),
    };
    let addresses: Vec<_> = all.into_iter().flat_map(|i| i.addresses).filter(leads_out).collect();
    unshare_all().map_err(|e| format!("namespaces: {e}"))?;
    adverb_os::open_loopback(&addresses).map_err(|e| format!("the loopback interface: {e}"))?;
    // Where nothing may be mounted, the runs share the host's directory.
    let _ = private_tmp(shared);
    Ok(())
}

/// Makes the namespaces, if need be in a user namespace where the user keeps the own number.
fn unshare_all() -> io::Result<()> {
    let flags = CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS;
    if unshare(flags).is_ok() {
        return Ok(());
    }
    let (user, group) = (nix::unistd::geteuid(), nix::unistd::getegid());
    unshare(flags | CloneFlags::CLONE_NEWUSER)?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
}

/// Lays a private overlay over `/tmp`. The working directory and `shared` stay the host's.
fn private_tmp(shared: &Path) -> io::Result<()> {
    let none = None::<&str>;
    let tmp = fs::canonicalize(TMP)?;
    let work = std::env::current_dir()?;
    let mut kept = Vec::new();
    for path in [fs::canonicalize(shared)?, work.clone()] {
        if path == tmp {
            return Err(io::Error::other("it is the working directory"));
        }
        if path.starts_with(&tmp) {
            kept.push((File::open(&path)?, path));
        }
    }
    // No mount of this process reaches the host.
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_SLAVE, none)?;
    let own = shared.join("tmp");
    if !own.is_dir() {
        fs::create_dir(&own)?;
    }
    mount(Some("none"), &own, Some("tmpfs"), MsFlags::empty(), Some("mode=700"))?;
    // Relative paths, because the options of an overlay have no commas in paths.
    std::env::set_current_dir(&own)?;
    let laid = overlay(&tmp, &kept);
    std::env::set_current_dir(&work)?;
    laid
}

/// Lays the overlay from directories in the working directory, and opens the host's directories
/// in the overlay.
fn overlay(tmp: &Path, kept: &[(File, PathBuf)]) -> io::Result<()> {
    let none = None::<&str>;
    ["upper", "work"].iter().try_for_each(fs::create_dir)?;
    fs::set_permissions("upper", fs::metadata(tmp)?.permissions())?;
    let lower = [b"lowerdir=", tmp.as_os_str().as_bytes()].concat();
    let options = |last: &[u8]| [&lower[..], b",upperdir=upper,workdir=work", last].concat();
    let lay = |last: &[u8]| {
        let options = OsString::from_vec(options(last));
        mount(Some("none"), tmp, Some("overlay"), MsFlags::empty(), Some(options.as_os_str()))
    };
    // In a user namespace only attributes of users are possible.
    lay(b"").or_else(|_| lay(b",userxattr"))?;
    for (host, path) in kept {
        let from = format!("/proc/self/fd/{}", host.as_raw_fd());
        if let Err(e) = mount(Some(from.as_str()), path, none, MsFlags::MS_BIND, none) {
            umount2(tmp, MntFlags::MNT_DETACH)?;
            return Err(e.into());
        }
    }
    Ok(())
}
