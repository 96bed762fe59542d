use super::*;

#[test]
fn a_program_is_found_as_exec_finds_it() {
    let path = OsStr::new("/nonexistent:/bin:/usr/bin");
    assert_eq!(find(OsStr::new("sh"), path), Some("/bin/sh".into()));
    assert_eq!(find(OsStr::new("/bin/sh"), OsStr::new("")), Some("/bin/sh".into()));
    assert_eq!(find(OsStr::new("no-such-program-at-all"), path), None);
    assert_eq!(find(OsStr::new("/no/such/program"), path), None);
}

#[test]
fn why_a_program_does_not_start() {
    let error = |kind| std::io::Error::from(kind);
    let not_found = error(std::io::ErrorKind::NotFound);
    let explain = |name: &str, error: &_| {
        let explained = explain(OsStr::new(name), error);
        (explained.text, explained.status)
    };
    assert_eq!(explain("no-such-program-at-all", &not_found).1, NOT_FOUND);
    assert_eq!(explain("/no/such/program", &not_found).1, NOT_FOUND);
    let (text, status) = explain("/bin/sh", &not_found);
    assert_eq!(status, CANNOT_EXECUTE);
    assert!(text.contains("interpreter"), "{text}");
    let denied = error(std::io::ErrorKind::PermissionDenied);
    assert_eq!(explain("/", &denied), ("/: is a directory".into(), CANNOT_EXECUTE));
    assert_eq!(explain("/etc/passwd", &denied).1, CANNOT_EXECUTE);
}

#[test]
fn levels_are_checked() {
    assert_eq!(level("debug"), Ok(log::LevelFilter::Debug));
    assert_eq!(level("off"), Ok(log::LevelFilter::Off));
    assert!(level("loud").is_err());
}

mod environment {
    use super::super::dropins::Libraries;
    use super::super::environment::variables;
    use std::collections::HashMap;
    use std::ffi::OsString;
    use std::path::Path;

    fn made(
        before: &[(&str, &str)],
        preload: bool,
        log: Option<log::LevelFilter>,
    ) -> HashMap<&'static str, OsString> {
        let libraries = Libraries {
            directory: "/d".into(),
            preload: preload.then(|| "/p/libadverb_preload.so".into()).into_iter().collect(),
            audit: preload.then(|| "/p/libadverb_audit.so".into()),
            nameless: None,
        };
        let get =
            |name: &str| before.iter().find(|(n, _)| *n == name).map(|(_, v)| OsString::from(v));
        variables(&libraries, true, preload.then_some(Path::new("/root")), log, get)
            .into_iter()
            .collect()
    }

    #[test]
    fn from_nothing() {
        let v = made(&[], true, None);
        assert_eq!(v["LD_LIBRARY_PATH"], "/d");
        assert_eq!(v["LD_PRELOAD"], "/p/libadverb_preload.so");
        assert_eq!(
            (&v["LD_AUDIT"], &v["ADVERB_REPLACE"]),
            (&"/p/libadverb_audit.so".into(), &"/d".into())
        );
        assert_eq!(v["ADVERB_SYSROOT"], "/root");
        assert_eq!(v["ADVERB_LOG"], "warn");
    }

    #[test]
    fn in_front_of_what_is_there() {
        let v = made(
            &[("LD_LIBRARY_PATH", "/a:/b"), ("LD_PRELOAD", ""), ("ADVERB_LOG", "info")],
            true,
            None,
        );
        assert_eq!(v["LD_LIBRARY_PATH"], "/d:/a:/b");
        assert_eq!(v["LD_PRELOAD"], "/p/libadverb_preload.so");
        assert!(!v.contains_key("ADVERB_LOG"), "the user's own choice stays");
    }

    #[test]
    fn only_once_when_nested() {
        let v = made(
            &[("LD_LIBRARY_PATH", "/d:/a"), ("LD_PRELOAD", "/p/libadverb_preload.so")],
            true,
            None,
        );
        assert!(!v.contains_key("LD_LIBRARY_PATH") && !v.contains_key("LD_PRELOAD"));
        assert_eq!(made(&[("LD_LIBRARY_PATH", "/de")], true, None)["LD_LIBRARY_PATH"], "/d:/de");
    }

    /// SYS-3: the objects of another installation do not load beside these.
    #[test]
    fn objects_of_another_installation_leave_the_lists() {
        let before = [
            ("LD_PRELOAD", "/other/libadverb_preload.so:/own.so /p/libadverb_preload.so"),
            ("LD_AUDIT", "/other/libadverb_audit.so"),
        ];
        let v = made(&before, true, None);
        assert_eq!(v["LD_PRELOAD"], "/p/libadverb_preload.so:/own.so:/p/libadverb_preload.so");
        assert_eq!(v["LD_AUDIT"], "/p/libadverb_audit.so");
        let before = [("LD_PRELOAD", "/p/libadverb_preload.so:/other/libadverb_preload.so")];
        assert_eq!(made(&before, true, None)["LD_PRELOAD"], "/p/libadverb_preload.so");
    }

    #[test]
    fn a_sanitizer_hears_of_the_preload_and_keeps_what_the_user_told_it() {
        assert_eq!(made(&[], true, None)["ASAN_OPTIONS"], "verify_asan_link_order=0");
        let own = made(&[("ASAN_OPTIONS", "detect_leaks=0")], true, None)["ASAN_OPTIONS"].clone();
        assert_eq!(own, "verify_asan_link_order=0:detect_leaks=0");
        assert_eq!(
            made(&[("ASAN_OPTIONS", own.to_str().unwrap())], true, None)["ASAN_OPTIONS"],
            own
        );
        let own = &made(&[("TSAN_OPTIONS", "halt_on_error=1")], true, None)["TSAN_OPTIONS"];
        assert_eq!(own, "suppressions=\"/root/tsan.supp\":halt_on_error=1");
    }

    #[test]
    fn without_preload_and_with_a_level() {
        let v = made(&[("ADVERB_LOG", "info")], false, Some(log::LevelFilter::Debug));
        assert!(!v.contains_key("LD_PRELOAD") && !v.contains_key("ADVERB_SYSROOT"));
        assert!(!v.contains_key("ASAN_OPTIONS"), "nothing is preloaded");
        assert_eq!(v["ADVERB_LOG"], "debug");
    }
}

