//! The library as `make install` installs it: pkg-config finds the library, and so do programs
//! linked with it.

use std::path::Path;
use std::process::Command;

mod common;

fn sh(dir: &Path, script: &str) -> String {
    let output = Command::new("sh")
        .args(["-euc", script])
        .current_dir(dir)
        .env_remove("LD_LIBRARY_PATH")
        .env("SOURCES", env!("CARGO_MANIFEST_DIR"))
        .env("LIBRARY", common::c::library())
        .output()
        .expect("a shell");
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{script}\n{out}\n{err}");
    out.into_owned()
}

/// NDK-8.
#[test]
fn pkg_config_leads_to_the_installed_library() {
    let dir =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("installed.{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("writable");
    // The other files are not part of this test. `scripts/check-objects` checks the dependencies of
    // two of them.
    sh(
        &dir,
        "mkdir build
        for file in adverb libibverbs.so librdmacm.so libadverb_sockets.so; do
            cp /bin/true build/$file
        done
        ${CC:-cc} -shared -Wl,--no-as-needed -o build/libadverb_preload.so -xc /dev/null -nostdlib -l:libdl.so.2 -lc
        ${CC:-cc} -shared -nostdlib -o build/libadverb_audit.so -xc /dev/null
        cp $LIBRARY build/libndkpi.so
        BUILD=build $SOURCES/../../scripts/install install prefix",
    );
    // The installed tree can be moved.
    sh(
        &dir,
        "mv prefix moved
        export PKG_CONFIG_PATH=$PWD/moved/lib/pkgconfig
        ${CC:-cc} -std=gnu11 -pthread -o srq $SOURCES/tests/c/srq.c $(pkg-config --cflags --libs libndkpi)",
    );
    assert!(sh(&dir, "./srq 0").contains("done"));
    sh(
        &dir,
        "BUILD=build $SOURCES/../../scripts/install uninstall moved
        test -z \"$(find moved -not -type d)\"",
    );
    std::fs::remove_dir_all(&dir).expect("ours");
}
