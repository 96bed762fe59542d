//! The exported names and their version nodes.
//!
//! rustc cannot give a symbol a version, so each export is a one-instruction trampoline in
//! assembler, named `__v_NAME_at_NODE`, which a `.symver` line renames to `NAME@@NODE`. The nodes
//! themselves come from `build.rs`.

/// Defines one export: `trampoline!(name, node, "@@" or "@", path of the function)`.
macro_rules! trampoline {
    ($name:expr, $node:literal, $at:literal, $target:path) => {
        #[cfg(all(not(test), target_arch = "x86_64"))]
        trampoline!(@ "jmp", $name, $node, $at, $target);
        #[cfg(all(not(test), target_arch = "aarch64"))]
        trampoline!(@ "b", $name, $node, $at, $target);
    };
    (@ $jump:literal, $name:expr, $node:literal, $at:literal, $target:path) => {
        core::arch::global_asm!(
            ".pushsection .text.adverb_exports,\"ax\",@progbits",
            ".p2align 4",
            concat!(".globl __v_", $name, "_at_", $node),
            concat!(".type __v_", $name, "_at_", $node, ",@function"),
            concat!("__v_", $name, "_at_", $node, ":"),
            concat!($jump, " {target}"),
            concat!(".size __v_", $name, "_at_", $node, ", . - __v_", $name, "_at_", $node),
            concat!(".symver __v_", $name, "_at_", $node, ", ", $name, $at, $node, ", remove"),
            ".popsection",
            target = sym $target,
        );
    };
}

/// Exports functions under their own names: `at_nodes! { [nodes] "@@" { module: names; … } }`, or
/// at the newest of several nodes as the default version and at the older ones beside: `at_nodes! {
/// [older; newest] { … } }`.
macro_rules! at_nodes {
    ([$($older:literal)*; $newest:literal] $entries:tt) => {
        at_nodes! { [$($older)*] "@" $entries }
        at_nodes! { [$newest] "@@" $entries }
    };
    ([$($node:literal)*] $at:literal $entries:tt) => { $( at_nodes! { @ $node $at $entries } )* };
    (@ $node:literal $at:literal { $($first:ident $(:: $rest:ident)*: $($name:ident)*; )* }) => {
        $( at_nodes! { @ $node $at [$first $(:: $rest)*] $($name)* } )*
    };
    (@ $node:literal $at:literal $path:tt $($name:ident)*) => {
        $( at_nodes! { @@ $node $at $path $name } )*
    };
    (@@ $node:literal $at:literal [$($module:tt)*] $name:ident) => {
        trampoline!(stringify!($name), $node, $at, $crate::$($module)*::$name);
    };
}

/// Exports one function of [`private`] under many names, each with the newest node as its default
/// version: `same_target! { [older; newest] { function: names; … } }`.
macro_rules! same_target {
    ([$($older:literal)*; $newest:literal] $entries:tt) => {
        $( same_target! { @ $older "@" $entries } )*
        same_target! { @ $newest "@@" $entries }
    };
    (@ $node:literal $at:literal { $($target:ident: $($name:ident)*; )* }) => {
        $( same_target! { @@ $node $at $target $($name)* } )*
    };
    (@@ $node:literal $at:literal $target:ident $($name:ident)*) => {
        $( trampoline!(stringify!($name), $node, $at, $crate::exports::private::$target); )*
    };
}

pub mod private;
mod private_nodes;
mod public;
