//! MADs on queue pair 1.
mod listen;
mod route;
mod serve;
mod state;

pub(crate) use state::Mads;
