//! A macro that implements the traits of a type from one row of a table: the type's least size, its wire
//! form, and how it is encoded and decoded.

/// Implements the three traits for each type of a table. A row is `TYPE, least size in bytes, |types| wire
/// form, |value, encoder| encode, |decoder| decode;`. The module of the table must import `Types` and `Type`
/// from the module `schema`.
macro_rules! crossing {
    ($($type:ty, $min:expr, |$types:pat_param| $form:expr,
        |$value:pat_param, $e:pat_param| $encode:expr, |$d:pat_param| $decode:expr;)*) => {$(
        impl $crate::Encode for $type {
            #[inline]
            fn encode(&self, $e: &mut $crate::Encoder<'_>) -> Result<(), $crate::Error> {
                let $value = self;
                $encode
            }
        }

        impl $crate::Decode<'_> for $type {
            const MIN_SIZE: usize = $min;

            #[inline]
            fn decode($d: &mut $crate::Decoder<'_>) -> Result<Self, $crate::Error> {
                $decode
            }
        }

        impl $crate::Schema for $type {
            fn schema($types: &mut Types) -> Type {
                $form
            }
        }
    )*};
}

pub(crate) use crossing;
