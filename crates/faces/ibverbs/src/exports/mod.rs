//! The exported names and their version nodes.
//!
//! `build.rs` makes the nodes and the trampolines of the tables in `symbols`. The trampoline of a
//! public name jumps to [`crate::verbs::observers::control::enter`].

use crate::abi::versioned_symbol;
use crate::verbs::observers::control::{site, to_site};

/// Defines one export: `trampoline!(name, node, "@@" or "@", path of the function)`.
macro_rules! trampoline {
    ($name:literal, $node:literal, $at:literal, $target:path) => {
        #[cfg(not(test))]
        versioned_symbol!(
            [$crate::abi::by_processor!("jmp {target}", "b {target}")],
            $name, $node, $at, target = sym $target
        );
    };
    (told $name:literal, $node:literal, $at:literal, $target:path) => {
        versioned_symbol!(
            [to_site!(), site!($name)],
            $name, $node, $at, target = sym $target, enter = sym $crate::verbs::observers::control::enter
        );
    };
}

/// Defines the only data object of the private nodes: a C `bool` that providers set.
macro_rules! data_object {
    ($name:literal: $($node:literal $at:literal)*) => {
        core::arch::global_asm!(
            ".pushsection .bss.adverb_exports,\"aw\",@nobits",
            $(
                concat!(".globl __v_data_at_", $node),
                concat!(".type __v_data_at_", $node, ",@object"),
                concat!("__v_data_at_", $node, ":"),
            )*
            ".zero 1",
            $(
                concat!(".size __v_data_at_", $node, ", 1"),
                concat!(".symver __v_data_at_", $node, ", ", $name, $at, $node, ", remove"),
            )*
            ".popsection",
        );
    };
}

// The names of the tables in `symbols`, each with its `trampoline!`.
include!(concat!(env!("OUT_DIR"), "/exports.rs"));

pub mod private;
mod random;
