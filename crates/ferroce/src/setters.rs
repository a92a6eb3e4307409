//! Setters of structures that may get more fields.

/// Makes a setter of each named field, which takes the structure and gives it back.
macro_rules! setters {
    ($name:ident: $($field:ident: $kind:ty,)*) => {
        impl $name {
            $(
                #[doc = concat!(
                    "Sets [`", stringify!($field), "`](Self#structfield.", stringify!($field), ")."
                )]
                #[must_use]
                pub fn $field(mut self, $field: $kind) -> Self {
                    self.$field = $field;
                    self
                }
            )*
        }
    };
}

pub(crate) use setters;
