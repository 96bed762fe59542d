//! Where `adverb run` puts the files for programs, on machines with little room for files. Each
//! test has separate mounts.
mod common;
use common::{program, text};
use std::path::PathBuf;
use std::process::Output;

/// Copies the command and its libraries to a separate file system, so that every other file system
/// can be hidden or filled.
const COPY: &str = "mount -t tmpfs -o mode=755 none /mnt && cp \"$EXE\" \"$LIBS\"/libibverbs.so \"$LIBS\"/librdmacm.so \
     \"$LIBS\"/libadverb_preload.so \"$LIBS\"/libadverb_audit.so /mnt";
const EMPTY_SHM: &str = "mount -t tmpfs -o mode=1777 none /dev/shm";
const FULL_SHM: &str = "mount -t tmpfs -o mode=1777,size=64k none /dev/shm && { head -c 1M /dev/zero >/dev/shm/full 2>/dev/null || true; }";
const NO_TMP: &str = "mount -t tmpfs -o ro none /tmp && mount -t tmpfs -o ro none /var/tmp";
/// Prints the path of the tree.
const SHOW: &str = "sh -c 'echo \"tree=$ADVERB_SYSROOT\"; exit 7'";

/// Runs shell commands one after the other, in a separate mount namespace.
fn with_mounts(steps: &[&str]) -> Output {
    let exe = PathBuf::from(env!("CARGO_BIN_EXE_adverb"));
    let beside = exe.parent().expect("a directory");
    let deps = beside.join("deps");
    let libraries = if deps.join("libibverbs.so").is_file() { deps } else { beside.to_path_buf() };
    let is_root = nix::unistd::Uid::effective().is_root();
    let mut command = program("unshare");
    command.args(if is_root {
        &["--mount"][..]
    } else {
        &["--user", "--map-root-user", "--mount"]
    });
    command.args(["sh", "-e", "-c", &steps.join("\n")]);
    for name in ["ADVERB_SYSROOT", "XDG_RUNTIME_DIR", "TMPDIR"] {
        command.env_remove(name);
    }
    let output = command.env("EXE", &exe).env("LIBS", libraries).current_dir("/").output();
    let output = output.expect("unshare starts (package util-linux)");
    let words = text(&output.stderr);
    assert!(
        !words.contains("unshare: ") && !words.contains("mount: "),
        "this test needs mounts of its own: {words}"
    );
    output
}

/// The program's tree, and the text on standard error. Checks the program's exit status.
fn shown(output: &Output) -> (String, String) {
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(7), "{out}{err}");
    let tree =
        out.lines().find_map(|l| l.strip_prefix("tree=")).unwrap_or_else(|| panic!("{out}{err}"));
    (tree.to_string(), err)
}

#[test]
fn a_full_place_gives_way_to_the_next() {
    let run = format!("/mnt/adverb run -- {SHOW} || status=$?; ls -A /dev/shm >&2; exit $status");
    let tmp = "mount -t tmpfs -o mode=1777 none /tmp";
    let (tree, err) = shown(&with_mounts(&[COPY, FULL_SHM, tmp, &run]));
    assert!(tree.starts_with("/tmp/adverb-"), "{tree}: {err}");
    assert_eq!(
        err, "full\n",
        "nothing is left where it did not fit, and nobody needs to hear of it"
    );
}

#[test]
fn a_program_runs_without_a_tree_where_there_is_no_room() {
    let run = format!("/mnt/adverb run -- {SHOW}");
    for steps in [[FULL_SHM, NO_TMP], ["mount -t tmpfs -o ro none /dev/shm", NO_TMP]] {
        let (tree, err) = shown(&with_mounts(&[COPY, steps[0], steps[1], &run]));
        assert_eq!(tree, "");
        assert_eq!(err.lines().count(), 1, "{err}");
        for word in ["warning", "/dev/shm", "/var/tmp", "Read-only", "XDG_RUNTIME_DIR"] {
            assert!(err.contains(word), "no {word} in {err}");
        }
    }
}

/// A read-only build tree has no directory with the names loaded by programs.
#[test]
fn a_program_finds_the_library_on_a_read_only_machine() {
    let lock = "mount -o remount,bind,ro /mnt && mount -t tmpfs -o ro none /dev/shm";
    let maps = "/mnt/adverb run -- sh -c 'cat /proc/self/maps; exit 7'";
    let output = with_mounts(&[COPY, lock, NO_TMP, maps]);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(7), "{err}");
    for library in ["/mnt/libibverbs.so", "/mnt/libadverb_preload.so"] {
        assert!(out.contains(library), "no {library}: {out}{err}");
    }
    assert!(err.lines().count() == 2 && err.contains("preloaded"), "{err}");
}

