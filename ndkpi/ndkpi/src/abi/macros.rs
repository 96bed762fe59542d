//! The macros that define the mirrors. The same text also defines the tables for the layout test.

/// Defines `repr(C)` structs and a `LAYOUTS` table of their sizes and offsets.
macro_rules! mirrors {
    ($( $(#[$meta:meta])* $name:ident { $( $(#[$fmeta:meta])* $field:ident : $ty:ty ),* $(,)? } )*) => {
        $(
            $(#[$meta])*
            #[repr(C)]
            pub struct $name { $( $(#[$fmeta])* pub $field: $ty ),* }
        )*

        /// Sizes and offsets of the types of this file.
        pub const LAYOUTS: &[$crate::abi::TypeLayout] = &[ $(
            $crate::abi::TypeLayout {
                name: stringify!($name),
                size: size_of::<$name>(),
                fields: &[ $( (stringify!($field), core::mem::offset_of!($name, $field)) ),* ],
            }
        ),* ];
    };
}

/// Defines constants and a `CONSTANTS` table of their names and values.
macro_rules! constants {
    ($( $(#[$meta:meta])* $name:ident : $ty:ty = $value:expr; )*) => {
        $( $(#[$meta])* pub const $name: $ty = $value; )*

        /// Names and values of the constants of this file.
        pub const CONSTANTS: &[(&str, i64)] = &[ $( (stringify!($name), $name as i64) ),* ];
    };
}

pub(crate) use {constants, mirrors};
