use super::super::tests::scratch;
use super::*;
use std::process::Command;

fn cc(args: &[&str]) {
    let out = Command::new("cc").args(args).output().expect("a C compiler: run scripts/test-deps");
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
}

/// SYS-3: copies are found on every search path before `LD_LIBRARY_PATH`.
#[test]
fn copies_are_found_as_the_loader_finds_them() {
    let dir = scratch("copies");
    let at = |name: &str| dir.join(name).display().to_string();
    for sub in ["own", "x", "lib"] {
        std::fs::create_dir(dir.join(sub)).unwrap();
    }
    std::fs::write(dir.join("own/libibverbs.so.1"), "").unwrap();
    std::fs::write(dir.join("e.c"), "int e(void) { return 1; }\n").unwrap();
    std::fs::write(dir.join("m.c"), "int e(void); int main(void) { return e(); }\n").unwrap();
    let library_at = |file: &str, soname: Option<&str>| {
        let name = soname.map(|name| format!("-Wl,-soname,{name}"));
        let mut args = vec!["-shared", "-fPIC"];
        args.extend(name.as_deref());
        let (source, file) = (at("e.c"), at(file));
        cc(&[&args[..], &[&source, "-o", &file]].concat());
    };
    library_at("x/libibverbs.so.1", Some("libibverbs.so.1"));
    library_at("x/libibverbs-12ab.so.1.14", Some("libibverbs-12ab.so.1.14"));
    library_at("lib/librdmacm.so.1", None);
    let link = |program: &str, flags: &[&str], with: &str| {
        let (program, source, with) = (at(program), at("m.c"), at(with));
        cc(&[&[&*source, &*with, "-Wl,--no-as-needed", "-o", &*program][..], flags].concat());
    };
    let rpath = ["-Wl,-rpath,$ORIGIN/x", "-Wl,--disable-new-dtags"];
    let runpath = ["-Wl,-rpath,${ORIGIN}/x", "-Wl,--enable-new-dtags"];
    link("rpath", &rpath, "x/libibverbs.so.1");
    link("runpath", &runpath, "x/libibverbs.so.1");
    link("hashed", &runpath, "x/libibverbs-12ab.so.1.14");
    link("absolute", &[], "lib/librdmacm.so.1");
    // A library of the program that needs a copy: the loader applies the program's DT_RPATH to
    // it.
    let (middle, source, copy) = (at("x/libmiddle.so"), at("e.c"), at("x/libibverbs.so.1"));
    let named = "-Wl,--no-as-needed,-soname,libmiddle.so";
    cc(&["-shared", "-fPIC", named, &source, &copy, "-o", &middle]);
    link("through", &rpath, "x/libmiddle.so");

    let ours = dir.join("own");
    let brings = |program: &str| {
        let paths = Paths { ours: &ours, theirs: Vec::new() };
        brought(&dir.join(program), &paths)
    };
    let verbs = |name: &str| vec![(Library::Verbs, dir.join("x").join(name))];
    assert_eq!(brings("rpath"), verbs("libibverbs.so.1"));
    assert_eq!(brings("runpath"), [], "LD_LIBRARY_PATH comes before it");
    assert_eq!(brings("hashed"), verbs("libibverbs-12ab.so.1.14"));
    assert_eq!(brings("absolute"), [(Library::Manager, dir.join("lib/librdmacm.so.1"))]);
    assert_eq!(brings("through"), verbs("libibverbs.so.1"));
    assert_eq!(brought(Path::new("/bin/sh"), &Paths { ours: &ours, theirs: Vec::new() }), []);
}
