//! Address handles, and addresses found in received datagrams.
use super::address::address_in;
use super::{done, done_minus_one, end, failed_null, files, neighbour, put};
use crate::abi::*;
use crate::handles::{Origin, live, reserve};
use crate::objects::AhObj;
use adverb_device::cuts;
use adverb_device::device::PORT;
use adverb_device::engine::Gid;
use adverb_device::{Context, Error};
use core::ffi::c_int;
use nix::errno::Errno;

/// Offset of the IPv4 header in the 40 bytes before a datagram (annex A17.4.5.1).
const IPV4_AT: usize = 20;
/// Next header of a RoCEv2 datagram: UDP.
const NEXT_UDP: u8 = 17;
/// First byte of an IPv4 header without options.
const IPV4_PLAIN: u8 = 0x45;

/// Creates an address handle.
pub unsafe extern "C" fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah {
    let make = || {
        let domain = live(pd)?;
        let place = reserve::<AhObj>()?;
        // SAFETY: the program's attributes.
        let mut av = domain.pd.context().resolve(&address_in(unsafe { &*attr }))?;
        cuts::narrow_address(&mut av, domain.pd.context().nic());
        domain.pd.add_user();
        let origin = Origin { handle: files::new_handle(), ..domain.origin() };
        let visible = ibv_ah { context: origin.context, pd, handle: origin.handle };
        Ok(place.fill(visible, AhObj { av, pd: domain.pd.clone() }, origin))
    };
    make().unwrap_or_else(|e: Error| failed_null("ibv_create_ah", &e))
}

/// Destroys an address handle. Datagrams already posted with it hold a copy of the address.
pub unsafe extern "C" fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int {
    end("ibv_destroy_ah", ah, |obj| {
        obj.pd.remove_user();
        Ok(())
    })
}

/// The address that a datagram arrived from. Returns 0, or -1 with `errno`.
pub unsafe extern "C" fn ibv_init_ah_from_wc(
    context: *mut ibv_context,
    port_num: u8,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    ah_attr: *mut ibv_ah_attr,
) -> c_int {
    let init = || {
        let owner = live(context)?;
        // SAFETY: the program's completion.
        let wc = unsafe { &*wc };
        let mut attr = ibv_ah_attr::zeroed();
        attr.dlid = wc.slid;
        attr.sl = wc.sl;
        attr.src_path_bits = wc.dlid_path_bits;
        attr.port_num = port_num;
        let mut result = Ok(());
        if wc.wc_flags & IBV_WC_GRH != 0 {
            attr.is_global = 1;
            // SAFETY: the flag says that the 40 bytes are there, and every value of them is
            // allowed.
            let area = unsafe { grh.cast::<[u8; 40]>().read_unaligned() };
            result = route_back(&owner.context, port_num, &area).map(|route| attr.grh = route);
        }
        // SAFETY: the program passes a place for the address.
        unsafe { ah_attr.write(attr) };
        result
    };
    done_minus_one("ibv_init_ah_from_wc", init())
}

/// The route back to the sender of a datagram, read from the 40 bytes before it.
fn route_back(context: &Context, port: u8, area: &[u8; 40]) -> Result<ibv_global_route, Error> {
    context.check_port(port)?;
    let ipv4 = &area[IPV4_AT..];
    let is_v4 = if area[0] >> 4 == 6 {
        // A nibble of 6 can occur by chance, because these bytes have no meaning before a datagram
        // over IPv4. So an IPv4 header with a correct checksum decides.
        ipv4[0] == IPV4_PLAIN && checksum(ipv4) == 0
    } else if ipv4[0] >> 4 == 4 {
        true
    } else {
        return Err(Error::new(
            Errno::EPROTONOSUPPORT,
            "before the datagram is neither an IPv4 nor an IPv6 header",
        ));
    };
    let flow = u32::from_be_bytes([area[0], area[1], area[2], area[3]]);
    let gid = |at: usize| {
        let mut raw = [0; 16];
        raw.copy_from_slice(&area[at..at + 16]);
        Gid(raw)
    };
    let (from, to, hops, class) = if is_v4 {
        let address =
            |at: usize| Gid::from_ipv4([ipv4[at], ipv4[at + 1], ipv4[at + 2], ipv4[at + 3]]);
        (address(12), address(16), ipv4[8], ipv4[1])
    } else if area[6] == NEXT_UDP {
        (gid(8), gid(24), area[7], (flow >> 20) as u8)
    } else {
        return Err(Error::new(
            Errno::EPROTONOSUPPORT,
            format!(
                "the datagram's next header is {:#x}, the port has RoCE v2 (UDP) alone",
                area[6]
            ),
        ));
    };
    let sgid_index = (0..context.limits().gids)
        .find(|&i| context.gid(PORT, i.into()).is_ok_and(|g| g == to))
        .ok_or_else(|| {
            Error::invalid(format!("the datagram was sent to {to}"), "the port has no such GID")
        })?;
    Ok(ibv_global_route {
        dgid: ibv_gid { raw: from.0 },
        // RoCE v2 over IPv4 has no flow label: the first bytes are zero.
        flow_label: flow & IB_GRH_FLOWLABEL_MASK,
        sgid_index: sgid_index as u8,
        hop_limit: hops,
        traffic_class: class,
    })
}

/// The Internet checksum over a header that includes its checksum: 0 if it is correct.
fn checksum(header: &[u8]) -> u16 {
    let sum: u32 =
        header.chunks_exact(2).map(|p| u32::from(u16::from_be_bytes([p[0], p[1]]))).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum & 0xffff) + (sum >> 16)) as u16
}

/// Creates an address handle for the sender of a datagram.
pub unsafe extern "C" fn ibv_create_ah_from_wc(
    pd: *mut ibv_pd,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    port_num: u8,
) -> *mut ibv_ah {
    let context = match live(pd) {
        Ok(domain) => domain.origin().context,
        Err(e) => return failed_null("ibv_create_ah_from_wc", &e),
    };
    let mut attr = ibv_ah_attr::zeroed();
    // SAFETY: the caller's promise.
    unsafe {
        if ibv_init_ah_from_wc(context, port_num, wc, grh, &raw mut attr) != 0 {
            return core::ptr::null_mut();
        }
        ibv_create_ah(pd, &raw mut attr)
    }
}

/// The Ethernet address behind a GID, as this host knows it, and its VLAN (0xffff: none). Returns
/// 0, or a negative errno value. The library's own packets do not need the Ethernet address.
pub unsafe extern "C" fn ibv_resolve_eth_l2_from_gid(
    context: *mut ibv_context,
    attr: *mut ibv_ah_attr,
    eth_mac: *mut u8,
    vid: *mut u16,
) -> c_int {
    let resolve = || {
        let owner = live(context)?;
        // SAFETY: the program's address.
        let attr = address_in(unsafe { &*attr });
        let via = owner.context.gid_entry(attr.sgid_index.into()).interface;
        owner.context.gid(attr.port_num, attr.sgid_index.into())?;
        let mac = neighbour::mac_of(via, &attr.dgid)?;
        // SAFETY: the program passes places for six bytes and, unless it is null, for the VLAN.
        unsafe {
            eth_mac.cast::<[u8; 6]>().write(mac);
            put(vid, 0xffff);
        }
        Ok(())
    };
    -done("ibv_resolve_eth_l2_from_gid", resolve())
}
