use super::super::tests::scratch;
use super::*;
use std::fs;
use std::os::unix::fs::PermissionsExt;

fn touch(path: PathBuf) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, "").unwrap();
}

fn touch_all(directory: &Path, names: &[&str]) {
    names.iter().for_each(|name| touch(directory.join(name)));
}

/// The libraries of a build.
const BUILT: [&str; 4] =
    ["libibverbs.so", "librdmacm.so", "libadverb_preload.so", "libadverb_audit.so"];

/// Creates the libraries as an installation has them.
fn install(directory: &Path) {
    touch_all(directory, &["libibverbs.so.1", "librdmacm.so.1", BUILT[2], BUILT[3]]);
}

#[test]
fn installed_libraries_are_beside_the_command() {
    let prefix = scratch("installed");
    install(&prefix.join("lib/adverb"));
    let exe = prefix.join("bin/adverb");
    let found = find(&exe, true).unwrap();
    assert_eq!(found.directory, prefix.join("lib/adverb"));
    assert_eq!(found.preload, [prefix.join("lib/adverb/libadverb_preload.so")]);
    assert_eq!(found.audit, Some(prefix.join("lib/adverb/libadverb_audit.so")));
    assert!(find(&exe, false).unwrap().preload.is_empty());
}

#[test]
fn a_build_tree_gets_a_directory_of_links() {
    let target = scratch("built");
    touch(target.join("release/deps/libibverbs.so"));
    touch_all(&target.join("release"), &BUILT);
    let exe = target.join("release/adverb");
    let found = find(&exe, true).unwrap();
    assert!(found.directory.starts_with(target.join("release")), "{found:?}");
    // The library in `deps` is always of the last build.
    let library = target.join("release/deps/libibverbs.so");
    assert_eq!(fs::canonicalize(found.directory.join("libibverbs.so.1")).unwrap(), library);
    assert_eq!(fs::canonicalize(found.directory.join("libibverbs.so")).unwrap(), library);
    let library = target.join("release/librdmacm.so");
    assert_eq!(fs::canonicalize(found.directory.join("librdmacm.so.1")).unwrap(), library);
    assert_eq!(found.preload, [target.join("release/libadverb_preload.so")]);
    assert_eq!(found.nameless, None);
    assert_eq!(find(&exe, true), Ok(found), "used again");
}

#[test]
fn what_is_missing_is_named() {
    let target = scratch("missing");
    let exe = target.join("release/adverb");
    let text = find(&exe, true).unwrap_err();
    assert!(text.contains("libibverbs.so is missing") && text.contains("cargo build"), "{text}");
    touch(target.join("release/deps/libibverbs.so"));
    touch(target.join("release/deps/libadverb_audit.so"));
    let text = find(&exe, true).unwrap_err();
    assert!(text.contains("librdmacm.so is missing"), "{text}");
    touch(target.join("release/deps/librdmacm.so"));
    let text = find(&exe, true).unwrap_err();
    assert!(text.contains("libadverb_preload.so is missing"), "{text}");
    assert!(find(&exe, false).is_ok());
}

#[test]
fn a_path_that_the_loader_would_split_is_hidden_behind_another() {
    let prefix = scratch("with space");
    install(&prefix.join("lib/adverb"));
    let found = find(&prefix.join("bin/adverb"), true).unwrap();
    let preload = &found.preload[0];
    assert!(
        is_plain(&found.directory) && is_plain(preload) && is_plain(found.audit.as_ref().unwrap())
    );
    assert!(found.directory.join("libibverbs.so.1").is_file() && preload.is_file());
    fs::remove_dir_all(preload.parent().unwrap()).unwrap();
}

#[test]
fn where_no_directory_can_be_made_the_library_is_preloaded() {
    let target = scratch("nowhere");
    touch_all(&target.join("release"), &BUILT);
    // Every user may write there, so a predictable name is not used.
    fs::set_permissions(target.join("release"), fs::Permissions::from_mode(0o1777)).unwrap();
    let nowhere = |_: &str, _: &Tree| Err("nowhere".to_string());
    let found = find_with(&target.join("release/adverb"), true, &nowhere).unwrap();
    assert_eq!(found.directory, target.join("release"));
    assert_eq!(found.preload[..], BUILT.map(|n| target.join("release").join(n))[..3]);
    let why = found.nameless.unwrap();
    assert!(why.contains("all users may write there") && why.contains("nowhere"), "{why}");

    let target = scratch("no way");
    touch_all(&target.join("release"), &[BUILT[0], BUILT[1], BUILT[3]]);
    let why = find_with(&target.join("release/adverb"), false, &nowhere).unwrap_err();
    assert!(why.contains("nowhere") && why.contains("move adverb to"), "{why}");
}
