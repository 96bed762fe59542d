//! `ibv_devices` and `ibv_devinfo -v`, compared with the kernel's view of the machine's interfaces.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::time::Duration;

use adverb_foreign::device::{Device, devices, devices_by_interface};
use adverb_foreign::machine::{Interface, interfaces};
use adverb_foreign::process::Program;
use adverb_foreign::suite::{Case, case};
use adverb_foreign::{Verdict, require};

const LIMIT: Duration = Duration::from_secs(60);
/// IPv4 (20) + UDP (8) + BTH (12) + ICRC (4): the smallest overhead of a RoCE v2 packet.
const LEAST_HEADERS: u32 = 44;
/// IPv6 (40) + UDP (8) + BTH (12) + AtomicETH (28) + ImmDt or IETH (4) + XRCETH (4) + ICRC (4),
/// with a margin.
const MOST_HEADERS: u32 = 112;

pub fn cases() -> Vec<Case> {
    vec![
        case("devinfo_has_a_device_for_each_interface", each_interface_has_a_device),
        case("SYS-12/devinfo_has_one_device_for_the_machine", one_for_the_machine),
        case("devices_lists_the_same_names_and_guids", names_agree),
        case("ports_are_active_ethernet", ports_are_active),
        case("active_mtu_is_the_largest_that_fits", mtu_fits),
        case("gids_are_the_addresses_as_roce_v2", gids_are_addresses),
        case("identity_fields_are_set", identity),
        case("devinfo_of_one_device_by_name", one_device),
        case("devinfo_of_an_unknown_device_fails", unknown_device),
    ]
}

/// The device of an interface: the device with all of the interface's addresses as GIDs.
fn device_of(interface: &Interface) -> Result<&'static Device, String> {
    let list = devices_by_interface()?;
    list.iter().find(|d| interface.gids().iter().all(|g| d.gid_index(*g).is_some())).ok_or_else(
        || format!("no device has the RoCE v2 GIDs of {interface:?}; devices: {list:#?}"),
    )
}

fn each_interface_has_a_device() -> Verdict {
    let mut used = BTreeSet::new();
    for interface in interfaces()? {
        let device = device_of(&interface)?;
        require!(used.insert(&device.name), "{} stands for two interfaces", device.name);
    }
    Ok(())
}

/// SYS-12: one device for the machine, the same name everywhere. Its first GID is the address from
/// which the kernel reaches other hosts. Loopback's GIDs come after those of the network.
fn one_for_the_machine() -> Verdict {
    let [device] = devices()? else { return Err(format!("not one device: {:?}", devices()?)) };
    require!(device.name == "adverb0", "{}", device.name);
    let index = |gid| device.gid_index(gid);
    let lo = index(Ipv4Addr::LOCALHOST.to_ipv6_mapped());
    require!(lo.is_some(), "no GID of 127.0.0.1: {device:?}");
    // A connected UDP socket has the address that the kernel's routes choose.
    let outward = UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
        socket.connect("192.88.99.1:9")?;
        socket.local_addr()
    });
    match outward.map(|at| at.ip()) {
        Ok(IpAddr::V4(own)) => {
            require!(index(own.to_ipv6_mapped()) == Some(0), "{own} is not the first: {device:?}");
        }
        _ => require!(lo == Some(0) || devices_by_interface()?.len() > 1, "{device:?}"),
    }
    Ok(())
}

fn names_agree() -> Verdict {
    let out = Program::of_line("ibv_devices").run_ok(LIMIT)?;
    // Two lines of heading, then "    name    0123456789abcdef".
    let listed: Vec<(&str, String)> = out
        .text
        .lines()
        .skip(2)
        .filter_map(|line| line.trim().split_once(char::is_whitespace))
        .map(|(name, guid)| (name, guid.trim().to_string()))
        .collect();
    let of = |d: &'static Device| Ok((&*d.name, d.need("node_guid")?.replace(':', "")));
    let expected = devices()?.iter().map(of).collect::<Result<Vec<_>, String>>()?;
    require!(listed == expected, "ibv_devices {listed:?}, ibv_devinfo {expected:?}\n{}", out.text);
    Ok(())
}

