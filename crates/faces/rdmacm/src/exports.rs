//! The exported names and their version nodes.
//!
//! `build.rs` makes the nodes and the trampolines of `symbols.txt`. The trampoline of an `enter`
//! name jumps to [`cancel::enter`](crate::cancel::enter) with its function in a register. A thread
//! is then cancelled only where the call waits for an event.

use adverb_abi::{by_processor, versioned_symbol};

/// Defines one export: `trampoline!(name, node, "@@" or "@", path of the function)`.
macro_rules! trampoline {
    ($name:literal, $node:literal, $at:literal, $target:path) => {
        versioned_symbol!(
            [by_processor!("jmp {target}", "b {target}")],
            $name, $node, $at, target = sym $target
        );
    };
    (enter $name:literal, $node:literal, $at:literal, $target:path) => {
        versioned_symbol!(
            [by_processor!(
                "lea r11, [rip + {target}]\njmp {enter}",
                "adrp x16, {target}\nadd x16, x16, :lo12:{target}\nb {enter}"
            )],
            $name, $node, $at, target = sym $target, enter = sym $crate::cancel::enter
        );
    };
}

// The names of `symbols.txt`, each with its `trampoline!`.
include!(concat!(env!("OUT_DIR"), "/exports.rs"));
