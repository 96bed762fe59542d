//! Tests the network between two hosts with the device itself. Over a TCP connection, each side
//! tells the other what it has received.
use super::finding::Finding;
use crate::demo::control::Control;
use crate::demo::end::{Endpoint, FirstPsns, Kind};
use crate::demo::world::{HANG_LIMIT, IN, OUT, Role, World};
use adverb_device::Device;
use adverb_device::engine::wr::SendOp;
use adverb_device::engine::{PathMtu, WcStatus};
use adverb_device::interfaces::ip_of;
use std::io::{BufReader, Read};
use std::net::{IpAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;

/// Port of the TCP connection: the same number as the device's UDP port.
const PORT: u16 = 4791;
/// More than the other side has to say. The other side may be any host, so the length is limited.
const MOST_SAID: u64 = 1 << 16;
const MTUS: [PathMtu; 5] =
    [PathMtu::Mtu256, PathMtu::Mtu512, PathMtu::Mtu1024, PathMtu::Mtu2048, PathMtu::Mtu4096];

/// Work request ids.
const RECEIVED: u64 = 1;
const SENT: u64 = 2;

/// The result of a message in each direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tried {
    mtu: PathMtu,
    /// A message sent here arrived at the other side.
    out: bool,
    /// A message sent by the other side arrived here.
    back: bool,
}

/// Waits for a visitor.
pub fn listen(address: &str) -> Vec<Finding> {
    let told = |e: std::io::Error| {
        Finding::fail(
            "peer",
            format!("cannot listen at {address}: {e}"),
            "name another port: `adverb doctor --listen 0.0.0.0:4792`",
        )
    };
    let listener = match addresses(address).and_then(|all| TcpListener::bind(&all[..])) {
        Ok(listener) => listener,
        Err(e) => return vec![told(e)],
    };
    let port = listener.local_addr().map_or(PORT, |at| at.port());
    crate::out::errln!(
        "adverb doctor: waits at TCP port {port}; on the other host: adverb doctor --with THIS_HOST:{port}"
    );
    match listener.accept() {
        Ok((stream, _)) => meet(Role::Second, &stream),
        Err(e) => vec![told(e)],
    }
}

/// Visits a host waiting in [`listen`].
pub fn with(host: &str) -> Vec<Finding> {
    let nowhere = Err(std::io::ErrorKind::NotFound.into());
    let connected = addresses(host).and_then(|all| {
        all.iter().fold(nowhere, |before, at| {
            before.or_else(|_| TcpStream::connect_timeout(at, HANG_LIMIT))
        })
    });
    match connected {
        Ok(stream) => meet(Role::First, &stream),
        Err(e) => vec![Finding::fail(
            "peer",
            format!("{host} cannot be reached by TCP: {e}"),
            format!(
                "`adverb doctor --listen` must run there, and firewalls must pass TCP port {PORT}, \
                 or the port that you name"
            ),
        )],
    }
}

/// The addresses of a host. Without a port, [`PORT`] is used.
fn addresses(host: &str) -> std::io::Result<Vec<std::net::SocketAddr>> {
    let alone = host.trim_start_matches('[').trim_end_matches(']');
    let resolved = match (alone.parse::<IpAddr>(), host.rsplit_once(':')) {
        (Err(_), Some(_)) => host.to_socket_addrs(),
        _ => (alone, PORT).to_socket_addrs(),
    };
    resolved.map(Iterator::collect)
}

fn meet(role: Role, stream: &TcpStream) -> Vec<Finding> {
    match tried_with(role, stream) {
        Ok((who, all)) => [vec![who], judged(&all)].concat(),
        Err(why) => vec![failed(&why)],
    }
}

/// Why nothing was tried. The other side may have written the reason, with any characters.
fn failed(why: &str) -> Finding {
    let shown: String = why.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    Finding::fail(
        "peer",
        format!("the test between the two hosts failed: {shown}"),
        "`adverb doctor` on each host names the obstacles there",
    )
}

