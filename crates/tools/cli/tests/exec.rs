//! Warnings for a program that will not see the device, when another program starts it (SYS-3).
mod common;
use common::{Scratch, adverb, program, text};

/// SYS-3: the warning says that the drop-in libraries are missing. The warning is not written into
/// the output of another process.
#[test]
fn run_says_when_the_environment_is_cleared() {
    let warned = |args: &[&str]| {
        let output = adverb(&[&["run"], args].concat());
        assert_eq!(text(&output.stdout), "here\n", "{args:?}: {}", text(&output.stderr));
        text(&output.stderr)
    };
    for args in [
        &["env", "-i", "echo", "here"][..],
        &["env", "-i", "/bin/echo", "here"],
        &["--", "sh", "-c", "exec env -i echo here"],
    ] {
        let said = warned(args);
        assert!(said.contains("echo is started with a cleared environment"), "{args:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    for args in [
        &["env", "A=B", "echo", "here"][..],
        &["env", "-u", "LD_PRELOAD", "echo", "here"],
        &["--log", "error", "env", "-i", "echo", "here"],
        &["--", "sh", "-c", "env -i echo here; true"],
    ] {
        assert_eq!(warned(args), "", "{args:?}");
    }
}

/// Starts `verbs_p` by the functions that take their arguments one by one. There are too many
/// arguments to fit in registers.
const STARTER: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int argc, char **argv) {
    char *none[] = {0};
    if (!strcmp(argv[1], "le"))
        execle("./verbs_p", "p", "a", "b", "c", "d", "e", "f", "g", (char *)0, none);
    unsetenv("LD_LIBRARY_PATH");
    unsetenv("LD_PRELOAD");
    if (!strcmp(argv[1], "lp"))
        execlp("verbs_p", "p", "a", "b", "c", "d", "e", "f", "g", (char *)0);
    execl("./verbs_p", "p", "a", (char *)0);
    return 1;
}
"#;

/// SYS-3: `execl`, `execlp` and `execle` pass on all their arguments, including `$0`, and return
/// when they fail. Only `execlp` searches `PATH`.
#[test]
fn what_takes_its_arguments_one_by_one_passes_them_on() {
    let dir = Scratch::new("execl");
    dir.write("p.c", ONE_BY_ONE);
    dir.shell("cc -O1 -w -o p p.c");
    let program = dir.join("p").display().to_string();
    for way in ["l", "lp", "le"] {
        let output = adverb(&["run", "--", &program, way]);
        let expected = "failed 2 2 2 2\nname 0 1 2 3 4 5 6 7 8 9 ";
        let kept = if way == "le" { "V" } else { "K" };
        assert_eq!(text(&output.stdout), format!("{expected}{kept}\n"), "{}", text(&output.stderr));
    }
}

const ONE_BY_ONE: &str = r#"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int argc, char **argv) {
    char *with[] = {"KIND=V", 0};
    char line[64] = "printf '%s ' \"$0\" \"$@\"; echo $KIND";
    setenv("KIND", "K", 1);
    int before = argc + 40;
    execl("/nowhere/x", "x", (char *)0);
    int first = errno;
    execle("/nowhere/x", "x", "1", "2", "3", "4", "5", "6", "7", (char *)0, with);
    int second = errno;
    execl("sh", "sh", "-c", "echo found in PATH", (char *)0);
    int third = errno;
    execle("sh", "sh", "-c", "echo found in PATH", (char *)0, with);
    if (before != argc + 40) return 3;
    printf("failed %d %d %d %d\n", first, second, third, errno);
    fflush(stdout);
#define ARGS "sh", "-c", line, "name", "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", (char *)0
    if (!strcmp(argv[1], "l")) execl("/bin/sh", ARGS);
    if (!strcmp(argv[1], "lp")) execlp("sh", ARGS);
    if (!strcmp(argv[1], "le")) execle("/bin/sh", ARGS, with);
    return 1;
}
"#;

