use super::super::tests::scratch;
use super::*;
use std::fs;

fn touch(path: PathBuf) -> PathBuf {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, "").unwrap();
    path
}

#[test]
fn what_is_missing_is_named_with_its_package() {
    let dir = scratch("sockets");
    let said = || distributions(&[dir.join("none"), dir.clone()]).unwrap_err();
    assert!(said().contains(RDMACM) && said().contains("apt install librdmacm1"), "{}", said());
    let rdmacm = touch(dir.join(RDMACM));
    assert!(said().contains("librspreload.so"), "{}", said());
    let preload = touch(dir.join(THEIRS[0]));
    assert_eq!(distributions(&[dir.join("none"), dir.clone()]), Ok((rdmacm, preload)));
}

#[test]
fn a_directory_that_is_named_has_both() {
    let dir = scratch("sockets-named");
    let nowhere = named(&dir.join("none")).unwrap_err();
    assert!(nowhere.contains("--sockets=") && nowhere.contains("none"), "{nowhere}");
    let rdmacm = touch(dir.join(RDMACM));
    let half = named(&dir).unwrap_err();
    assert!(half.contains("there is no librspreload.so"), "{half}");
    let preload = touch(dir.join("librspreload.so"));
    assert_eq!(named(&dir), Ok((rdmacm, preload)));
}

#[test]
fn releases_that_read_freed_memory_are_named() {
    let dir = scratch("sockets-release");
    let name = dir.join(RDMACM);
    for (number, named) in [(24, false), (25, true), (44, true), (52, true), (53, false)] {
        let file = touch(dir.join(format!("librdmacm.so.1.3.{number}.0")));
        std::os::unix::fs::symlink(file, &name).unwrap();
        assert_eq!(release(&name), Some(number));
        let said = defect(&name);
        assert_eq!(said.is_some(), named, "{number}");
        assert!(said.is_none_or(|text| text.contains(&format!("rdma-core {number};"))));
        fs::remove_file(&name).unwrap();
    }
    // A file name without a release gives no warning.
    let unknown = touch(name);
    assert_eq!((release(&unknown), defect(&unknown)), (None, None));
}

#[test]
fn the_distributions_librdmacm_is_in_the_drop_ins_place() {
    let dir = scratch("sockets-tree");
    let verbs = touch(dir.join("lib").join(VERBS));
    let preload = touch(dir.join("lib/libadverb_preload.so"));
    let libraries = Libraries {
        directory: dir.join("lib"),
        preload: vec![preload],
        audit: None,
        nameless: None,
    };
    assert!(ours(&dir.join("bin/adverb"), &libraries).unwrap_err().contains(OURS));
    let own = touch(dir.join("lib").join(OURS));
    assert_eq!(ours(&dir.join("bin/adverb"), &libraries), Ok(own.canonicalize().unwrap()));
    let tree = tree(&libraries, own, "/their/rdmacm".into(), "/their/preload".into()).unwrap();
    let link =
        |name: &str| tree.iter().find(|(at, _)| at == Path::new(name)).map(|(_, entry)| entry);
    assert_eq!(link(RDMACM), Some(&TreeEntry::Link("/their/rdmacm".into())));
    assert_eq!(link(VERBS), Some(&TreeEntry::Link(verbs.canonicalize().unwrap())));
}