/// A directory for one test.
pub(super) struct Scratch(PathBuf);

pub(super) fn scratch(name: &str) -> Scratch {
    let path = std::env::temp_dir().join(format!("adverb-cli-{name}-{}", std::process::id()));
    std::fs::create_dir(&path).unwrap();
    Scratch(path)
}

impl std::ops::Deref for Scratch {
    type Target = PathBuf;
    fn deref(&self) -> &PathBuf {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

mod tree {
    use super::super::tree::{Tree, TreeEntry, place_tree};
    use super::scratch;
    use std::os::unix::fs::MetadataExt;

    fn tree(text: &str) -> Tree {
        vec![
            ("a/b".into(), TreeEntry::File(text.into())),
            ("c".into(), TreeEntry::Link("a/b".into())),
        ]
    }

    #[test]
    fn a_tree_is_made_once_and_again_when_damaged() {
        let parent = scratch("place");
        let path = place_tree(&parent, "kind", &tree("one")).unwrap();
        assert_eq!(std::fs::read_to_string(path.join("c")).unwrap(), "one");
        let inode = std::fs::metadata(&path).unwrap().ino();
        assert_eq!(place_tree(&parent, "kind", &tree("one")).unwrap(), path);
        assert_eq!(std::fs::metadata(&path).unwrap().ino(), inode, "it was made anew");
        assert_ne!(place_tree(&parent, "kind", &tree("two")).unwrap(), path);

        std::fs::remove_file(path.join("a/b")).unwrap();
        assert_eq!(place_tree(&parent, "kind", &tree("one")).unwrap(), path);
        assert_eq!(std::fs::read_to_string(path.join("c")).unwrap(), "one");
        let left: Vec<_> =
            std::fs::read_dir(&*parent).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left.len(), 2, "{left:?}");
    }

    #[test]
    fn old_trees_go_but_the_newest_stays() {
        let parent = scratch("old");
        for i in 0..40 {
            place_tree(&parent, "kind", &tree(&i.to_string())).unwrap();
        }
        std::fs::create_dir(parent.join("other-0")).unwrap();
        let last = place_tree(&parent, "kind", &tree("last")).unwrap();
        assert!(last.join("a/b").is_file() && parent.join("other-0").is_dir());
        assert_eq!(std::fs::read_dir(&*parent).unwrap().count(), 32 + 1);
    }

    #[test]
    fn sys_6_a_tree_that_a_program_has_or_a_run_has_just_found_stays() {
        let parent = scratch("used");
        let had = place_tree(&parent, "kind", &tree("had")).unwrap();
        let found = place_tree(&parent, "kind", &tree("found")).unwrap();
        let forgotten = place_tree(&parent, "kind", &tree("forgotten")).unwrap();
        let mut program = std::process::Command::new("sleep");
        let mut program = program.arg("60").env("ADVERB_SYSROOT", &had).spawn().unwrap();
        for i in 0..40 {
            place_tree(&parent, "kind", &tree(&i.to_string())).unwrap();
            place_tree(&parent, "kind", &tree("found")).unwrap();
        }
        program.kill().unwrap();
        program.wait().unwrap();
        let there = [&had, &found, &forgotten].map(|path| path.join("a/b").is_file());
        assert_eq!(there, [true, true, false]);
    }

    #[test]
    fn many_at_once_make_one() {
        let parent = scratch("race");
        let make = || place_tree(&parent, "kind", &tree("one"));
        let paths: Vec<_> = std::thread::scope(|s| {
            let all: Vec<_> = (0..8).map(|_| s.spawn(make)).collect();
            all.into_iter().map(|t| t.join().unwrap().unwrap()).collect()
        });
        assert!(paths.iter().all(|p| *p == paths[0]));
        assert_eq!(std::fs::read_to_string(paths[0].join("c")).unwrap(), "one");
        assert_eq!(std::fs::read_dir(&*parent).unwrap().count(), 1);
    }
}
