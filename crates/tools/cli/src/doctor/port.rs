//! UDP port 4791, and the process using the port.
use super::finding::Finding;
use std::fs;
use std::net::{Ipv4Addr, UdpSocket};

const PORT: u16 = 4791;

/// A socket listed in `/proc/net/udp`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Socket {
    user: u32,
    inode: u64,
}

pub fn findings() -> Vec<Finding> {
    let mut sockets = Vec::new();
    for table in ["/proc/net/udp", "/proc/net/udp6"] {
        sockets.extend(sockets_of(&fs::read_to_string(table).unwrap_or_default()));
    }
    let user = nix::unistd::Uid::effective().as_raw();
    let ours = shared_by_adverb(&fs::read_to_string("/proc/net/unix").unwrap_or_default(), user);
    if sockets.is_empty() {
        return vec![match UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT)) {
            Ok(_) => Finding::ok("port", format!("UDP port {PORT} is free")),
            Err(e) => Finding::fail(
                "port",
                format!("UDP port {PORT} is not available: {e}"),
                "soft-RoCE of the kernel may have the port: `rdma link` shows the interface, `rdma \
                 link delete NAME` removes the interface; or run programs in a separate network \
                 namespace",
            ),
        }];
    }
    vec![judge(&sockets, user, ours, holder)]
}

fn judge(
    sockets: &[Socket],
    user: u32,
    ours: usize,
    holder: impl Fn(u64) -> Option<String>,
) -> Finding {
    let stranger = sockets.iter().find(|socket| socket.user != user);
    let who = |socket: &Socket| holder(socket.inode).unwrap_or_else(|| "a hidden process".into());
    if let Some(stranger) = stranger {
        return Finding::fail(
            "port",
            format!("UDP port {PORT} belongs to user {}: {}", stranger.user, who(stranger)),
            "the port belongs to one user per network namespace: end the other program, or run \
             yours in a separate namespace, as by `unshare -rn` or a container",
        );
    }
    if ours == 0 {
        return Finding::fail(
            "port",
            format!("UDP port {PORT} belongs to {}, which does not use Adverb", who(&sockets[0])),
            "end this program, or run yours in a separate network namespace",
        );
    }
    let sockets = sockets.len();
    let found = format!("your programs on Adverb share UDP port {PORT} ({sockets} sockets)");
    Finding::ok("port", found)
}

/// The sockets of a table bound to the port.
fn sockets_of(table: &str) -> Vec<Socket> {
    let socket = |line: &str| {
        let mut words = line.split_whitespace();
        let (_, port) = words.nth(1)?.rsplit_once(':')?;
        let user = words.nth(5)?.parse().ok()?;
        let inode = words.nth(1)?.parse().ok()?;
        (u16::from_str_radix(port, 16) == Ok(PORT)).then_some(Socket { user, inode })
    };
    table.lines().skip(1).filter_map(socket).collect()
}

/// The number of abstract socket names of the user's Adverb processes.
fn shared_by_adverb(table: &str, user: u32) -> usize {
    let begin = format!("@adverb-{user}-");
    table
        .lines()
        .filter(|line| {
            line.split_whitespace().next_back().is_some_and(|name| name.starts_with(&begin))
        })
        .count()
}

/// The process with a socket open, where the kernel shows it.
fn holder(inode: u64) -> Option<String> {
    let link = format!("socket:[{inode}]");
    for process in adverb_os::processes() {
        let Ok(files) = fs::read_dir(format!("/proc/{process}/fd")) else { continue };
        if files
            .flatten()
            .any(|file| fs::read_link(file.path()).is_ok_and(|to| to.as_os_str() == &*link))
        {
            let name = fs::read(format!("/proc/{process}/comm")).unwrap_or_default();
            let name = String::from_utf8_lossy(&name);
            return Some(named(&process.to_string(), name.trim_end()));
        }
    }
    None
}

/// A process chooses the name, so control characters are escaped.
fn named(process: &str, name: &str) -> String {
    format!("process {process} ({})", name.escape_debug())
}

#[cfg(test)]
mod tests {
    use super::super::finding::State;
    use super::*;

    const TABLE: &str = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
  617: 00000000:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000        0 81723 2 0000000000000000 0
  900: 0100007F:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000   101        0 21201 2 0000000000000000 0
";

    /// DOC-3: another user's process cannot control the terminal by a process name.
    #[test]
    fn names_of_processes_are_escaped() {
        assert_eq!(named("7", "a\u{1b}]0;b\u{9b}m\u{7}"), "process 7 (a\\u{1b}]0;b\\u{9b}m\\u{7})");
        assert_eq!(named("7", "Käse"), "process 7 (Käse)");
    }

    /// DOC-3: the owner of the port is named, with a remedy.
    #[test]
    fn who_has_the_port_is_judged() {
        let sockets = sockets_of(TABLE);
        assert_eq!(sockets, [Socket { user: 1000, inode: 81723 }]);
        let holder = |inode| Some(format!("process 7 with {inode}"));
        let names = "0: 00000002 0 00010000 0005 01 5 @adverb-1000-12\n0: 00000002 0 00010000 0005 01 6 @adverb-10001-9\n";
        assert_eq!(shared_by_adverb(names, 1000), 1);
        assert_eq!(judge(&sockets, 1000, 1, holder).state, State::Ok);
        let other = judge(&sockets, 1000, 0, holder);
        assert!(
            other.state == State::Fail && other.found.contains("process 7 with 81723"),
            "{other:?}"
        );
        let stranger = judge(&sockets, 1001, 1, holder);
        assert!(
            stranger.state == State::Fail && stranger.found.contains("user 1000"),
            "{stranger:?}"
        );
    }
}