/// The device at this end of the connection, and the index of the device's GID.
fn device_at(ip: IpAddr) -> Result<(Arc<Device>, usize), String> {
    let devices = adverb_device::device::list()
        .map_err(|e| format!("the interfaces cannot be listed: {e}"))?;
    let found = devices.into_iter().find_map(|device| {
        let index = device.gids().iter().position(|gid| ip_of(gid) == ip)?;
        Some((device, index))
    });
    found.ok_or_else(|| format!("no device has the address {ip}"))
}

fn tried_with(role: Role, stream: &TcpStream) -> Result<(Finding, Vec<Tried>), String> {
    let said = |e: std::io::Error| e.to_string();
    // A lost message is given up after a second. No other step takes longer than this limit.
    stream.set_read_timeout(Some(2 * HANG_LIMIT)).map_err(said)?;
    let local = stream.local_addr().map_err(said)?.ip().to_canonical();
    let peer = stream.peer_addr().map_err(said)?.ip().to_canonical();
    if local == peer {
        return Err(format!(
            "{local} is an address of this host; programs on one host do not need the network"
        ));
    }
    let from = BufReader::new(stream.try_clone().map_err(said)?.take(MOST_SAID));
    let mut control = Control::new(from, stream.try_clone().map_err(said)?);
    let mine = version();
    let theirs = control.exchange(&mine)?;
    let who = same_version(peer, &mine, &theirs);
    let (device, index) = device_at(local).inspect_err(|why| {
        control.fail(why);
        // The other side's messages must be read first, or the other side never receives the
        // reason.
        control.other_failure();
    })?;
    let mut world = World::new(role, &device, index, control)?;
    let ours = world.mtu().bytes();
    let most = world.swap(ours as u64)?.min(ours as u64);
    let mut all = Vec::new();
    for mtu in MTUS.into_iter().filter(|mtu| mtu.bytes() as u64 <= most) {
        let tried = try_mtu(&mut world, mtu)?;
        all.push(tried);
        if !(tried.out && tried.back) {
            break;
        }
    }
    Ok((who, all))
}

/// Sends a message of a full packet in each direction, the visitor's message first.
fn try_mtu(world: &mut World, mtu: PathMtu) -> Result<Tried, String> {
    let (first, second) = (one_way(world, mtu, Role::First)?, one_way(world, mtu, Role::Second)?);
    let (out, back) = if world.is_first() { (first, second) } else { (second, first) };
    Ok(Tried { mtu, out, back })
}

/// Does a message arrive? The receiver decides, because a sender cannot tell a lost message from a
/// lost acknowledgement. Each message has new queue pairs, because a failed queue pair cannot
/// be used again.
fn one_way(world: &mut World, mtu: PathMtu, sender: Role) -> Result<bool, String> {
    let mut end = Endpoint::new(world, Kind::Rc)?;
    let theirs = world.swap(u64::from(end.qp.number()))?;
    end.connect(&world.path()?, mtu, FirstPsns::default(), theirs as u32)?;
    let sends = sender == world.role;
    if !sends {
        end.recv(RECEIVED, IN, mtu.bytes())?;
    }
    world.sync()?;
    if sends {
        end.send(SENT, SendOp::Send, OUT, mtu.bytes())?;
        end.next()?;
    }
    // By now the message has arrived, or never will.
    world.sync()?;
    let mut arrived = false;
    end.poll(1, |completion| arrived = completion.status == WcStatus::Success)?;
    let told = world.swap(u64::from(arrived && !sends))? == 1;
    end.close()?;
    Ok(if sends { told } else { arrived })
}

fn version() -> [u64; 3] {
    let mut numbers = env!("CARGO_PKG_VERSION").split(['.', '-']).map(|n| n.parse().unwrap_or(0));
    [(); 3].map(|()| numbers.next().unwrap_or(0))
}

fn same_version(peer: IpAddr, mine: &[u64], theirs: &[u64]) -> Finding {
    let text = |numbers: &[u64]| numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(".");
    if mine == theirs {
        return Finding::ok("peer", format!("{peer} has the same version, {}", text(mine)));
    }
    let found = format!("{peer} has version {}, this host {}", text(theirs), text(mine));
    Finding::warn("peer", found, "use one version on both hosts")
}

