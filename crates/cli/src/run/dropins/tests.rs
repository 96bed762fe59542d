use super::super::tests::scratch;
use super::*;
use std::fs;

fn touch(path: PathBuf) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, "").unwrap();
}

#[test]
fn installed_libraries_are_beside_the_command() {
    let prefix = scratch("installed");
    touch(prefix.join("lib/adverb/libibverbs.so.1"));
    touch(prefix.join("lib/adverb/libadverb_preload.so"));
    let exe = prefix.join("bin/adverb");
    let found = find(&exe, true).unwrap();
    assert_eq!(found.directory, prefix.join("lib/adverb"));
    assert_eq!(found.preload, Some(prefix.join("lib/adverb/libadverb_preload.so")));
    assert_eq!(find(&exe, false).unwrap().preload, None);
    fs::remove_dir_all(prefix).unwrap();
}

#[test]
fn a_build_tree_gets_a_directory_of_links() {
    let target = scratch("built");
    touch(target.join("release/deps/libibverbs.so"));
    touch(target.join("release/libibverbs.so"));
    touch(target.join("release/libadverb_preload.so"));
    let exe = target.join("release/adverb");
    let found = find(&exe, true).unwrap();
    assert!(found.directory.starts_with(target.join("release")), "{found:?}");
    // The one in `deps` is of the last build in any case.
    let library = target.join("release/deps/libibverbs.so");
    assert_eq!(fs::canonicalize(found.directory.join("libibverbs.so.1")).unwrap(), library);
    assert_eq!(fs::canonicalize(found.directory.join("libibverbs.so")).unwrap(), library);
    assert_eq!(found.preload, Some(target.join("release/libadverb_preload.so")));
    assert_eq!(find(&exe, true), Ok(found), "used again");
    fs::remove_dir_all(target).unwrap();
}

#[test]
fn what_is_missing_is_named() {
    let target = scratch("missing");
    let exe = target.join("release/adverb");
    let text = find(&exe, true).unwrap_err();
    assert!(text.contains("libibverbs.so is missing") && text.contains("cargo build"), "{text}");
    touch(target.join("release/deps/libibverbs.so"));
    let text = find(&exe, true).unwrap_err();
    assert!(text.contains("libadverb_preload.so is missing"), "{text}");
    assert!(find(&exe, false).is_ok());
    fs::remove_dir_all(target).unwrap();
}

#[test]
fn a_path_that_the_loader_would_split_is_hidden_behind_another() {
    let prefix = scratch("with space");
    touch(prefix.join("lib/adverb/libibverbs.so.1"));
    touch(prefix.join("lib/adverb/libadverb_preload.so"));
    let found = find(&prefix.join("bin/adverb"), true).unwrap();
    let preload = found.preload.unwrap();
    assert!(is_plain(&found.directory) && is_plain(&preload));
    assert!(found.directory.join("libibverbs.so.1").is_file() && preload.is_file());
    fs::remove_dir_all(prefix).unwrap();
    fs::remove_dir_all(preload.parent().unwrap()).unwrap();
}
