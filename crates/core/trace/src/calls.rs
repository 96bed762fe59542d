//! Names and types of the arguments of the calls.

/// How to show an argument or a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// An `int`.
    Int,
    /// An unsigned number of 64 bits.
    Long,
    /// A pointer or a key: in hexadecimal.
    Hex,
    /// Not shown: the call returns nothing.
    Nothing,
}

/// One line per call: name, result (`*`: a pointer, `-`: none, `#`: 64 bits, else an `int`), and
/// arguments. The sign after an argument's name has the same meaning.
const CALLS: &str = "
ibv_get_device_list * num_devices*
ibv_free_device_list - list*
ibv_get_device_name * device*
ibv_get_device_index i device*
ibv_get_device_guid # device*
ibv_open_device * device*
ibv_close_device i context*
ibv_import_device * cmd_fd
ibv_query_device i context* attr*
ibv_query_device_ex i context* input* attr* size#
ibv_query_port i context* port attr*
ibv_query_port_speed i context* port speed*
ibv_query_gid i context* port index gid*
_ibv_query_gid_ex i context* port index entry* flags size#
_ibv_query_gid_table # context* entries* max# flags size#
ibv_query_pkey i context* port index pkey*
ibv_get_pkey_index i context* port pkey
ibv_query_rt_values_ex i context* values*
ibv_alloc_pd * context*
ibv_dealloc_pd i pd*
ibv_alloc_parent_domain * context* attr*
ibv_alloc_td * context* attr*
ibv_dealloc_td i td*
ibv_import_pd * context* handle
ibv_unimport_pd - pd*
ibv_reg_mr * pd* addr* length# access
ibv_reg_mr_iova * pd* addr* length# iova* access
ibv_reg_mr_iova2 * pd* addr* length# iova* access
ibv_reg_mr_ex * pd* attr*
ibv_reg_dmabuf_mr * pd* offset# length# iova* fd access
ibv_reg_buf_mr * pd* buf* access
ibv_rereg_mr i mr* flags pd* addr* length# access
ibv_dereg_mr i mr*
ibv_import_mr * pd* handle
ibv_unimport_mr - mr*
ibv_advise_mr i pd* advice flags list* num
ibv_alloc_null_mr * pd*
ibv_alloc_dm * context* attr*
ibv_free_dm i dm*
ibv_reg_dm_mr * pd* dm* offset# length# access
ibv_import_dm * context* handle
ibv_unimport_dm - dm*
ibv_alloc_mw * pd* type
ibv_dealloc_mw i mw*
ibv_bind_mw i qp* mw* bind*
ibv_create_comp_channel * context*
ibv_destroy_comp_channel i channel*
ibv_create_cq * context* cqe cq_context* channel* comp_vector
ibv_create_cq_ex * context* attr*
ibv_modify_cq i cq* attr*
ibv_resize_cq i cq* cqe
ibv_destroy_cq i cq*
ibv_ack_cq_events - cq* nevents
ibv_create_srq * pd* attr*
ibv_create_srq_ex * context* attr*
ibv_modify_srq i srq* attr* mask
ibv_query_srq i srq* attr*
ibv_get_srq_num i srq* num*
ibv_destroy_srq i srq*
ibv_post_srq_ops i srq* op* bad*
ibv_create_qp * pd* attr*
ibv_create_qp_ex * context* attr*
ibv_open_qp * context* attr*
ibv_modify_qp i qp* attr* mask*
ibv_query_qp i qp* attr* mask* init_attr*
ibv_query_qp_data_in_order i qp* op flags
ibv_modify_qp_rate_limit i qp* attr*
ibv_query_ece i qp* ece*
ibv_set_ece i qp* ece*
ibv_destroy_qp i qp*
ibv_qp_to_qp_ex * qp*
ibv_attach_mcast i qp* gid* lid
ibv_detach_mcast i qp* gid* lid
ibv_create_ah * pd* attr*
ibv_init_ah_from_wc i context* port wc* grh* attr*
ibv_create_ah_from_wc * pd* wc* grh* port
ibv_destroy_ah i ah*
ibv_resolve_eth_l2_from_gid i context* attr* mac* vid*
ibv_get_async_event i context* event*
ibv_ack_async_event - event*
ibv_open_xrcd * context* attr*
ibv_close_xrcd i xrcd*
ibv_create_wq * context* attr*
ibv_modify_wq i wq* attr*
ibv_destroy_wq i wq*
ibv_create_rwq_ind_table * context* attr*
ibv_destroy_rwq_ind_table i table*
ibv_create_flow * qp* attr*
ibv_destroy_flow i flow*
ibv_create_counters * context* attr*
ibv_destroy_counters i counters*
ibv_attach_counters_point_flow i counters* attr* flow*
ibv_read_counters i counters* values* num flags
ibv_wr_abort - qp*
ibv_end_poll - cq*
ibv_fork_init i
ibv_dontfork_range i base* size#
ibv_dofork_range i base* size#
";

fn shown(sign: Option<char>) -> Shown {
    match sign {
        Some('*') => Shown::Hex,
        Some('#') => Shown::Long,
        Some('-') => Shown::Nothing,
        _ => Shown::Int,
    }
}

/// The names of a call's arguments, how to show them, and how to show the result. `None`: the call
/// is unknown.
#[must_use]
pub fn of(call: &str) -> Option<(Vec<(&'static str, Shown)>, Shown)> {
    let mut words = CALLS
        .lines()
        .map(str::split_whitespace)
        .find(|words| words.clone().next() == Some(call))?;
    let result = shown(words.nth(1)?.chars().next());
    let argument = |word: &'static str| {
        let sign = word.chars().last().filter(|c| matches!(c, '*' | '#'));
        (word.trim_end_matches(['*', '#']), shown(sign))
    };
    Some((words.map(argument).collect(), result))
}
