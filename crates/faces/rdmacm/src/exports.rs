//! The exported names and their version nodes.
//!
//! rustc cannot give a symbol a version. So each export is a trampoline, written in assembler and
//! named `__v_NAME`. A `.symver` line renames it to `NAME@@NODE`. `build.rs` declares the nodes.
//!
//! A trampoline jumps to [`cancel::enter`](crate::cancel::enter) with its function in a register. A
//! thread is then cancelled only where the call waits for an event. The exceptions wait at once, or
//! read their return address: a trampoline of `waits` jumps to its function.

/// Defines one export: `trampoline!(name, node, path of the function)`.
macro_rules! trampoline {
    ($name:expr, $node:literal, $target:path) => {
        #[cfg(target_arch = "x86_64")]
        trampoline!(
            @ ["lea r11, [rip + {target}]", "jmp {enter}"],
            $name, $node, $target, enter = sym $crate::cancel::enter
        );
        #[cfg(target_arch = "aarch64")]
        trampoline!(
            @ ["adrp x16, {target}", "add x16, x16, :lo12:{target}", "b {enter}"],
            $name, $node, $target, enter = sym $crate::cancel::enter
        );
    };
    (waits $name:expr, $node:literal, $target:path) => {
        #[cfg(target_arch = "x86_64")]
        trampoline!(@ ["jmp {target}"], $name, $node, $target);
        #[cfg(target_arch = "aarch64")]
        trampoline!(@ ["b {target}"], $name, $node, $target);
    };
    (@ [$($code:expr),*], $name:expr, $node:literal, $target:path $(, $key:ident = sym $value:path)*) => {
        core::arch::global_asm!(
            ".pushsection .text.adverb_exports,\"ax\",@progbits",
            ".p2align 4",
            concat!(".globl __v_", $name),
            concat!(".type __v_", $name, ",@function"),
            concat!("__v_", $name, ":"),
            $($code,)*
            concat!(".size __v_", $name, ", . - __v_", $name),
            concat!(".symver __v_", $name, ", ", $name, "@@", $node, ", remove"),
            ".popsection",
            target = sym $target,
            $($key = sym $value,)*
        );
    };
}

/// Exports functions under their own names: `at_node! { node { module: names; … } }`.
macro_rules! at_node {
    (waits $node:literal $entries:tt) => { at_node! { @ [waits] $node $entries } };
    ($node:literal $entries:tt) => { at_node! { @ [] $node $entries } };
    (@ $waits:tt $node:literal { $($module:ident: $($name:ident)*; )* }) => {
        $( at_node! { @ $waits $node $module $($name)* } )*
    };
    (@ $waits:tt $node:literal $module:ident $($name:ident)*) => {
        $( at_node! { @@ $waits $node $module $name } )*
    };
    (@@ [$($waits:ident)?] $node:literal $module:ident $name:ident) => {
        trampoline!($($waits)? stringify!($name), $node, $crate::$module::$name);
    };
}

/// Exports one function under many names.
macro_rules! same_target {
    ($node:literal $target:path: $($name:ident)*) => {
        $( trampoline!(stringify!($name), $node, $target); )*
    };
}

at_node! { "RDMACM_1.0" {
    address: rdma_bind_addr rdma_get_dst_port rdma_get_src_port rdma_resolve_addr rdma_resolve_route;
    addrinfo: rdma_freeaddrinfo rdma_getaddrinfo;
    channel: rdma_create_event_channel rdma_destroy_event_channel;
    connect: rdma_accept rdma_connect rdma_disconnect rdma_listen rdma_notify rdma_reject;
    device: rdma_free_devices rdma_get_devices;
    endpoint: rdma_create_ep rdma_destroy_ep rdma_get_request;
    event_name: rdma_event_str;
    event_object: rdma_destroy_id;
    id: rdma_create_id;
    multicast: rdma_join_multicast rdma_leave_multicast;
    options: rdma_migrate_id rdma_set_option;
    qp: rdma_create_qp rdma_create_qp_ex rdma_destroy_qp;
    rsocket: riomap rsocket;
    srq: rdma_create_srq rdma_create_srq_ex rdma_destroy_srq;
} }

at_node! { waits "RDMACM_1.0" {
    event: rdma_get_cm_event;
    event_object: rdma_ack_cm_event;
    rsocket: rpoll rselect;
} }

same_target! { "RDMACM_1.0" crate::rsocket::no_rsocket:
    raccept rbind rclose rconnect rfcntl rgetpeername rgetsockname rgetsockopt riounmap riowrite rlisten rread rreadv
    rrecv rrecvfrom rrecvmsg rsend rsendmsg rsendto rsetsockopt rshutdown rwrite rwritev
}

at_node! { "RDMACM_1.1" { multicast: rdma_join_multicast_ex; } }

at_node! { "RDMACM_1.2" {
    connect: rdma_establish;
    qp: rdma_init_qp_attr;
} }

at_node! { "RDMACM_1.3" {
    connect: rdma_reject_ece;
    options: rdma_get_remote_ece rdma_set_local_ece;
} }

at_node! { "RDMACM_1.4" { resolve: rdma_query_addrinfo rdma_resolve_addrinfo rdma_write_cm_event; } }

at_node! { "RDMACM_1.5" { rsocket: repoll_create; } }

same_target! { "RDMACM_1.5" crate::rsocket::no_rsocket: repoll_ctl repoll_wait }
