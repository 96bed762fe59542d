//! Mirrors of the types of `rdma/rdma_cma.h`, under their names there. Those of
//! `infiniband/verbs.h` and the requests of the connection manager are in `adverb_abi`.
//!
//! Fields of objects that programs read and write while we hold references to them are cells.

#![allow(non_camel_case_types, reason = "the names are the header's")]

pub mod cma;
