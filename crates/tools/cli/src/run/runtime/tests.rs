use super::super::tests::{Scratch, scratch};
use super::super::tree::TreeEntry;
use super::*;
use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, chown, symlink};

fn tree() -> Tree {
    vec![("a/b".into(), TreeEntry::File("text".into()))]
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// A directory with the mode of `/tmp`.
fn shared(name: &str) -> Scratch {
    let path = scratch(name);
    mode(&path, 0o1777);
    path
}

fn user() -> u32 {
    Uid::effective().as_raw()
}

fn names(place: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(place)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn the_places_and_their_order() {
    let from = |list: &[(&str, &str)]| {
        places(|name| list.iter().find(|(n, _)| *n == name).map(|(_, v)| PathBuf::from(v)))
    };
    let shared = |path: &str| ParentDirectory::Shared(path.into());
    assert_eq!(from(&[]), [shared("/dev/shm"), shared("/tmp"), shared("/var/tmp")]);
    assert_eq!(
        from(&[("XDG_RUNTIME_DIR", "run"), ("TMPDIR", "/tmp")]),
        from(&[]),
        "a relative path names no place"
    );
    let all = from(&[("XDG_RUNTIME_DIR", "/run/user/7"), ("TMPDIR", "/t")]);
    assert_eq!(all[0], ParentDirectory::Own("/run/user/7".into()));
    assert_eq!(all[2], shared("/t"));
}

#[test]
fn trust_in_a_shared_place_the_directory_is_the_users_alone_and_used_again() {
    let place = shared("shared");
    let at = [ParentDirectory::Shared(place.clone())];
    let made = place_in(&at, "kind", &tree()).unwrap();
    assert_eq!(names(&place).len(), 1);
    let directory = made.parent().unwrap();
    assert_eq!(directory.file_name().unwrap(), &*format!("adverb-{}", user()));
    assert_eq!(fs::metadata(directory).unwrap().mode() & 0o7777, 0o700);
    assert_eq!(place_in(&at, "kind", &tree()).unwrap(), made);
    assert_eq!(names(&place).len(), 1);
}

/// TRU-4: if the fixed name is taken, the directory's name is not predictable.
#[test]
fn trust_where_the_fixed_name_is_taken_the_name_is_random() {
    let made = ["taken", "taken-2"].map(|name| {
        let place = shared(name);
        fs::write(place.join(format!("adverb-{}", user())), "").unwrap();
        let at = [ParentDirectory::Shared(place.clone())];
        let made = place_in(&at, "kind", &tree()).unwrap();
        let directory = made.parent().unwrap().to_owned();
        let name = directory.file_name().unwrap().to_str().unwrap().to_owned();
        let random = name.strip_prefix(&format!("adverb-{}-", user())).unwrap();
        assert!(random.len() == 16 && random.bytes().all(|b| b.is_ascii_hexdigit()), "{name}");
        assert_eq!(fs::metadata(directory).unwrap().mode() & 0o7777, 0o700);
        assert_eq!(place_in(&at, "kind", &tree()).unwrap(), made);
        name
    });
    assert_ne!(made[0], made[1]);
}

/// TRU-4: other names beside the fixed name add nothing to the cost of a start, because they are
/// not read. The test adds a directory with the right owner and mode, and checks that this
/// directory is not chosen.
#[test]
fn trust_the_users_directory_is_found_without_a_look_at_other_names() {
    let place = shared("unlisted");
    let at = [ParentDirectory::Shared(place.clone())];
    let made = place_in(&at, "kind", &tree()).unwrap();
    let beside = place.join(format!("adverb-{}-{:016x}", user(), 0));
    DirBuilder::new().mode(0o700).create(&beside).unwrap();
    assert_eq!(
        place_in(&at, "kind", &tree()).unwrap(),
        made,
        "another directory of the user's is not taken"
    );
}

/// TRU-4: if more names are in the way than [`LOOKED_AT`], a run makes a new directory. Only one of
/// many names is private to the user: first the last name that is read, then the next name.
/// `chmod` does not change the order of a directory.
#[test]
fn trust_so_many_names_are_looked_at_and_no_more() {
    let place = shared("crowded");
    fs::write(place.join(format!("adverb-{}", user())), "").unwrap();
    for n in 0..LOOKED_AT + 8 {
        let path = place.join(format!("adverb-{}-{n:016x}", user()));
        DirBuilder::new().mode(0o700).create(&path).unwrap();
        mode(&path, 0o755);
    }
    let in_order: Vec<_> = fs::read_dir(&*place).unwrap().map(|e| e.unwrap().path()).collect();
    let is_directory = |path: &&PathBuf| path.is_dir();
    let last_looked_at = in_order[..LOOKED_AT].iter().rfind(is_directory).unwrap();
    let first_behind = in_order[LOOKED_AT..].iter().find(is_directory).unwrap();
    let used = || place_in(&[ParentDirectory::Shared(place.clone())], "kind", &tree()).unwrap();
    mode(last_looked_at, 0o700);
    assert_eq!(used().parent().unwrap(), last_looked_at);
    mode(last_looked_at, 0o755);
    mode(first_behind, 0o700);
    let made = used().parent().unwrap().to_owned();
    assert!(!in_order.contains(&made), "{} was there", made.display());
}

/// TRU-4: an entry with such a name, but not private to the user, is neither used nor in the way.
#[test]
fn trust_what_is_not_the_users_alone_is_passed_over() {
    let place = shared("squatted");
    let name = |n: u32| place.join(format!("adverb-{}-{n:016x}", user()));
    let target = place.join("elsewhere");
    DirBuilder::new().mode(0o700).create(&target).unwrap();
    symlink(&target, name(0)).unwrap();
    fs::write(name(1), "").unwrap();
    fs::create_dir(name(2)).unwrap();
    mode(&name(2), 0o750);
    symlink("/nonexistent", name(3)).unwrap();
    fs::write(place.join(format!("adverb-{}", user())), "").unwrap();
    // Only root can make a directory of another user.
    if user() == 0 {
        fs::create_dir(name(4)).unwrap();
        mode(&name(4), 0o700);
        chown(name(4), Some(1234), None).unwrap();
        symlink(&target, name(5)).unwrap();
        std::os::unix::fs::lchown(name(5), Some(1234), None).unwrap();
    }
    let before = names(&place);
    let made = place_in(&[ParentDirectory::Shared(place.clone())], "kind", &tree()).unwrap();
    let fresh = made.parent().unwrap().file_name().unwrap().to_str().unwrap().to_string();
    assert!(!before.contains(&fresh), "{fresh} was there");
    assert_eq!(names(&place).len(), before.len() + 1);
    assert_eq!(names(&target), Vec::<String>::new());
}

#[test]
fn trust_a_place_where_others_may_rename_is_not_used() {
    let place = shared("loose");
    mode(&place, 0o777);
    let why = place_in(&[ParentDirectory::Shared(place.clone())], "kind", &tree()).unwrap_err();
    assert!(why.contains("sticky") && why.contains(place.to_str().unwrap()), "{why}");
    if user() == 0 {
        mode(&place, 0o1777);
        chown(&*place, Some(1234), None).unwrap();
        let why = place_in(&[ParentDirectory::Shared(place.clone())], "kind", &tree()).unwrap_err();
        assert!(why.contains("belongs to user 1234"), "{why}");
    }
    assert_eq!(names(&place), Vec::<String>::new());
}

#[test]
fn trust_a_fixed_name_only_where_nobody_else_writes() {
    let place = scratch("own");
    let at = [ParentDirectory::Own(place.clone())];
    for (open, said) in [(0o755, "mode 755"), (0o1777, "mode 1777")] {
        mode(&place, open);
        let why = place_in(&at, "kind", &tree()).unwrap_err();
        assert!(why.contains(said), "{why}");
        assert_eq!(names(&place), Vec::<String>::new());
    }
    mode(&place, 0o700);
    let made = place_in(&at, "kind", &tree()).unwrap();
    assert_eq!(made.parent().unwrap(), place.join("adverb"));
    // A directory opened to others since, and a symbolic link, are refused.
    mode(&place.join("adverb"), 0o777);
    assert!(place_in(&at, "kind", &tree()).unwrap_err().contains("open to other users"));
    fs::rename(place.join("adverb"), place.join("moved")).unwrap();
    symlink("moved", place.join("adverb")).unwrap();
    assert!(place_in(&at, "kind", &tree()).is_err());
    if user() == 0 {
        chown(&*place, Some(1234), None).unwrap();
        assert!(place_in(&at, "kind", &tree()).unwrap_err().contains("belongs to user 1234"));
    }
}

#[test]
fn the_next_place_is_tried_and_all_reasons_are_given() {
    let (bad, good) = (scratch("bad"), shared("good"));
    fs::write(bad.join("file"), "").unwrap();
    let places = [
        ParentDirectory::Shared(bad.join("nothing")),
        ParentDirectory::Shared(bad.join("file")),
        ParentDirectory::Shared(good.clone()),
    ];
    assert!(place_in(&places, "kind", &tree()).unwrap().starts_with(&*good));
    let why = place_in(&places[..2], "kind", &tree()).unwrap_err();
    assert!(why.contains("nothing: ") && why.contains("file: "), "{why}");
    // Nothing is left of a tree that cannot be made.
    let empty = shared("empty");
    let impossible = vec![("x".repeat(300).into(), TreeEntry::File(String::new()))];
    assert!(place_in(&[ParentDirectory::Shared(empty.clone())], "kind", &impossible).is_err());
    assert_eq!(names(&empty), Vec::<String>::new());
}
