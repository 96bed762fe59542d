//! The versions of the kernel, and of the libraries that programs will load.
use super::finding::Finding;
use std::fs;

/// Older kernels lack `pidfd_open`, by which the device sees the end of a peer.
const KERNEL: (u32, u32) = (5, 3);

pub fn findings() -> Vec<Finding> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    vec![kernel(release.trim()), libraries()]
}

fn kernel(release: &str) -> Finding {
    let found = format!("Linux {release} on {}", std::env::consts::ARCH);
    match version(release) {
        Some(version) if version < KERNEL => {
            let remedy = format!(
                "Linux {}.{} or newer is needed to see the end of peers at once",
                KERNEL.0, KERNEL.1
            );
            Finding::warn("kernel", found, remedy)
        }
        _ => Finding::ok("kernel", found),
    }
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
}
