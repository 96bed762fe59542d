//! Flow rules; flow actions and flow counters, which are not offered.

use core::ffi::c_int;

use super::{end, failed, failed_null, files, only_bits};
use crate::abi::*;
use crate::handles::{Origin, live, reserve};
use adverb_device::Error;
use adverb_device::raw::Flow;
use adverb_device::raw::steering::{Kind, Match, Rule, Spec, Transport};

fn not_offered() -> Error {
    Error::unsupported("flow actions and flow counters are not offered")
}

/// Slot `ibv_create_flow`.
pub unsafe extern "C" fn create_flow(qp: *mut ibv_qp, attr: *mut ibv_flow_attr) -> *mut ibv_flow {
    // SAFETY: the program's rule, with its specifications after it.
    unsafe { create(qp, attr) }.unwrap_or_else(|e| failed_null("ibv_create_flow", &e))
}

/// # Safety
/// As many specifications as `attr` counts follow it.
unsafe fn create(qp: *mut ibv_qp, attr: *const ibv_flow_attr) -> Result<*mut ibv_flow, Error> {
    let obj = live(qp)?;
    // SAFETY: the caller's promise.
    let rule = unsafe { rule(attr) }?;
    // SAFETY: as above.
    obj.qp.context().check_port(unsafe { (*attr).port })?;
    let place = reserve()?;
    let flow = Flow::new(&obj.qp, rule)?;
    let (context, file, handle) = (obj.origin().context, obj.origin().file, files::new_handle());
    let visible = ibv_flow { comp_mask: 0, context, handle };
    Ok(place.fill(visible, flow, Origin { context, file, handle }))
}

/// Slot `ibv_destroy_flow`.
pub unsafe extern "C" fn destroy_flow(flow: *mut ibv_flow) -> c_int {
    end("ibv_destroy_flow", flow, |obj| obj.destroy())
}

/// # Safety
/// As many specifications as `attr` counts follow it.
unsafe fn rule(attr: *const ibv_flow_attr) -> Result<Rule, Error> {
    // SAFETY: the caller's promise.
    let a = unsafe { &*attr };
    only_bits("comp_mask is", a.comp_mask, 0)?;
    if a.flags & !IBV_FLOW_ATTR_FLAGS_DONT_TRAP != 0 {
        let text = format!("flags {:#x}: only IBV_FLOW_ATTR_FLAGS_DONT_TRAP is offered", a.flags);
        return Err(Error::unsupported(text));
    }
    let kind = match a.type_ {
        IBV_FLOW_ATTR_NORMAL => Kind::Normal,
        IBV_FLOW_ATTR_ALL_DEFAULT => Kind::AllDefault,
        IBV_FLOW_ATTR_MC_DEFAULT => Kind::McDefault,
        IBV_FLOW_ATTR_SNIFFER => Kind::Sniffer,
        other => return Err(Error::invalid(format!("type is {other}"), "there is no such rule")),
    };
    if kind != Kind::Normal && a.num_of_specs != 0 {
        let what = format!("num_of_specs is {}", a.num_of_specs);
        return Err(Error::invalid(what, "only normal rules have specifications"));
    }
    let (mut specs, mut drops) = (Vec::new(), false);
    // SAFETY: the specifications follow, and each states its own length.
    let mut next = unsafe { attr.add(1) }.cast::<u8>();
    for _ in 0..a.num_of_specs {
        // SAFETY: as above. Programs pack specifications, so these may be unaligned.
        let size = unsafe {
            let header = next.cast::<ibv_flow_spec_hdr>().read_unaligned();
            match header.type_ {
                IBV_FLOW_SPEC_ACTION_DROP => drops = true,
                _ => specs.push(spec(next, &header)?),
            }
            header.size
        };
        // SAFETY: as above.
        next = unsafe { next.add(size.into()) };
    }
    let rule = Rule::new(kind, a.priority, specs);
    let rule =
        if a.flags & IBV_FLOW_ATTR_FLAGS_DONT_TRAP != 0 { rule.without_trap() } else { rule };
    Ok(if drops { rule.dropping() } else { rule })
}

