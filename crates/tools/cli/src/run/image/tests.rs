use super::super::tests::scratch;
use super::*;

#[test]
fn an_ordinary_program_and_a_script_have_no_obstacles() {
    let shell = look(Path::new("/bin/sh")).unwrap();
    assert!(shell.loader.is_some_and(|loader| !is_musl(&loader)) && !shell.own_copy);
    assert_eq!(obstacles(Path::new("/bin/sh"), false), Vec::<String>::new());
    assert_eq!(look(Path::new("/etc/passwd")), None);
    let dir = scratch("script");
    let script = dir.join("script");
    std::fs::write(&script, "#! /bin/sh -e\ntrue\n").unwrap();
    assert_eq!(interpreter(&script), Some("/bin/sh".into()));
    assert_eq!(obstacles(&script, true).len(), 1);
}

/// SYS-3: no drop-in can be loaded into a program built with musl, and the user is told so.
#[test]
fn a_program_built_with_musl_is_told() {
    let dir = scratch("musl");
    let (source, program) = (dir.join("m.c"), dir.join("m"));
    std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let built =
        std::process::Command::new("musl-gcc").arg("-o").arg(&program).arg(&source).status();
    assert!(built.expect("musl-gcc: run scripts/test-deps").success());
    let said = obstacles(&program, false);
    assert!(said.len() == 1 && said[0].contains("musl"), "{said:?}");
}

#[test]
fn a_text_is_found_wherever_it_lies() {
    let dir = scratch("text");
    let path = dir.join("file");
    for at in [0, 1, (1 << 20) - 5, (1 << 20) + 3] {
        let mut bytes = vec![b'x'; at];
        bytes.extend(MARK);
        std::fs::write(&path, &bytes).unwrap();
        let file = File::open(&path).unwrap();
        assert!(contains(&file, 0, bytes.len() as u64, MARK), "{at}");
        assert!(!contains(&file, 0, bytes.len() as u64 - 1, MARK), "{at}");
    }
}

#[test]
fn damaged_files_are_no_programs() {
    let dir = scratch("image");
    let path = dir.join("file");
    let whole = std::fs::read("/bin/sh").unwrap();
    for len in (0..900).step_by(7) {
        std::fs::write(&path, &whole[..len]).unwrap();
        look(&path);
        let mut spoiled = whole[..900].to_vec();
        spoiled[len] ^= 0xff;
        std::fs::write(&path, &spoiled).unwrap();
        look(&path);
    }
}
