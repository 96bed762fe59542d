//! Faults and captures on the path within the host. The path does not change, every byte is
//! correct, and each operation happens exactly once and in order.
use crate::one_sided::{
    atomics_and_flush, atomics_of_two_processes_and_the_processor, writes_and_reads_of_every_size,
};
use crate::order::random_chains;
use crate::two_sided::{gathered_and_inline, messages_of_every_size_from_and_to_every_memory};
use crate::{Case, local};

/// Packet loss with other faults, with several seeds.
const LOSSES: [&str; 3] = [
    "drop=5%,dup=3%,reorder=5%,seed=1",
    "drop=3%,dup=10%,reorder=10%,seed=2",
    "drop=3%,delay=200us+-200us,reorder=2%,seed=3",
];
const LATE: &str = "delay=150us+-150us,seed=4";

macro_rules! under {
    ($($name:literal: $run:ident, $spec:expr;)*) => {
        /// FLT-5.
        pub const CASES: &[Case] = &[
            $(Case { env: &[("ADVERB_FAULT", $spec)], ..local($name, $run) }),*
        ];
    };
}

under! {
    "flt_5_messages_that_are_lost": messages_of_every_size_from_and_to_every_memory, LOSSES[0];
    "flt_5_messages_that_are_late": messages_of_every_size_from_and_to_every_memory, LATE;
    "flt_5_gathered_and_inline_and_lost": gathered_and_inline, LOSSES[1];
    "flt_5_writes_and_reads_that_are_lost": writes_and_reads_of_every_size, LOSSES[0];
    "flt_5_writes_and_reads_that_are_late": writes_and_reads_of_every_size, LATE;
    "flt_5_atomics_that_are_lost": atomics_and_flush, LOSSES[1];
    "flt_5_atomics_that_are_late": atomics_of_two_processes_and_the_processor, LATE;
    "flt_5_atomics_of_two_that_are_lost": atomics_of_two_processes_and_the_processor, LOSSES[0];
    "flt_5_chains_that_are_lost": random_chains, LOSSES[0];
    "flt_5_chains_that_are_doubled": random_chains, LOSSES[1];
    "flt_5_chains_that_are_lost_and_late": random_chains, LOSSES[2];
    "flt_5_chains_that_are_late": random_chains, LATE;
}
