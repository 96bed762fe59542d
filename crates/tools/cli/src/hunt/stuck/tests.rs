use super::*;
use std::io::Write;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

/// HUN-7: a server is ready when it listens.
#[test]
fn a_listening_socket_is_seen() {
    // The threads of other tests share this process, so another process listens.
    let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    let other = PathBuf::from(format!("/proc/{}", child.id()));
    assert!(!listens(&other));
    let own = Path::new("/proc/self");
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    assert!(listens(own));
    drop(tcp);
    let path = std::env::temp_dir().join(format!("adverb-listens-{}", std::process::id()));
    let unix = UnixListener::bind(&path).unwrap();
    assert!(listens(own));
    drop(unix);
    let _ = std::fs::remove_file(path);
    for (name, is_server) in
        [("adverb.survivor.", false), ("adverb-0-", false), ("adverb-nd-", true)]
    {
        let name = format!("{name}{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let _listener = UnixListener::bind_addr(&address).unwrap();
        assert_eq!(listens(own), is_server, "{name}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

/// HUN-4: a process that waits for an answer of the connection manager is neither silent nor
/// stuck.
#[test]
fn an_exchange_of_the_connection_manager_is_no_silence() {
    let mut command = std::process::Command::new("cat");
    command.stdin(std::process::Stdio::piped());
    let mut child =
        std::os::unix::process::CommandExt::process_group(&mut command, 0).spawn().unwrap();
    let name = format!("adverb-exchange-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, "process 1 of this run\n").unwrap();
    let mut log = File::options().append(true).open(&path).unwrap();
    let mut watcher = Watcher::new(path.clone());
    watcher.add(child.id());
    let looks = ASLEEP.as_millis() / MOST_BETWEEN.as_millis() * 3;
    for _ in 0..looks {
        log.write_all(b"exchange 1\n").unwrap();
        std::thread::sleep(MOST_BETWEEN);
        watcher.look();
        assert_eq!((watcher.is_stuck(), watcher.silence()), (None, Duration::ZERO));
    }
    let is_stuck = (0..1000).any(|_| {
        std::thread::sleep(MOST_BETWEEN);
        watcher.look();
        watcher.is_stuck().is_some()
    });
    assert!(is_stuck);
    child.kill().unwrap();
    child.wait().unwrap();
    std::fs::remove_file(path).unwrap();
}