fn ports_are_active() -> Verdict {
    for interface in interfaces()? {
        let d = device_of(&interface)?;
        for (key, value) in [
            ("state", "PORT_ACTIVE (4)"),
            ("link_layer", "Ethernet"),
            ("transport", "InfiniBand (0)"),
            ("phys_port_cnt", "1"),
            ("phys_state", "LINK_UP (5)"),
        ] {
            let got = d.need(key)?;
            require!(got == value, "{}: {key} is {got:?}, expected {value:?}", d.name);
        }
    }
    Ok(())
}

fn mtu_fits() -> Verdict {
    for interface in interfaces()? {
        let d = device_of(&interface)?;
        let value = d.need("active_mtu")?;
        let mtu: u32 = value
            .split_whitespace()
            .next()
            .and_then(|v| v.parse().ok())
            .ok_or_else(|| format!("{}: active_mtu {value:?}", d.name))?;
        let (low, high) = (interface.path_mtu(MOST_HEADERS), interface.path_mtu(LEAST_HEADERS));
        require!(
            (low..=high).contains(&mtu),
            "{}: active_mtu {mtu}, expected {low}..={high} for {interface:?}",
            d.name
        );
        let max = d.need("max_mtu")?;
        require!(max.starts_with("4096"), "{}: max_mtu {max:?}", d.name);
    }
    Ok(())
}

fn gids_are_addresses() -> Verdict {
    for interface in interfaces()? {
        let d = device_of(&interface)?;
        let addrs = interface.gids();
        for (index, gid, kind) in &d.gids {
            require!(
                kind.contains("RoCE v2"),
                "{}: GID[{index}] {gid} is of type {kind:?}",
                d.name
            );
            // A link-local GID may exist without such an address, like the default GID of
            // rdma_core.
            let link_local = gid.segments()[0] == 0xfe80;
            require!(
                addrs.contains(gid) || link_local,
                "{}: GID[{index}] {gid} is no address of {interface:?}",
                d.name
            );
        }
        let distinct: BTreeSet<_> = d.gids.iter().map(|(_, g, _)| g).collect();
        require!(distinct.len() == d.gids.len(), "{}: a GID is listed twice: {:?}", d.name, d.gids);
    }
    Ok(())
}

fn identity() -> Verdict {
    let mut guids = BTreeSet::new();
    for d in devices_by_interface()? {
        let fw = d.need("fw_ver")?;
        require!(fw.chars().any(|c| c.is_ascii_digit()), "{}: fw_ver {fw:?}", d.name);
        for key in ["vendor_id", "vendor_part_id", "node_guid", "sys_image_guid"] {
            let value = d.need(key)?;
            let is_set = value.chars().any(|c| !matches!(c, '0' | 'x' | ':'));
            require!(is_set, "{}: {key} {value:?}", d.name);
        }
        let guid = d.need("node_guid")?;
        require!(guids.insert(guid), "two devices have node_guid {guid}");
        for key in
            ["max_qp", "max_cq", "max_mr", "max_pd", "max_qp_wr", "max_sge", "max_srq", "max_cqe"]
        {
            let value: u64 = d.need(key)?.parse().map_err(|e| format!("{}: {key}: {e}", d.name))?;
            require!(value > 0, "{}: {key} is 0", d.name);
        }
        let atomics = d.need("atomic_cap")?;
        require!(!atomics.contains("NONE"), "{}: atomic_cap {atomics}", d.name);
    }
    Ok(())
}

fn one_device() -> Verdict {
    for d in devices_by_interface()? {
        let out = Program::new("ibv_devinfo", &["-d", &d.name])
            .option("--device", "all")
            .run_ok(LIMIT)?;
        let shown = adverb_foreign::device::parse_devinfo(&out.text)?;
        out.require(shown.len() == 1 && shown[0].name == d.name)?;
    }
    Ok(())
}

fn unknown_device() -> Verdict {
    let out = Program::new("ibv_devinfo", &["-d", "no-such-device"]).run(LIMIT)?;
    out.require(out.code().is_some_and(|c| c != 0))?;
    out.require_words(&["IB device 'no-such-device' wasn't found"])
}
