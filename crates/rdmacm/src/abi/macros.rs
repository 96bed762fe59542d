//! The macro that defines the mirrors and, from the same text, the table that the layout test
//! reads.

/// Defines `repr(C)` structs and unions and a table `LAYOUTS` of those that name their C type.
///
/// `as "…"` after a name gives its spelling in C; a field without it is called the same there.
macro_rules! c_types {
    ($( $(#[$meta:meta])* $kind:ident $name:ident as $c:literal {
        $( $(#[$fmeta:meta])* $field:ident $(as $cfield:literal)? : $ty:ty ),* $(,)?
    } )*) => {
        $(
            $(#[$meta])*
            #[repr(C)]
            pub $kind $name { $( $(#[$fmeta])* pub $field: $ty ),* }
        )*

        /// Sizes and offsets of the types of this file.
        pub const LAYOUTS: &[$crate::abi::TypeLayout] = &[ $(
            $crate::abi::TypeLayout {
                c_name: $c,
                size: size_of::<$name>(),
                fields: &[ $( (
                    $crate::abi::macros::c_field!($field $(, $cfield)?),
                    core::mem::offset_of!($name, $field),
                    size_of::<$ty>(),
                ) ),* ],
            }
        ),* ];
    };
}

macro_rules! c_field {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident, $c:literal) => {
        $c
    };
}

pub(crate) use {c_field, c_types};