/// # Safety
/// At `at` there is a specification with this header, and the specification has the length that the
/// header states.
unsafe fn spec(at: *const u8, header: &ibv_flow_spec_hdr) -> Result<Spec, Error> {
    /// # Safety
    /// As for [`spec`].
    unsafe fn read<T>(at: *const u8, header: &ibv_flow_spec_hdr) -> Result<T, Error> {
        if usize::from(header.size) < size_of::<T>() {
            let what = format!(
                "the size of a specification of type {:#x} is {}",
                header.type_, header.size
            );
            return Err(Error::invalid(what, format!("{} bytes are needed", size_of::<T>())));
        }
        // SAFETY: the caller's promise; every value of the bytes is valid for the types below.
        Ok(unsafe { at.cast::<T>().read_unaligned() })
    }
    /// Words of a filter are in network order, so their bytes in memory are taken unchanged.
    macro_rules! fields {
        ($spec:ident, $($field:ident),*) => {
            ($(Match { value: $spec.val.$field.to_ne_bytes(), mask: $spec.mask.$field.to_ne_bytes() }),*)
        };
    }
    match header.type_ {
        IBV_FLOW_SPEC_ETH => {
            // SAFETY: the specification has this type.
            let s: ibv_flow_spec_eth = unsafe { read(at, header) }?;
            let (ether_type, vlan) = fields!(s, ether_type, vlan_tag);
            let mac = |value, mask| Match { value, mask };
            let (dst, src) =
                (mac(s.val.dst_mac, s.mask.dst_mac), mac(s.val.src_mac, s.mask.src_mac));
            Ok(Spec::Eth { dst, src, ether_type, vlan })
        }
        IBV_FLOW_SPEC_IPV4 => {
            // SAFETY: the specification has this type.
            let s: ibv_flow_spec_ipv4 = unsafe { read(at, header) }?;
            let (src, dst) = fields!(s, src_ip, dst_ip);
            let any = Match::ANY;
            Ok(Spec::Ipv4 { src, dst, proto: any, tos: any, ttl: any, flags: any })
        }
        IBV_FLOW_SPEC_IPV4_EXT => {
            // SAFETY: the specification has this type.
            let s: ibv_flow_spec_ipv4_ext = unsafe { read(at, header) }?;
            let (src, dst, proto, tos, ttl, flags) =
                fields!(s, src_ip, dst_ip, proto, tos, ttl, flags);
            Ok(Spec::Ipv4 { src, dst, proto, tos, ttl, flags })
        }
        IBV_FLOW_SPEC_IPV6 => {
            // SAFETY: the specification has this type.
            let s: ibv_flow_spec_ipv6 = unsafe { read(at, header) }?;
            let (flow_label, next_header, traffic_class, hop_limit) =
                fields!(s, flow_label, next_hdr, traffic_class, hop_limit);
            let ip = |value, mask| Match { value, mask };
            let (src, dst) = (ip(s.val.src_ip, s.mask.src_ip), ip(s.val.dst_ip, s.mask.dst_ip));
            Ok(Spec::Ipv6 { src, dst, flow_label, next_header, traffic_class, hop_limit })
        }
        IBV_FLOW_SPEC_TCP | IBV_FLOW_SPEC_UDP => {
            // SAFETY: the specification has this type.
            let s: ibv_flow_spec_tcp_udp = unsafe { read(at, header) }?;
            let (dst, src) = fields!(s, dst_port, src_port);
            let is_tcp = header.type_ == IBV_FLOW_SPEC_TCP;
            let transport = if is_tcp { Transport::Tcp } else { Transport::Udp };
            Ok(Spec::Ports { transport, src, dst })
        }
        other => Err(Error::unsupported(format!(
            "specifications of type {other:#x} are not offered: Ethernet, IPv4, IPv6, TCP, UDP and drop are"
        ))),
    }
}

/// Slot `create_flow_action_esp`.
pub unsafe extern "C" fn create_flow_action_esp(
    context: *mut ibv_context,
    _attr: *mut ibv_flow_action_esp_attr,
) -> *mut ibv_flow_action {
    failed_null("ibv_create_flow_action_esp", &live(context).err().unwrap_or_else(not_offered))
}

/// Slot `create_counters`.
pub unsafe extern "C" fn create_counters(
    context: *mut ibv_context,
    _attr: *mut ibv_counters_init_attr,
) -> *mut ibv_counters {
    failed_null("ibv_create_counters", &live(context).err().unwrap_or_else(not_offered))
}

/// Defines slots for kinds of which this library never makes an object. The pointer cannot be
/// valid: EINVAL.
macro_rules! without_objects {
    ($($name:literal $slot:ident($object:ty $(, $arg:ty)*);)*) => { $(
        #[doc = concat!("Slot `", stringify!($slot), "`.")]
        pub unsafe extern "C" fn $slot(object: *mut $object $(, _: $arg)*) -> c_int {
            failed($name, &Error::invalid(format!("{object:p}"), "this library made no such object"))
        }
    )* };
}

without_objects! {
    "ibv_modify_flow_action_esp" modify_flow_action_esp(ibv_flow_action, *mut ibv_flow_action_esp_attr);
    "ibv_destroy_flow_action" destroy_flow_action(ibv_flow_action);
    "ibv_destroy_counters" destroy_counters(ibv_counters);
    "ibv_attach_counters_point_flow"
        attach_counters_point_flow(ibv_counters, *mut ibv_counter_attach_attr, *mut ibv_flow);
    "ibv_read_counters" read_counters(ibv_counters, *mut u64, u32, u32);
}
