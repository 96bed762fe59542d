//! Compares our mirrors with the C headers: every type and field, as compiled by the C compiler.

#[path = "common/probes.rs"]
mod probes;

use adverb_abi::{TypeLayout, rdma_user_cm};
use probes::{Differences, differences, probes};
use rdmacm::abi::cma;

fn check(name: &str, headers: &[&str], types: &[TypeLayout]) {
    let found = differences(None, headers, &probes(&[types], &[]), name);
    assert_eq!(found, Differences::new(), "the header's");
}

/// Types are laid out as in `rdma/rdma_cma.h`, `infiniband/verbs.h`, `infiniband/sa.h` and
/// `rdma/rdma_user_cm.h` (RCM-2).
#[test]
fn types_are_those_of_the_headers() {
    let headers = ["rdma/rdma_cma.h", "infiniband/sa.h", "rdma/rdma_verbs.h"];
    check("cma_probe", &headers, cma::LAYOUTS);
    // The two headers use some names for different things, so each gets its own C program.
    let headers = ["netinet/in.h", "sys/socket.h", "rdma/rdma_user_cm.h"];
    check("user_cm_probe", &headers, rdma_user_cm::LAYOUTS);
}
