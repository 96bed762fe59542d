//! The peer is a user of connections in the kernel: its iSCSI target over RDMA (LIO, `ib_isert`).
//! Debian's libiscsi is the initiator on the host.
//!
//! Both sides verify each byte: the target's disk is a file in the machine, and its checksum is
//! compared with that of the host's file.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use adverb_foreign::cc::compile_with_c;
use adverb_foreign::process::{Program, target_dir};
use adverb_foreign::suite::{Case, by_length};
use adverb_foreign::{Verdict, require};
use adverb_interop::ends::{Family, Side};
use adverb_interop::pair::TO_RXE;
use adverb_interop::vm;

use crate::counted;

const LIMIT: Duration = Duration::from_secs(180);
const TARGET: &str = "iqn.2026-01.test:disk";

pub fn push(cases: &mut Vec<Case>) {
    for family in by_length(&[Family::V4, Family::V6][..], &[Family::V6][..]) {
        let family = *family;
        let mut push = |name: &str, what: fn(Family) -> Verdict| {
            cases.push(counted(format!("iser/{name}"), "iSER".into(), TO_RXE, family, move || {
                what(family)
            }));
        };
        push("reads", reads);
        push("writes", writes);
    }
}

/// Creates the target at the first call.
fn url(family: Family) -> Result<String, String> {
    static MADE: OnceLock<Result<(), String>> = OnceLock::new();
    MADE.get_or_init(|| {
        let megabytes = by_length("32", "4");
        let [v4, v6] = [Family::V4, Family::V6].map(|f| Side::Rxe.address(f));
        let out =
            vm::program("iser-target", &[megabytes, TARGET, v4, &format!("[{v6}]")]).run(LIMIT)?;
        out.require_ok().map_err(|why| format!("{why}\n{}", vm::state_of_rxe()))
    })
    .clone()?;
    let address = Side::Rxe.address(family);
    Ok(match family {
        Family::V4 => format!("iser://{address}:3260/{TARGET}/0"),
        Family::V6 => format!("iser://[{address}]:3260/{TARGET}/0"),
    })
}

/// Runs `c/iser_disk.c` on the whole disk.
fn disk(what: &str, family: Family, file: &Path) -> Verdict {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("c/iser_disk.c");
    let program = compile_with_c(&["-O2", "-Wl,--no-as-needed", "-liscsi"], &source, "iser_disk")?;
    let (url, file) = (url(family)?, file.display().to_string());
    let out = Program::of_file(&program).args(&[what, &url, &file]).run(LIMIT)?;
    require!(out.ok() && out.text.contains("OK "), "{}\n{}", out.describe(), vm::state_of_rxe());
    Ok(())
}

/// A file of the host with the bytes of the disk.
fn copy_of_disk() -> Result<PathBuf, String> {
    let directory = target_dir()?.join("foreign-c");
    std::fs::create_dir_all(&directory).map_err(|e| format!("{}: {e}", directory.display()))?;
    Ok(directory.join("iser-disk"))
}

fn require_same(file: &Path) -> Verdict {
    let ours = Program::new("sha256sum", &[file.display().to_string()]).bare().run(LIMIT)?;
    let theirs = vm::shell("sha256sum /tmp/disk").run(LIMIT)?;
    let sum = |text: &str| text.split_whitespace().next().map(str::to_string);
    require!(
        ours.ok() && theirs.ok() && sum(&ours.text) == sum(&theirs.text),
        "the disk's bytes are not the file's:\n{}\n{}",
        theirs.describe(),
        ours.describe()
    );
    Ok(())
}

/// The target writes into the initiator's memory.
fn reads(family: Family) -> Verdict {
    url(family)?;
    let fill = "n=$(stat -c %s /tmp/disk); dd if=/dev/urandom of=/tmp/disk bs=65536 count=$((n >> 16)) conv=notrunc";
    vm::shell(fill).run(LIMIT)?.require_ok()?;
    let file = copy_of_disk()?;
    disk("read", family, &file)?;
    require_same(&file)
}

/// The target reads the initiator's data, and the initiator reads the data back.
fn writes(family: Family) -> Verdict {
    let file = copy_of_disk()?;
    disk("read", family, &file)?;
    let mut bytes = std::fs::read(&file).map_err(|e| format!("{}: {e}", file.display()))?;
    // The new bytes differ from the old ones, and from each other at every place.
    let mut state = u64::from_le_bytes(*bytes.first_chunk().ok_or("an empty disk")?) | 1;
    for eight in bytes.chunks_exact_mut(8) {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        eight.copy_from_slice(&(state ^ state >> 29).to_le_bytes());
    }
    std::fs::write(&file, &bytes).map_err(|e| format!("{}: {e}", file.display()))?;
    disk("write", family, &file)?;
    require_same(&file)
}
