//! The versions of the kernel, and of the libraries that programs will load.
use super::finding::Finding;
use std::fs;
use std::path::Path;

/// Older kernels lack `pidfd_open`, by which the device sees the end of a peer.
const KERNEL: (u32, u32) = (5, 3);

pub fn findings() -> Vec<Finding> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let loader = format!("/lib/ld-musl-{}.so.1", std::env::consts::ARCH);
    let mut all = vec![kernel(release.trim()), libraries()];
    all.extend(musl(Path::new(&loader)));
    all
}

/// A machine with musl's loader starts programs that no drop-in library can be loaded into.
fn musl(loader: &Path) -> Option<Finding> {
    let found = "programs built with musl have no device: use an image with glibc";
    loader.exists().then(|| Finding::ok("musl", found))
}

fn kernel(release: &str) -> Finding {
    let found = format!("Linux {release} on {}", std::env::consts::ARCH);
    let (major, minor) = KERNEL;
    let remedy =
        format!("Linux {major}.{minor} or newer is needed to see the end of peers at once");
    let is_old = version(release).is_some_and(|version| version < KERNEL);
    Finding::ok("kernel", found).unless(!is_old, remedy)
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn libraries() -> Finding {
    let own = env!("CARGO_PKG_VERSION");
    let exe = std::env::current_exe().map_err(|e| e.to_string());
    match exe.and_then(|exe| crate::run::libraries(&exe)) {
        Ok(directory) => Finding::ok(
            "libraries",
            format!("adverb {own}, drop-in libraries in {}", directory.display()),
        ),
        Err(why) => Finding::fail(
            "libraries",
            format!("adverb {own}: {why}"),
            "install all of Adverb: `make install`",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::State;
    use super::*;

    /// DOC-6: an old kernel is reported.
    #[test]
    fn old_kernels_are_warned_of() {
        for (release, state) in [
            ("4.18.0-553.el8", State::Warn),
            ("5.3.0", State::Ok),
            ("6.12.9+deb", State::Ok),
            ("", State::Ok),
        ] {
            assert_eq!(kernel(release).state, state, "{release}");
        }
    }

    /// DOC-6: where programs built with musl start, the doctor says that they have no device.
    #[test]
    fn musl_is_named_where_its_loader_is() {
        assert_eq!(musl(Path::new("/nonexistent/ld-musl-x86_64.so.1")), None);
        let said = musl(Path::new("/dev/null")).expect("the file exists");
        assert!(said.state == State::Ok && said.found.contains("image with glibc"), "{said:?}");
    }
}
