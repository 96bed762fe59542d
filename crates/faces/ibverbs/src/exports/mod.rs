//! The exported names and their version nodes.
//!
//! rustc cannot give a version to a symbol. So each export is a trampoline in assembler, named
//! `__v_NAME_at_NODE`, which a `.symver` line renames to `NAME@@NODE`. `build.rs` makes the nodes.
//! The trampoline of a public name jumps to [`crate::verbs::observers::control::enter`].

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

/// Exports functions under their own names: `at_nodes! { [nodes] "@@" { module: names; … } }`. With
/// `told [nodes]` the calls pass through `control::enter`: instruments see the calls, and a thread
/// is not cancelled in them. `at_nodes! { [older; newest] { … } }` exports at the
/// newest of several nodes as the default version, and at the older nodes besides.
macro_rules! at_nodes {
    (told [$($older:literal)*; $newest:literal] $entries:tt) => {
        at_nodes! { told [$($older)*] "@" $entries }
        at_nodes! { told [$newest] "@@" $entries }
    };
    ([$($node:literal)*] $at:literal $entries:tt) => { $( at_nodes! { @ [] $node $at $entries } )* };
    (told [$($node:literal)*] $at:literal $entries:tt) => { $( at_nodes! { @ [told] $node $at $entries } )* };
    (@ $told:tt $node:literal $at:literal { $($first:ident $(:: $rest:ident)*: $($name:ident)*; )* }) => {
        $( at_nodes! { @ $told $node $at [$first $(:: $rest)*] $($name)* } )*
    };
    (@ $told:tt $node:literal $at:literal $path:tt $($name:ident)*) => {
        $( at_nodes! { @@ $told $node $at $path $name } )*
    };
    (@@ [$($told:ident)?] $node:literal $at:literal [$($module:tt)*] $name:ident) => {
        trampoline!($($told)? stringify!($name), $node, $at, $crate::$($module)*::$name);
    };
}

/// Exports a function of [`private`] under many names, each with the newest node as its default
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
mod random;
