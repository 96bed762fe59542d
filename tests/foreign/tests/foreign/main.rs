//! Unmodified programs, and C programs of `c/`, on the drop-in libraries. One module for each
//! suite; `cargo test -p adverb-foreign -- SUITE` runs one of them.
#![forbid(unsafe_code)]

mod asleep;
mod capture;
mod connections;
mod devinfo;
mod ends;
mod ethernet;
mod faults;
mod forks;
mod heart;
mod hosts;
mod kill;
mod loader;
mod mistakes;
mod names;
mod neighbours;
mod nics;
mod outages;
mod perftest;
mod pingpong;
mod ports;
mod pyverbs;
mod rdmacm;
mod resources;
mod rigs;
mod sanitizers;
mod sockets;
mod symbols;
mod system;
mod threads;
mod top;
mod trace;
mod ucx;
mod users;

use std::process::ExitCode;

use adverb_foreign::cases;
use adverb_foreign::suite::{self, Suite};

const SUITES: &[Suite] = &[
    Suite::new("devinfo", devinfo::cases).once(),
    Suite::new("pingpong", pingpong::cases),
    Suite::new("perftest", perftest::cases),
    Suite::new("pyverbs", pyverbs::cases),
    Suite::new("symbols", symbols::cases).once(),
    Suite::new("kill", kill::cases).alone(),
    Suite::new("notify", rigs::notify),
    // Rules of verbs on which programs rely, as on NICs.
    Suite::new("rules", || cases::of("rules")).once(),
    // OBJ-10: calls without free memory.
    Suite::new("nomem", || cases::of_linked("nomem", &["-lrdmacm"])).once(),
    // OBJ-8, OBJ-9, NIC-6: accepted and granted values of creation and modification.
    Suite::new("values", || cases::of("values")).once(),
    // MC-1, MC-2, MC-3: multicast of datagrams.
    Suite::new("multicast", || cases::of("multicast")).once(),
    // RAW-1, RAW-3 to RAW-5: raw packet queue pairs, flows and receive side scaling.
    Suite::new("raw", || cases::on_loopback("raw")).once(),
    Suite::new("ethernet", ethernet::cases).once().aside(),
    // OBJ-1 to OBJ-5: memory of descriptors, registrations by attributes, DMA handles, completion
    // counters and huge pages.
    Suite::new("objects", || cases::of("objects")).once(),
    // OBJ-11 to OBJ-14, CQN-10, CQN-11: cases in which IBTA, NICs and soft-RoCE differ, and
    // Adverb's choice (docs/conformance.md).
    Suite::new("conformance", || cases::of("conformance")).once(),
    // TM-1 to TM-5: tag matching on SRQs.
    Suite::new("tags", || cases::of("tags")).once(),
    Suite::new("closes", rigs::closes).once(),
    Suite::new("forks", forks::cases).once(),
    Suite::new("users", users::cases).once(),
    Suite::new("threads", threads::cases),
    Suite::new("heart", heart::cases),
    Suite::new("asleep", asleep::cases),
    Suite::new("waits", rigs::waits).once(),
    Suite::new("faults", faults::cases),
    Suite::new("mistakes", mistakes::cases).once(),
    Suite::new("nics", nics::cases).once(),
    Suite::new("capture", capture::cases).once(),
    Suite::new("trace", trace::cases).once(),
    // The cases look at all processes of the user.
    Suite::new("top", top::cases).once().alone(),
    Suite::new("resources", resources::cases).once().aside(),
    Suite::new("ext", rigs::extensions),
    Suite::new("rdmacm", rdmacm::cases).once(),
    Suite::new("connections", connections::cases).once().aside(),
    Suite::new("neighbours", neighbours::cases).once().aside(),
    Suite::new("ucma", rigs::ucma).once().aside(),
    Suite::new("hosts", hosts::cases).once().aside(),
    Suite::new("ends", ends::cases).once().aside(),
    Suite::new("ports", ports::cases).once().aside(),
    Suite::new("names", names::cases).once().aside(),
    Suite::new("outages", outages::cases).once().aside(),
    Suite::new("ucx", ucx::cases),
    Suite::new("sanitizers", sanitizers::cases),
    Suite::new("seccomp", rigs::seccomp).once(),
    Suite::new("system", system::cases),
    Suite::new("sockets", sockets::cases).once().alone(),
    Suite::new("loader", loader::cases).once(),
];

fn main() -> ExitCode {
    suite::main(SUITES)
}
