//! Suites of other projects, one module for each. `cargo test -p adverb-programs -- SUITE` runs one
//! of them. Each case has its own namespace and sets the path itself.
#![forbid(unsafe_code)]

mod ceph;
mod fio;
mod libfabric;
mod loops;
mod mooncake;
mod mpi;
mod pyverbs_head;
mod qemu;
mod qperf;
mod rsockets;
mod rust_crates;
mod shmem;
mod tgt;
mod two_hosts;

use std::process::ExitCode;

use adverb_foreign::suite::{self, Suite};

const SUITES: &[Suite] = &[
    Suite::new("two_hosts", two_hosts::cases).once(),
    Suite::new("mpi", mpi::cases).once().before(mpi::before),
    Suite::new("shmem", shmem::cases).once(),
    Suite::new("fio", fio::cases).once(),
    Suite::new("qperf", qperf::cases).once(),
    Suite::new("tgt", tgt::cases).once(),
    Suite::new("qemu", qemu::cases).once(),
    Suite::new("libfabric", libfabric::cases).once(),
    Suite::new("loops", loops::cases).once().before(loops::before),
    Suite::new("pyverbs_head", pyverbs_head::cases).once(),
    Suite::new("mooncake", mooncake::cases).once(),
    Suite::new("ceph", ceph::cases).once(),
    Suite::new("rust_crates", rust_crates::cases).once().before(rust_crates::before),
    Suite::new("rsockets", rsockets::cases).once().before(rsockets::before).alone(),
];

fn main() -> ExitCode {
    suite::main(SUITES)
}
