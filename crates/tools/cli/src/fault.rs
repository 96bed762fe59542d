//! `adverb fault`: a link of a running program goes down, or a device fails.
use adverb_device::faults::{Spec, SpecError};
use adverb_local::Asker;
use std::collections::BTreeSet;
use std::time::Duration;

/// Longest wait for the answer of a process.
const WAIT: Duration = Duration::from_secs(5);

/// Takes a link of a running program down, or has a device fail
///
/// `link-down=NAME+2s` takes the link of a device down for 2 seconds; without a time, for good.
/// `device-fatal=NAME` has the device fail for good. With `@5s` behind the name, the program
/// continues for 5 seconds first. The other faults are chosen at the start, with `adverb run
/// --fault`.
#[derive(clap::Args)]
#[command(after_help = "Example: adverb fault 4711 link-down=adverb0+2s")]
pub struct Args {
    /// The process id of the program, of its `adverb run`, or of another ancestor
    #[arg(value_name = "PID")]
    pid: i32,
    /// The faults, separated by commas
    #[arg(value_name = "FAULTS")]
    faults: String,
}

pub fn main(args: &Args) -> Result<(), String> {
    let spec: Spec = args.faults.parse().map_err(|e: SpecError| e.to_string())?;
    if spec.outages().is_empty() {
        return Err("no link and no device is named, as in link-down=adverb0+2s".into());
    }
    let mut asker = Asker::new().map_err(|e| format!("the processes cannot be asked: {e}"))?;
    let which = |pid: i32| is_of(pid, args.pid);
    let replies = asker.fault(which, &spec.to_string(), WAIT);
    if replies.is_empty() {
        return Err(format!(
            "process {} of this user and network namespace has no device open, nor has a child",
            args.pid
        ));
    }
    // A process of the tree may have opened other devices. One that has the named device is enough.
    let mut refusals = BTreeSet::new();
    for (pid, reply) in &replies {
        refusals.extend(match reply.as_deref() {
            Some("") => None,
            Some(why) => Some(format!("process {pid}: {why}")),
            None => Some(format!("process {pid} does not answer (stopped, or another version?)")),
        });
    }
    if refusals.len() < replies.len() {
        return Ok(());
    }
    Err(refusals.into_iter().collect::<Vec<_>>().join("\n"))
}

/// Is `pid` the process `ancestor`, or a descendant?
fn is_of(pid: i32, ancestor: i32) -> bool {
    let mut at = pid;
    while at > 1 {
        if at == ancestor {
            return true;
        }
        at = adverb_os::ProcessStat::of(at).map_or(0, |stat| stat.parent);
    }
    false
}