/// The findings from the messages.
fn judged(all: &[Tried]) -> Vec<Finding> {
    let crossed = all.iter().rfind(|tried| tried.out && tried.back);
    let mut findings = Vec::new();
    if let Some(tried) = crossed {
        let found =
            format!("RoCEv2 crosses both ways, with a path MTU of up to {}", tried.mtu.bytes());
        findings.push(Finding::ok("packets", found));
    }
    let Some(lost) = all.iter().find(|tried| !(tried.out && tried.back)) else { return findings };
    let bytes = lost.mtu.bytes();
    let whose = match (lost.out, lost.back) {
        (true, _) => "packets from the other host do not arrive",
        (false, true) => "packets from this host do not arrive",
        (false, false) => "packets from either host do not arrive",
    };
    findings.push(match crossed {
        None => Finding::fail(
            "packets",
            format!("RoCEv2 does not cross: {whose}"),
            "allow UDP port 4791 in and out on both hosts and on all devices between them: `nft \
             list ruleset` or `iptables -S`, as root",
        ),
        Some(tried) => Finding::fail(
            "path MTU",
            format!("packets of {bytes} bytes do not cross: {whose}"),
            format!(
                "a device between the hosts has a smaller MTU than the hosts' interfaces: raise \
                 this MTU, or let programs ask for a path MTU of {}",
                tried.mtu.bytes()
            ),
        ),
    });
    findings
}

#[cfg(test)]
mod tests {
    use super::super::finding::State;
    use super::*;

    fn tried(mtu: PathMtu, out: bool, back: bool) -> Tried {
        Tried { mtu, out, back }
    }

    /// DOC-7: a firewall and a small MTU are told apart, and so are the two directions.
    #[test]
    fn what_is_lost_tells_what_is_in_the_way() {
        let small = tried(PathMtu::Mtu256, true, true);
        let [all] = &judged(&[small, tried(PathMtu::Mtu512, true, true)])[..] else {
            panic!("one finding")
        };
        assert!(all.state == State::Ok && all.found.contains("512"), "{all:?}");
        let [none] = &judged(&[tried(PathMtu::Mtu256, false, false)])[..] else {
            panic!("one finding")
        };
        assert!(
            none.state == State::Fail && none.remedy.as_ref().unwrap().contains("4791"),
            "{none:?}"
        );
        let mtu = &judged(&[small, tried(PathMtu::Mtu512, false, true)])[1];
        assert!(mtu.state == State::Fail && mtu.what == "path MTU", "{mtu:?}");
        assert!(mtu.found.contains("packets from this host"), "{mtu:?}");
        assert!(mtu.remedy.as_ref().unwrap().ends_with("256"), "{mtu:?}");
    }

    /// DOC-7: different versions are reported.
    #[test]
    fn versions_are_compared() {
        let peer = IpAddr::from([192, 0, 2, 1]);
        assert_eq!(same_version(peer, &[0, 1, 0], &[0, 1, 0]).state, State::Ok);
        let other = same_version(peer, &[0, 1, 0], &[0, 2, 0]);
        assert!(
            other.state == State::Warn && other.found.contains("version 0.2.0, this host 0.1.0")
        );
    }

    /// DOC-7: text from the other side cannot control the terminal.
    #[test]
    fn reasons_are_shown_and_not_done() {
        assert!(failed("a\u{1b}]0;b\u{9b}m\u{7}").found.ends_with("a ]0;b m "));
    }

    /// DOC-7: hosts with a port, without a port, and with colons in the address.
    #[test]
    fn hosts_have_ports() {
        let at = |host: &str| addresses(host).unwrap()[0].to_string();
        assert_eq!(at("192.0.2.1"), "192.0.2.1:4791");
        assert_eq!(at("192.0.2.1:7"), "192.0.2.1:7");
        assert_eq!(at("fe80::1"), "[fe80::1]:4791");
        assert_eq!(at("[fe80::1]:7"), "[fe80::1]:7");
    }
}
