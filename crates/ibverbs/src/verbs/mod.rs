//! The C entry points, by object: exported functions (`ibv_…`) and those that contexts and objects point to.
#![allow(clippy::missing_safety_doc, reason = "the contract is that of the verb's manual page")]
#![allow(clippy::too_many_arguments, reason = "the signatures are the header's")]

pub mod ah;
pub mod async_event;
pub mod comp_channel;
pub mod comp_cntr;
pub mod cq;
pub mod device;
pub mod dm;
pub mod flow;
pub mod import;
pub mod mr;
pub mod mw;
pub mod pd;
pub mod qp;
pub mod srq;
pub mod tables;
pub mod xrcd;
