//! Two users work on one host with real devices. Neither user gets any resource of the other. The
//! tests need root, because they start a process of another user.
mod common;
use adverb_device::Error;
use adverb_device::engine::{PathMtu, QpAttr, QpType, SendOp, WcStatus};
use adverb_device::node::Node;
use common::party::{Party, listen, stay, tell};
use common::{QpEnd, attributes, child, path_to, to_rts};
use nix::sys::socket::{
    AddressFamily, Backlog, MsgFlags, SockFlag, SockType, UnixAddr, bind, recv, socket,
};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

const STRANGER: u32 = 65533;

/// A process of another user. The process runs an ignored test of this file.
struct Stranger {
    party: Party,
    exe: PathBuf,
}

impl Stranger {
    fn start(name: &str, args: &str) -> Stranger {
        assert!(
            nix::unistd::geteuid().is_root(),
            "this test becomes another user, which only root can: run it as root (`sudo -E cargo test -p adverb-device`)"
        );
        // Run a copy of the program, because the other user may have no access to the build tree.
        let exe =
            std::env::temp_dir().join(format!("adverb-device-trust-{name}-{}", std::process::id()));
        std::fs::copy(std::env::current_exe().unwrap(), &exe).unwrap();
        let mut command = Command::new(&exe);
        command.env("STRANGER_ARGS", args).uid(STRANGER).gid(STRANGER).current_dir("/");
        Stranger { party: Party::spawn(name, &mut command), exe }
    }

    fn ask(&mut self, what: &str) -> String {
        self.party.say(what);
        self.party.hear()
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.exe);
    }
}

/// Moves a queue pair to RTR and RTS, connected to `dest_qpn` at an IPv6 or IPv4 address of this
/// device.
fn connect(end: &QpEnd, dest_qpn: u32, v6: bool) -> Result<(), Error> {
    let index = end.context.device().gids().iter().position(|g| g.ipv4().is_none() == v6).unwrap();
    let av = path_to(&end.context, index)?;
    let attr = QpAttr { timeout: 10, retry_cnt: 2, ..attributes(av, dest_qpn, PathMtu::Mtu1024) };
    to_rts(&end.qp, &attr)
}

fn works(a: &QpEnd, b: &QpEnd) -> bool {
    b.recv(1, &[b.sge(0, 64)]);
    let sent = a.perform(SendOp::Send, &[a.sge(0, 64)]);
    sent == WcStatus::Success && b.wait(1)[0].status == WcStatus::Success
}

/// A program connects to a queue pair number, and a stranger holds the name of the slot of this
/// number. A server is in this situation if a client sent the number. The stranger gets no
/// descriptor and no payload, and the log names the user of the stranger.
#[test]
fn tru_1_a_stranger_is_given_nothing_by_a_connection() {
    let text = child::run("inner_given", &[]);
    assert!(text.contains("user 65533"), "{text}");
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn inner_given() {
    child::log();
    let end = QpEnd::new(QpType::Rc);
    // The stranger holds the name of a slot without a living process, and reports the number of the
    // slot.
    let mut stranger = Stranger::start("the_listener", &nix::unistd::geteuid().to_string());
    let slot: u32 = stranger.party.hear().parse().unwrap();
    connect(&end, slot << 14 | 5, false).unwrap();
    assert_eq!(end.perform(SendOp::Send, &[end.sge(0, 64)]), WcStatus::RetryExcErr);
    assert_eq!(stranger.ask("what have you got?"), "0 bytes");
    let counters = Node::get().unwrap().named_counters();
    let refused = counters.iter().find(|(name, _)| *name == "local_refused_other_user").unwrap().1;
    assert!(refused > 0, "nobody was asked");
}

/// Holds the name of a slot of another user, and counts the arriving bytes.
#[test]
#[ignore = "the process of another user, started by a test"]
fn the_listener() {
    let uid = std::env::var("STRANGER_ARGS").unwrap();
    let claim = |slot: u32| -> Option<(u32, UnixListener)> {
        let fd: OwnedFd =
            socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).ok()?;
        bind(
            fd.as_raw_fd(),
            &UnixAddr::new_abstract(format!("adverb-{uid}-{slot}").as_bytes()).ok()?,
        )
        .ok()?;
        nix::sys::socket::listen(&fd, Backlog::new(64).ok()?).ok()?;
        Some((slot, fd.into()))
    };
    let (slot, listener) = (800..1000).find_map(claim).expect("a free slot");
    tell(&slot.to_string());
    listener.set_nonblocking(true).unwrap();
    let (mut lines, mut bytes) = (Vec::new(), 0);
    while listen().is_some() {
        lines.extend(std::iter::from_fn(|| listener.accept().ok()));
        for (line, _) in &lines {
            let mut buffer = [0; 65536];
            while let Ok(n @ 1..) = recv(line.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
                bytes += n;
            }
        }
        tell(&format!("{bytes} bytes"));
    }
}

/// Two users work at the same time, each at a separate address. Neither user can use the address of
/// the other. The error names the user at the address.
#[test]
fn tru_4_two_users_work_side_by_side_and_are_told_of_each_other() {
    child::run("inner_side_by_side", &[]);
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn inner_side_by_side() {
    let (a, b) = (QpEnd::new(QpType::Rc), QpEnd::new(QpType::Rc));
    connect(&a, b.qp.number(), false).unwrap();
    connect(&b, a.qp.number(), false).unwrap();
    let mut stranger = Stranger::start("the_neighbour", "");
    assert_eq!(stranger.party.hear(), "works");
    assert!(works(&a, &b));
    // The stranger tries this user's address, and this user tries the stranger's address.
    let said = stranger.ask("and here?");
    assert!(said.contains("user 0"), "{said}");
    let c = QpEnd::new(QpType::Rc);
    let error = connect(&c, 900 << 14, true).unwrap_err();
    assert_eq!(error.errno(), nix::errno::Errno::EADDRINUSE as i32);
    assert!(error.to_string().contains("user 65533"), "{error}");
    assert!(works(&a, &b));
}

#[test]
#[ignore = "the process of another user, started by a test"]
fn the_neighbour() {
    let (a, b) = (QpEnd::new(QpType::Rc), QpEnd::new(QpType::Rc));
    let connected =
        connect(&a, b.qp.number(), true).and_then(|()| connect(&b, a.qp.number(), true));
    match connected {
        Ok(()) => tell(if works(&a, &b) { "works" } else { "fails" }),
        Err(e) => tell(&e.to_string()),
    }
    if listen().is_some() {
        let end = QpEnd::new(QpType::Rc);
        let refused = connect(&end, 900 << 14, false);
        tell(&refused.map_or_else(|e| e.to_string(), |()| "it may".to_owned()));
    }
    stay();
}
