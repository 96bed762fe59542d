//! The exported names and their version nodes.
//!
//! rustc cannot give a version to a symbol. So each export is a trampoline in assembler, named
//! `__v_NAME_at_NODE`, which a `.symver` line renames to `NAME@@NODE`. `build.rs` makes the nodes.
//! A trampoline of a public name checks whether an instrument is on. If no instrument is on, the
//! trampoline jumps to its function ([`crate::verbs::observers`]).

/// Defines one export: `trampoline!(name, node, "@@" or "@", path of the function)`.
macro_rules! trampoline {
    ($name:expr, $node:literal, $at:literal, $target:path) => {
        #[cfg(all(not(test), target_arch = "x86_64"))]
        trampoline!(@ [concat!("jmp {target}")], $name, $node, $at, $target);
        #[cfg(all(not(test), target_arch = "aarch64"))]
        trampoline!(@ [concat!("b {target}")], $name, $node, $at, $target);
    };
    (told $name:expr, $node:literal, $at:literal, $target:path) => {
        #[cfg(all(not(test), target_arch = "x86_64"))]
        trampoline!(
            @ [
                "cmp byte ptr [rip + {on}], 0",
                "jne 2f",
                "jmp {target}",
                "2:",
                "lea r11, [rip + 3f]",
                "jmp {enter}",
                ".pushsection .data.rel.ro,\"aw\",@progbits",
                ".p2align 3",
                "3: .quad {target}, 4f",
                ".popsection",
                ".pushsection .rodata.adverb_names,\"a\",@progbits",
                concat!("4: .asciz \"", $name, "\""),
                ".popsection"
            ],
            $name, $node, $at, $target,
            on = sym $crate::verbs::observers::list::ON, enter = sym $crate::verbs::observers::control::enter
        );
        #[cfg(all(not(test), target_arch = "aarch64"))]
        trampoline!(
            @ [
                "adrp x16, {on}",
                "ldrb w16, [x16, :lo12:{on}]",
                "cbnz w16, 2f",
                "b {target}",
                "2:",
                "adrp x16, 3f",
                "add x16, x16, :lo12:3f",
                "b {enter}",
                ".pushsection .data.rel.ro,\"aw\",@progbits",
                ".p2align 3",
                "3: .quad {target}, 4f",
                ".popsection",
                ".pushsection .rodata.adverb_names,\"a\",@progbits",
                concat!("4: .asciz \"", $name, "\""),
                ".popsection"
            ],
            $name, $node, $at, $target,
            on = sym $crate::verbs::observers::list::ON, enter = sym $crate::verbs::observers::control::enter
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
/// `told [nodes]` instruments see the calls. `at_nodes! { [older; newest] { … } }` exports at the
/// newest of several nodes as the default version, and at the older nodes besides.
macro_rules! at_nodes {
    ([$($older:literal)*; $newest:literal] $entries:tt) => {
        at_nodes! { [$($older)*] "@" $entries }
        at_nodes! { [$newest] "@@" $entries }
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