/// Programs that use verbs, and `own` with another library.
fn programs(name: &str) -> Scratch {
    let dir = Scratch::new(name);
    let verbs =
        "void *ibv_get_device_list(int *); int main(void) { return !ibv_get_device_list; }\n";
    dir.write("p.c", verbs);
    dir.write("script", &format!("#! {}/verbs_p with an argument\n", dir.str()));
    dir.write("script_of_script", &format!("#!{}/script\n", dir.str()));
    dir.write("between.c", "int between(void) { return 0; }\n");
    dir.write("indirect.c", "int between(void); int main(void) { return between(); }\n");
    dir.write("starter.c", STARTER);
    dir.shell(
        "cc -o verbs_p p.c -Wl,--no-as-needed -libverbs
        chmod +x script script_of_script
        cc -shared -fPIC -o libbetween.so between.c -Wl,--no-as-needed -libverbs
        cc -o indirect indirect.c -L. -lbetween -Wl,-rpath,'$ORIGIN'
        cc -w -o starter starter.c
        mkdir own; touch own/libibverbs.so.1",
    );
    dir
}

/// What is said on standard error when a shell runs a line under `adverb run`.
fn said_of(dir: &Scratch, line: &str) -> String {
    let line = format!("cd {} && {line}; true", dir.str());
    text(&adverb(&["run", "--", "sh", "-c", &line]).stderr)
}

/// The same after `adverb env`.
fn said_after_env(dir: &Scratch, line: &str) -> String {
    let set =
        format!("set -a; eval \"$({ADVERB} env --shell)\"; set +a; exec sh -c '{line}; true'");
    let ended = program("sh").current_dir(dir).args(["-c", &set]).output();
    text(&ended.expect("sh starts").stderr)
}

const ADVERB: &str = env!("CARGO_BIN_EXE_adverb");
const WARNING: &str = "adverb run: warning";

/// SYS-3: one level below a shell, as under `make check` and test runners. Programs that use verbs
/// and will not see the device are named, and no others.
#[test]
fn run_names_programs_that_a_program_starts_without_the_device() {
    let dir = programs("exec");
    for (line, why) in [
        ("env -i ./verbs_p", "a cleared environment"),
        ("env -i PATH=$PWD verbs_p", "a cleared environment"),
        ("env -u LD_LIBRARY_PATH ./verbs_p", "without the directory of the drop-in libraries"),
    ] {
        let said = said_of(&dir, line);
        let told = said.contains("verbs_p is started") && said.contains(why);
        assert!(said.lines().count() == 1 && told, "{line}: {said}");
    }
    // A single warning for each run and program, however the program is found, and however many
    // processes start it at once.
    for (line, lines) in [
        ("for i in 1 2 3; do env -i ./verbs_p; done", 1),
        ("seq 16 | xargs -P 8 -n 1 env -i ./verbs_p", 1),
        ("cp verbs_p other; for i in 1 2; do env -i ./verbs_p; env -i ./other; done", 2),
        // A library linked with libibverbs, found by a run path or in the default directories.
        ("env -i ./indirect", 1),
        // The kernel runs the interpreter of a script.
        ("env -i ./script", 1),
        ("env -i ./script_of_script", 1),
        ("./starter l; ./starter lp; ./starter le", 1),
        ("./starter l", 1),
        ("PATH=$PWD ./starter lp", 1),
        ("./starter le", 1),
        // Another run warns again.
        ("env -i ./verbs_p", 1),
        ("./verbs_p", 0),
        ("env -u LD_PRELOAD ./verbs_p", 0),
        ("env A=B ./verbs_p", 0),
        ("env -i true", 0),
        ("env -i ./p.c", 0),
    ] {
        let said = said_of(&dir, line);
        assert_eq!(said.lines().filter(|l| l.contains(WARNING)).count(), lines, "{line}: {said}");
    }
}

