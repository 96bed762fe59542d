//! The exported names and their version nodes.
//!
//! rustc cannot give a version to a symbol. So each export is a trampoline in assembler, named
//! `__v_NAME_at_NODE`, which a `.symver` line renames to `NAME@@NODE`. `build.rs` makes the nodes
//! and the trampolines of the tables in `symbols`. The trampoline of a public name jumps to
//! [`crate::verbs::observers::control::enter`].

/// Defines one export: `trampoline!(name, node, "@@" or "@", path of the function)`.
macro_rules! trampoline {
    ($name:expr, $node:literal, $at:literal, $target:path) => {
        #[cfg(all(not(test), target_arch = "x86_64"))]
        trampoline!(@ [concat!("jmp {target}")], $name, $node, $at, $target);
        #[cfg(all(not(test), target_arch = "aarch64"))]
        trampoline!(@ [concat!("b {target}")], $name, $node, $at, $target);
    };
    (told $name:expr, $node:literal, $at:literal, $target:path) => {
        trampoline!(
            @ [
                $crate::verbs::observers::control::to_site!(),
                $crate::verbs::observers::control::site!($name)
            ],
            $name, $node, $at, $target, enter = sym $crate::verbs::observers::control::enter
        );
    };
    (@ [$($code:expr),*], $name:expr, $node:literal, $at:literal, $target:path $(, $key:ident = sym $value:path)*) => {
        core::arch::global_asm!(
            ".pushsection .text.adverb_exports,\"ax\",@progbits",
            ".p2align 4",
            concat!(".globl __v_", $name, "_at_", $node),
            concat!(".type __v_", $name, "_at_", $node, ",@function"),
            concat!("__v_", $name, "_at_", $node, ":"),
            $($code,)*
            concat!(".size __v_", $name, "_at_", $node, ", . - __v_", $name, "_at_", $node),
            concat!(".symver __v_", $name, "_at_", $node, ", ", $name, $at, $node, ", remove"),
            ".popsection",
            target = sym $target,
            $($key = sym $value,)*
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