/// TRU-4: names taken by another user cost nothing. A user namespace has only one user.
/// There, the obstructing directories are open to other users instead.
#[test]
fn another_user_cannot_be_in_the_way() {
    let (who, mode) = match nix::unistd::Uid::effective().is_root() {
        true => ("setpriv --reuid 4321 --regid 4321 --clear-groups", 700),
        false => ("", 755),
    };
    let squat = format!(
        "{who} sh -e -c '
        echo no >/dev/shm/adverb-0
        for n in 0 1 2 3; do mkdir -m {mode} /dev/shm/adverb-0-000000000000000$n; done
        mkdir -m 777 /dev/shm/adverb-0-0000000000000004
        ln -s /nonexistent /dev/shm/adverb-0-0000000000000005
        ln -s /mnt /dev/shm/adverb-0-0000000000000006'"
    );
    let twice = format!("/mnt/adverb run -- {SHOW} || /mnt/adverb run -- {SHOW} || status=$?");
    let owner = "stat -c 'owner=%u mode=%a' \"$(dirname \"$(/mnt/adverb run -- printenv ADVERB_SYSROOT)\")\"; ls /dev/shm | wc -l";
    let output = with_mounts(&[COPY, EMPTY_SHM, &squat, &twice, owner, "exit $status"]);
    let (tree, err) = shown(&output);
    assert_eq!(err, "");
    assert!(tree.starts_with("/dev/shm/adverb-0-"), "{tree}");
    let out = text(&output.stdout);
    assert_eq!(
        out.matches(&format!("tree={tree}\n")).count(),
        2,
        "the second run uses what the first made: {out}"
    );
    assert!(out.contains("owner=0 mode=700"), "{out}");
    assert!(out.ends_with("\n9\n"), "one directory beside the squatted names: {out}");
}

/// SYS-3: the command names a program for which the loader ignores the environment, and gives the
/// remedy. Other programs are not named. Root already has every capability, and a user namespace
/// has no user but root, so there no program qualifies.
#[test]
fn a_program_with_privileges_is_told() {
    let root = nix::unistd::Uid::effective().is_root();
    let user = if root { "setpriv --reuid 4321 --regid 4321 --clear-groups" } else { "" };
    let capabilities = "python3 -c 'import os; os.setxattr(\"/mnt/caps\", \"security.capability\", \
         bytes.fromhex(\"0100000200200000000000000000000000000000\"))'";
    let steps = [
        COPY,
        EMPTY_SHM,
        "cp /bin/true /mnt/plain; cp /bin/true /mnt/group; chmod 2755 /mnt/group; cp /bin/true /mnt/caps",
        capabilities,
        &format!(
            "for p in plain group caps; do echo \"$p:\" >&2; {user} /mnt/adverb run -- /mnt/$p; done; exit 7"
        ),
    ];
    let err = text(&with_mounts(&steps).stderr);
    let said: Vec<&str> = err.split(":\n").collect();
    assert!(said.len() == 4 && !said[1].contains("warning"), "{err}");
    for words in &said[2..] {
        assert_eq!(words.contains("/mnt/") && words.contains("run a copy without"), root, "{err}");
    }
}

/// A process left running by the program reads the tree after the command and the program have
/// ended.
#[test]
fn what_outlives_the_program_keeps_the_tree() {
    let run = "/mnt/adverb run -- sh -c '(read line <&9; cat $ADVERB_SYSROOT/sys/class/infiniband_verbs/abi_version) 9<&0 & exit 7' \
               </mnt/gate >/mnt/said || status=$?";
    let steps = [
        COPY,
        EMPTY_SHM,
        "mkfifo /mnt/gate && exec 8<>/mnt/gate",
        run,
        "/mnt/adverb run -- true",
        "echo go >&8",
        "for n in $(seq 500); do [ -s /mnt/said ] && break; sleep 0.01; done; echo tree=$(cat /mnt/said)",
        "exit $status",
    ];
    assert_eq!(shown(&with_mounts(&steps)).0, "6");
}

/// A hunt needs a place for the output of its runs. Where `/tmp` is read-only, the hunt takes the
/// next place, as `adverb run` does.
#[test]
fn a_hunt_takes_the_next_place() {
    let output = with_mounts(&[COPY, EMPTY_SHM, NO_TMP, "/mnt/adverb hunt --time 2s -- true"]);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    // The program makes no call with a choice.
    assert_eq!(output.status.code(), Some(4), "{out}{err}");
    assert!(!format!("{out}{err}").contains("Read-only"), "{out}{err}");
}

/// The doctor names a `/dev/shm` without write access, and not the room there.
#[test]
fn the_doctor_names_a_read_only_place() {
    let shm = "mount -t tmpfs -o ro none /dev/shm";
    let output = with_mounts(&[COPY, shm, "/mnt/adverb doctor || true"]);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    let line = out.lines().find(|line| line.contains("/dev/shm")).unwrap_or_default();
    assert!(line.contains("read-only") && !line.contains("free"), "{out}{err}");
}

/// SYS-12: on a machine with a real device, the files show the same devices as verbs.
#[test]
fn real_devices_are_hidden_as_in_verbs() {
    let real = "mount -t tmpfs none /sys/class && mkdir -p /sys/class/infiniband/mlx5_0/ports/1";
    let output = with_mounts(&[
        real,
        "ls /sys/class/infiniband",
        "$EXE run --log error -- ls /sys/class/infiniband",
        "$EXE run --log error -- sh -c 'cat /sys/class/infiniband/*/ports/1/link_layer'",
        "$EXE run --log error -- test ! -e /sys/class/infiniband/mlx5_0",
    ]);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    assert_eq!(out, "mlx5_0\nadverb0\nEthernet\n", "{err}");
}
