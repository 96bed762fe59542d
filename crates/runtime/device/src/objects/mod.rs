//! Objects that programs create and destroy.
pub mod buffer;
pub mod comp_counter;
pub mod context;
pub mod cq;
pub mod cuts;
pub mod device;
mod element;
mod event_queue;
pub mod fast_mr;
mod fd_mr;
pub mod mad;
pub mod multicast;
pub mod pd;
pub mod qp;
pub mod raw;
pub mod srq;
pub mod sysfs;
pub mod waits;

pub use element::Element;
