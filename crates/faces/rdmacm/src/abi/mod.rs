//! Mirrors of the types in `rdma/rdma_cma.h`, with the same names. The types of
//! `infiniband/verbs.h` and the requests of the connection manager are in `adverb_abi`.
//!
//! Programs read and write some fields while we hold references to the object. Such fields are
//! cells.

#![allow(non_camel_case_types, reason = "the names are the header's")]

pub mod cma;