/// SYS-3: other libraries in front of the drop-ins are named, under `adverb run` and after `adverb
/// env`; but none where the auditor replaces them, or where the program starts the command again.
#[test]
fn libraries_in_front_of_the_drop_ins_are_named() {
    let dir = programs("front");
    let front = "LD_LIBRARY_PATH=$PWD/own:$LD_LIBRARY_PATH";
    let behind = "verbs libraries come before the drop-in libraries";
    let again = format!("export {front}; sh -c \"./verbs_p; true\"");
    let replaced = format!("eval \"export $({ADVERB} env --replace --shell | tr '\\n' ' ')\"");
    for (line, lines) in [
        (format!("env {front} ./verbs_p"), 1),
        // A process that begins with this list does not take its first directory for the drop-ins.
        (format!("{ADVERB} run --no-replace -- sh -c '{again}'"), 1),
        (format!("env {front} ./indirect"), 1),
        ("env LD_LIBRARY_PATH=$PWD:$LD_LIBRARY_PATH ./verbs_p".into(), 0),
        ("env LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$PWD/own ./verbs_p".into(), 0),
        (format!("env {front} ADVERB_LOG=error ./verbs_p"), 1),
        (format!("env {front} {ADVERB} run -- ./verbs_p"), 0),
        (format!("{replaced}; env {front} ./verbs_p"), 0),
    ] {
        let said = said_of(&dir, &line);
        assert_eq!(said.matches(behind).count(), lines, "{line}: {said}");
        assert_eq!(said.matches("use --replace").count(), lines, "{line}: {said}");
    }
    for (line, why) in [
        (format!("env {front} ./verbs_p"), behind),
        (again, behind),
        ("env -i ./verbs_p".into(), "a cleared environment"),
    ] {
        let said = said_after_env(&dir, &line);
        let told = said.contains("verbs_p is started") && said.contains(why);
        assert!(said.matches(WARNING).count() == 1 && told, "{line}: {said}");
    }
}

/// SYS-3: a set-user-ID program that starts another one, as sudo does. Only root can make one here.
#[test]
fn a_program_of_another_user_is_named_with_the_remedy() {
    if !nix::unistd::Uid::effective().is_root() {
        return;
    }
    let dir = programs("other-user");
    dir.shell("cp $(command -v env) other_user; chown 65534 other_user; chmod 4755 other_user");
    for (line, lines) in [
        ("./other_user A=B ./verbs_p", 1),
        ("./other_user true", 0),
        // The name of a user is also the name of a program.
        ("./other_user -nu env ./verbs_p", 1),
        ("./other_user --group env ./verbs_p", 1),
        ("./other_user -n env ./verbs_p", 0),
    ] {
        let said = said_after_env(&dir, line);
        assert_eq!(said.matches("sudo adverb run -- PROGRAM").count(), lines, "{line}: {said}");
    }
}

/// SYS-3: another program starts a program that is linked with a copy by a run path, or under
/// another name. The warning names `--replace`, with which there is none.
#[test]
fn a_started_program_with_a_copy_is_named_with_the_remedy() {
    let dir = Scratch::new("copy");
    dir.write("copy.c", "int ibv_copy(void) { return 0; }\n");
    dir.write("between.c", "int ibv_copy(void); int between(void) { return ibv_copy(); }\n");
    dir.write("p.c", "int ibv_copy(void); int main(void) { return ibv_copy(); }\n");
    dir.write("q.c", "int between(void); int main(void) { return between(); }\n");
    dir.shell(
        "mkdir own; own='-L./own -Wl,-rpath,$ORIGIN/own'; old=-Wl,--disable-new-dtags
        cc -shared -fPIC -o own/libibverbs.so.1 -Wl,-soname,libibverbs.so.1 copy.c
        cc -shared -fPIC -o own/libibverbs-0123abcd.so.1 -Wl,-soname,libibverbs-0123abcd.so.1 copy.c
        cc -o rpath p.c $own $old -l:libibverbs.so.1
        cc -o runpath p.c $own -Wl,--enable-new-dtags -l:libibverbs.so.1
        cc -o renamed p.c $own -Wl,--enable-new-dtags -l:libibverbs-0123abcd.so.1
        cc -shared -fPIC -o own/libbetween.so between.c -L./own -l:libibverbs.so.1
        cc -o inherited q.c $own $old -lbetween -Wl,--allow-shlib-undefined",
    );
    for (options, program, lines) in [
        (&["run"][..], "rpath", 1),
        (&["run"], "renamed", 1),
        (&["run"], "inherited", 1),
        // LD_LIBRARY_PATH comes before a DT_RUNPATH.
        (&["run"], "runpath", 0),
        (&["run", "--replace"], "rpath", 0),
        (&["run", "--no-replace"], "rpath", 0),
    ] {
        let line = format!("cd {}; ./{program}; ./{program}; true", dir.display());
        let said = text(&adverb(&[options, &["--", "sh", "-c", &line]].concat()).stderr);
        let warned = said.matches("adverb run: warning").count();
        let named = said.matches("by a run path").count() == lines
            && said.matches("use --replace").count() == lines;
        assert!(warned == lines && named, "{options:?} {program}: {said}");
    }
}
