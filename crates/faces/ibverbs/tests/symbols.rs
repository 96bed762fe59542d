//! The built shared object: its name, its exports, and what `dlvsym` finds in it.
#![allow(unsafe_code, reason = "it calls the C ABI")]

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CString, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;

#[path = "common/object.rs"]
mod object;

use object::{Names, names};

fn library() -> PathBuf {
    object::library("libibverbs.so")
}

/// Name and node of each row of the tables in `symbols`.
fn committed() -> Names {
    object::committed(include_str!(concat!(env!("OUT_DIR"), "/symbols.txt")))
}

/// A loaded library; never unloaded, as its flags say.
struct Library(*mut c_void);

impl Library {
    fn open() -> Self {
        let path = CString::new(library().into_os_string().into_encoded_bytes()).expect("no zero");
        // SAFETY: a path; the library's constructors are those of any Rust library.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!handle.is_null(), "dlopen failed");
        Self(handle)
    }

    fn find(&self, name: &str, node: &str) -> Option<*mut c_void> {
        let (name, node) =
            (CString::new(name).expect("no zero"), CString::new(node).expect("no zero"));
        // SAFETY: a live handle and two strings.
        let symbol = unsafe { libc::dlvsym(self.0, name.as_ptr(), node.as_ptr()) };
        (!symbol.is_null()).then_some(symbol)
    }
}

#[test]
fn every_committed_symbol_is_found_at_its_node() {
    let library = Library::open();
    let missing: Vec<_> =
        committed().into_iter().filter(|(n, v)| library.find(n, v).is_none()).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// The facts of the tables, by another source: the distribution's rdma-core. A public node never
/// changes after its release. A private one may have further names in a later release.
#[test]
fn the_distributions_library_has_the_same_names_at_its_nodes() {
    let run = Command::new("cc").arg("-print-file-name=libibverbs.so.1").output();
    let path = String::from_utf8(run.expect("a C compiler").stdout).expect("UTF-8");
    // The old layouts at this node are not claimed here.
    let mut theirs = names(Path::new(path.trim()), true);
    theirs.retain(|(_, node)| node != "IBVERBS_1.0");
    assert!(theirs.len() > 100, "{path}: install the package libibverbs-dev: {theirs:?}");
    let ours = committed();
    let is_at = |all: &Names, node| all.iter().any(|(_, of)| of == node);
    let missing: Vec<_> = theirs.difference(&ours).filter(|(_, node)| is_at(&ours, node)).collect();
    let added: Vec<_> = ours
        .difference(&theirs)
        .filter(|(_, node)| node.starts_with("IBVERBS_1.") && is_at(&theirs, node))
        .collect();
    assert!(missing.is_empty() && added.is_empty(), "missing {missing:?}, added {added:?}");
}

#[test]
fn nothing_else_is_exported() {
    object::exports(&library(), &committed());
}

/// Programs look names up without a version, too: `ibv_query_gid_type`, a private one, among them.
#[test]
fn every_name_is_found_without_a_version() {
    let library = Library::open();
    let found = |name: &str| {
        let name = CString::new(name).expect("no zero");
        // SAFETY: a live handle and a string.
        !unsafe { libc::dlsym(library.0, name.as_ptr()) }.is_null()
    };
    let missing: BTreeSet<_> =
        committed().into_iter().map(|(n, _)| n).filter(|n| !found(n)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn each_name_has_one_default_version() {
    let mut defaults = BTreeMap::<String, usize>::new();
    let all = object::bracketed(&library(), true);
    for (name, _) in all.into_iter().filter(|(_, node)| !node.starts_with('(')) {
        *defaults.entry(name).or_default() += 1;
    }
    for (name, node) in committed() {
        assert_eq!(defaults.get(&name), Some(&1), "{name}@@{node}");
    }
}

#[test]
fn names_of_version_1_0_layouts_are_not_claimed() {
    // The old layouts are not implemented: asking for them must fail rather than find today's
    // function.
    let library = Library::open();
    for name in ["ibv_get_device_list", "ibv_open_device", "ibv_create_qp"] {
        assert!(library.find(name, "IBVERBS_1.0").is_none(), "{name}@IBVERBS_1.0");
    }
    assert!(library.find("ibv_get_device_list", "IBVERBS_1.2").is_none());
}

#[test]
fn trampolines_reach_their_functions() {
    let library = Library::open();
    let symbol = library.find("ibv_rate_to_mbps", "IBVERBS_1.1").expect("exported");
    // SAFETY: the C signature of this name.
    let rate_to_mbps: extern "C" fn(u32) -> i32 = unsafe { core::mem::transmute(symbol) };
    assert_eq!(rate_to_mbps(ibverbs::abi::IBV_RATE_100_GBPS), 103_125);

    let symbol = library.find("ibv_cmd_create_qp", "IBVERBS_PRIVATE_34").expect("exported");
    // SAFETY: the function takes what it is given and returns a number.
    let command: extern "C" fn(*const u8, usize) -> i32 = unsafe { core::mem::transmute(symbol) };
    assert_eq!(command(core::ptr::null(), 0), libc::EOPNOTSUPP);

    let flag = "verbs_allow_disassociate_destroy";
    let one = library.find(flag, "IBVERBS_PRIVATE_34").expect("exported");
    assert_eq!(Some(one), library.find(flag, "IBVERBS_PRIVATE_65"), "one object under all nodes");
    // SAFETY: a byte of writable data that only providers touch.
    unsafe { one.cast::<u8>().write(1) };
}

#[test]
fn the_soname_is_that_of_the_original() {
    let text = object::said("readelf", "-d", &library());
    assert!(text.contains("[libibverbs.so.1]"), "{text}");
    assert!(text.contains("NODELETE"), "{text}");
}
