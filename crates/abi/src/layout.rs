//! Declaring C structures once: each declaration makes the Rust type and the table that a test
//! holds against the C headers.

/// One field of a C structure.
#[derive(Clone, Copy, Debug)]
pub struct FieldLayout {
    /// Name in C.
    pub name: &'static str,
    /// Bytes from the start of the structure.
    pub offset: usize,
    /// Bytes.
    pub size: usize,
}

/// A C structure as it was declared here.
#[derive(Clone, Copy, Debug)]
pub struct StructLayout {
    /// Tag in C.
    pub name: &'static str,
    /// `sizeof`.
    pub size: usize,
    /// Every field.
    pub fields: &'static [FieldLayout],
}

/// A constant or enumerator as it was declared here.
#[derive(Clone, Copy, Debug)]
pub struct Constant {
    /// Name in C.
    pub name: &'static str,
    /// Value.
    pub value: i64,
}

/// Size of the field that `_field` selects.
#[doc(hidden)]
#[must_use]
pub const fn field_size<T, F>(_field: fn(&T) -> &F) -> usize {
    size_of::<F>()
}

/// Declares `#[repr(C)]` structures and, under the given name, the table of their layouts.
macro_rules! c_structs {
    ($table:ident; $(
        $(#[$attr:meta])*
        struct $name:ident { $($(#[$fattr:meta])* $field:ident: $ty:ty),* $(,)? }
    )*) => {
        $(
            $(#[$attr])*
            #[allow(missing_docs, reason = "the fields are those of the C structure of the same name")]
            #[allow(non_camel_case_types, non_snake_case, reason = "the names are the C structure's")]
            #[derive(Clone, Copy, Debug)]
            #[repr(C)]
            pub struct $name { $($(#[$fattr])* pub $field: $ty,)* }

            impl $name {
                /// All bytes zero: NULL pointers, absent functions.
                #[must_use]
                #[inline]
                pub const fn zeroed() -> Self {
                    // SAFETY: the structure consists of integers, raw pointers, optional function
                    // pointers and the C library's plain types, for all of which zero bytes are a
                    // value.
                    unsafe { core::mem::zeroed() }
                }
            }
        )*
        /// Layouts of this module's structures.
        pub(crate) const $table: &[$crate::layout::StructLayout] = &[$(
            $crate::layout::StructLayout {
                name: stringify!($name),
                size: size_of::<$name>(),
                fields: &[$(
                    $crate::layout::FieldLayout {
                        name: stringify!($field),
                        offset: core::mem::offset_of!($name, $field),
                        size: $crate::layout::field_size::<$name, $ty>(|s| &s.$field),
                    },
                )*],
            },
        )*];
    };
}

/// Declares constants with their C names and, under the given name, the table of their values.
macro_rules! c_constants {
    ($table:ident: $ty:ty; $($name:ident = $value:expr;)*) => {
        $(
            #[allow(missing_docs, reason = "the name and value are the C header's")]
            pub const $name: $ty = $value as $ty;
        )*
        /// Values of this list's constants.
        pub(crate) const $table: &[$crate::layout::Constant] = &[$(
            $crate::layout::Constant { name: stringify!($name), value: $name as i64 },
        )*];
    };
}

pub(crate) use {c_constants, c_structs};
