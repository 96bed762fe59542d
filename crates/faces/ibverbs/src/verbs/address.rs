//! Addresses: `ibv_ah_attr` in and out.
use crate::abi::*;
use adverb_device::context::AhAttr;
use adverb_device::engine::{AddressVector, Gid};

/// Converts an address of the program to the device's form.
pub fn address_in(a: &ibv_ah_attr) -> AhAttr {
    AhAttr {
        // SAFETY: both views of a GID are sixteen plain bytes.
        dgid: Gid(unsafe { a.grh.dgid.raw }),
        flow_label: a.grh.flow_label,
        sgid_index: a.grh.sgid_index,
        hop_limit: a.grh.hop_limit,
        traffic_class: a.grh.traffic_class,
        dlid: a.dlid,
        sl: a.sl,
        src_path_bits: a.src_path_bits,
        static_rate: a.static_rate,
        is_global: a.is_global != 0,
        port_num: a.port_num,
    }
}

/// Converts a resolved address to the form that the program reads.
pub fn address_out(av: &AddressVector) -> ibv_ah_attr {
    let mut out = ibv_ah_attr::zeroed();
    out.grh.dgid.raw = av.dgid.0;
    out.grh.flow_label = av.flow_label;
    out.grh.sgid_index = av.sgid_index;
    out.grh.hop_limit = av.hop_limit;
    out.grh.traffic_class = av.traffic_class;
    out.dlid = av.dlid;
    out.sl = av.sl;
    out.src_path_bits = av.src_path_bits;
    out.static_rate = av.static_rate;
    out.is_global = av.is_global.into();
    out.port_num = av.port_num;
    out
}
