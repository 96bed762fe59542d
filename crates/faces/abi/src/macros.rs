//! The two macros that define the mirrors and, from the same text, the tables that the layout test
//! reads. Also the assembler of the libraries' exports.

/// Defines `repr(C)` structs, unions and objects, and a `LAYOUTS` table of their sizes and offsets.
/// An object is a struct without copies: its address stands for it.
///
/// `as "…"` after a type or field name gives its C spelling, if it differs from the Rust name.
#[macro_export]
macro_rules! c_types {
    ($( $(#[$meta:meta])* $kind:ident $name:ident $(as $c:literal)? {
        $( $(#[$fmeta:meta])* $field:ident $(as $cfield:literal)? : $ty:ty ),* $(,)?
    } )*) => {
        $(
            $crate::c_type! { $kind [$(#[$meta])*] $name { $( $(#[$fmeta])* pub $field: $ty ),* } }

            // SAFETY: the fields are integers, raw pointers, optional function pointers, and arrays
            // and unions of them. Zero bytes are a valid value of each field.
            unsafe impl $crate::Plain for $name {}
        )*

        /// Sizes and offsets of the types of this file.
        pub const LAYOUTS: &[$crate::TypeLayout] = &[ $(
            $crate::TypeLayout {
                name: stringify!($name),
                c_name: $crate::c_type_name!($kind $name $(, $c)?),
                size: size_of::<$name>(),
                align: align_of::<$name>(),
                fields: &[ $(
                    $crate::FieldLayout {
                        name: $crate::c_field_name!($field $(, $cfield)?),
                        offset: core::mem::offset_of!($name, $field),
                        size: size_of::<$ty>(),
                    }
                ),* ],
            }
        ),* ];
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! c_type {
    (object [$($meta:tt)*] $($rest:tt)*) => {
        $($meta)*
        #[repr(C)]
        pub struct $($rest)*
    };
    ($kind:ident [$($meta:tt)*] $($rest:tt)*) => {
        $($meta)*
        #[derive(Clone, Copy)]
        #[repr(C)]
        pub $kind $($rest)*
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! c_type_name {
    ($kind:ident $name:ident, $c:literal) => {
        $c
    };
    (object $name:ident) => {
        concat!("struct ", stringify!($name))
    };
    ($kind:ident $name:ident) => {
        concat!(stringify!($kind), " ", stringify!($name))
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! c_field_name {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident, $c:literal) => {
        $c
    };
}

/// Defines groups of constants, a type alias for each group, and a `CONSTANTS` table of names and
/// values.
#[macro_export]
macro_rules! c_enums {
    ($( $(#[$meta:meta])* $name:ident : $ty:ty { $( $value:ident = $expr:expr ),* $(,)? } )*) => {
        $(
            $(#[$meta])*
            pub type $name = $ty;
            $(
                #[doc = concat!("One of [`", stringify!($name), "`].")]
                pub const $value: $name = $expr;
            )*
        )*

        /// Names and values of the constants of this file.
        pub const CONSTANTS: &[$crate::Constant] = &[ $( $(
            $crate::Constant { name: stringify!($value), value: $value as i64 },
        )* )* ];
    };
}

/// The text for the processor: x86-64, or aarch64.
#[cfg(target_arch = "x86_64")]
#[macro_export]
macro_rules! by_processor {
    ($x86_64:literal, $aarch64:literal) => {
        $x86_64
    };
}
/// The text for the processor: x86-64, or aarch64.
#[cfg(target_arch = "aarch64")]
#[macro_export]
macro_rules! by_processor {
    ($x86_64:literal, $aarch64:literal) => {
        $aarch64
    };
}

/// Defines a function in assembler with a versioned name: `versioned_symbol!([code], name, node,
/// "@@" or "@", operands)`. `@@` is the default version.
///
/// rustc cannot give a version to a symbol. So the function is named `__v_NAME_at_NODE`, which a
/// `.symver` line renames to `NAME@@NODE`.
#[macro_export]
macro_rules! versioned_symbol {
    ([$($code:expr),*], $name:literal, $node:literal, $at:literal, $($operands:tt)*) => {
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
            $($operands)*
        );
    };
}
