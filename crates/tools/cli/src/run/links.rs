//! `rdma link add` and `rdma link delete` under `adverb run`.
//!
//! A child cannot change the environment of later processes. So the environment of a run names a
//! link (`ADVERB_LINKS`) that does not exist at first. A change makes a tree with the new devices,
//! and lets the link lead to the tree, in one step. The preloaded library takes files from that
//! tree, and the device reads its selection there. Processes that run already keep their devices.
use super::sysroot::{KIND, changeable};
use super::tree::{forget_old, place_tree};
use adverb_device::interfaces;
use adverb_device::selection::{self, Item, LINKS, Selection};
use nix::errno::Errno;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The names of links begin with this word and a hyphen.
pub const LINK_KIND: &str = "links";
/// The drivers of Linux that make devices in software.
const DRIVERS: [&str; 2] = ["rxe", "siw"];

/// What the preloaded library asks for. The exit status is 0 or an errno.
#[derive(clap::Args)]
pub struct Args {
    /// add or delete
    verb: String,
    name: String,
    driver: String,
    interface: String,
}

/// The variable for a program: the name of a new link, unless the program belongs to a run with a
/// link. `chosen`: the devices are those of an option, and not of that run.
pub fn variable(
    sysroot: Option<&Path>,
    chosen: bool,
) -> Result<Option<(&'static str, OsString)>, String> {
    let has_link = std::env::var_os(LINKS).is_some_and(|link| !link.is_empty());
    if has_link && !chosen {
        return Ok(None);
    }
    let Some(directory) = sysroot.and_then(Path::parent) else {
        return Ok(has_link.then(|| (LINKS, OsString::new())));
    };
    let link = directory.join(format!("{LINK_KIND}-{:016x}", super::random()?));
    Ok(Some((LINKS, link.into())))
}

/// The errno for `rdma`, and the reason with a remedy.
type Refusal = (Errno, String);

pub fn main(args: &Args) -> ExitCode {
    let Err((errno, why)) = change(args) else { return ExitCode::SUCCESS };
    crate::out::errln!("adverb: rdma link {} {}: {why}", args.verb, args.name);
    ExitCode::from(errno as u8)
}

fn change(args: &Args) -> Result<(), Refusal> {
    let io = |why: String| (Errno::EIO, why);
    let link = adverb_os::chosen(LINKS).map(PathBuf::from).unwrap_or_default();
    let Some(directory) = link.parent().filter(|directory| directory.is_absolute()) else {
        let why = format!("no run can be changed, because {LINKS} is empty");
        return Err((Errno::EOPNOTSUPP, why));
    };
    // Two changes at the same moment come one after the other.
    let lock = File::open(directory).and_then(|lock| lock.lock().map(|()| lock));
    let _lock = lock.map_err(|e| io(format!("{}: {e}", directory.display())))?;
    let before = selection::selection();
    let after = match &*args.verb {
        "add" => with(before, args)?,
        _ => before.without(&args.name).ok_or_else(|| {
            let why =
                "only a device that was made by NAME@INTERFACE, or by `rdma link add`, can go";
            (Errno::EINVAL, why.to_owned())
        })?,
    };
    let devices =
        adverb_device::device::of_selection(&after).map_err(|e| io(format!("no devices: {e}")))?;
    let tree = changeable(&devices, &after).map_err(io)?;
    let place = place_tree(directory, KIND, &tree).map_err(io)?;
    let fresh = directory.join(format!(".{LINK_KIND}-{}", std::process::id()));
    let _ = fs::remove_file(&fresh);
    std::os::unix::fs::symlink(&place, &fresh)
        .and_then(|()| fs::rename(&fresh, &link))
        .map_err(|e| io(format!("{} cannot be made: {e}", link.display())))?;
    forget_old(directory, LINK_KIND);
    if args.driver == "siw" {
        crate::out::errln!(
            "adverb: {} speaks RoCEv2, and not iWARP: a peer needs Adverb or RoCEv2, too",
            args.name
        );
    }
    Ok(())
}

/// The selection with the new device.
fn with(before: &Selection, args: &Args) -> Result<Selection, Refusal> {
    if !DRIVERS.contains(&&*args.driver) {
        let why = format!("there is no type {:?}: rxe and siw are possible", args.driver);
        return Err((Errno::EINVAL, why));
    }
    let all = interfaces::all().map_err(|e| (e, "the interfaces cannot be listed".to_owned()))?;
    let there = adverb_device::device::of_selection(before).unwrap_or_default();
    if there.iter().any(|device| device.name() == args.name) {
        let why = "there is a device of this name: choose another name, or delete the device first";
        return Err((Errno::EEXIST, why.to_owned()));
    }
    let item = Item { name: args.name.clone(), place: Some(args.interface.clone()) };
    let alone = Selection::Items(vec![item.clone()]);
    if !all.iter().any(|i| i.name == args.interface) {
        return Err((Errno::ENODEV, alone.complaint(&all).unwrap_or_default()));
    }
    match alone.complaint(&all) {
        Some(complaint) => Err((Errno::EINVAL, complaint)),
        None => Ok(before.with(item)),
    }
}
