//! Implements the wire forms of strings, opaque data, arrays, lists, maps, optional data, boxes and tuples.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, TryReserveError};
use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;

use crate::crossing::crossing;
use crate::schema::{Type, Types};
use crate::{Decode, Decoder, Encode, Encoder, Error, ErrorKind, Schema};

// Strings and opaque data.

impl Encode for str {
    #[inline]
    fn encode(&self, e: &mut Encoder<'_>) -> Result<(), Error> {
        e.bytes(self.as_bytes())
    }
}

impl Schema for str {
    fn schema(_: &mut Types) -> Type {
        Type::String { max: u32::MAX }
    }
}

impl<'a, 'de: 'a> Decode<'de> for &'a str {
    const MIN_SIZE: usize = 4;

    #[inline]
    fn decode(d: &mut Decoder<'de>) -> Result<Self, Error> {
        d.string()
    }
}

impl<'a, 'de: 'a> Decode<'de> for &'a [u8] {
    const MIN_SIZE: usize = 4;

    #[inline]
    fn decode(d: &mut Decoder<'de>) -> Result<Self, Error> {
        d.bytes()
    }
}

crossing! {
    String, 4, |types| str::schema(types), |value, e| e.bytes(value.as_bytes()),
        |d| {
            let string = d.string()?;
            d.charge(string.len())?;
            let mut copy = String::new();
            copy.try_reserve_exact(string.len()).map_err(|_| d.error(ErrorKind::NoMemory(string.len())))?;
            copy.push_str(string);
            Ok(copy)
        };

    Bytes, 4, |types| <[u8]>::schema(types), |value, e| e.shared(value), |d| d.shared();
}

impl<T: Encode + ToOwned + ?Sized> Encode for Cow<'_, T> {
    #[inline]
    fn encode(&self, e: &mut Encoder<'_>) -> Result<(), Error> {
        (**self).encode(e)
    }
}

impl<'a, 'de: 'a, T: ToOwned + ?Sized> Decode<'de> for Cow<'a, T>
where
    &'a T: Decode<'de>,
{
    const MIN_SIZE: usize = <&'a T>::MIN_SIZE;

    #[inline]
    fn decode(d: &mut Decoder<'de>) -> Result<Self, Error> {
        <&'a T>::decode(d).map(Cow::Borrowed)
    }
}

impl<T: Schema + ToOwned + ?Sized> Schema for Cow<'_, T> {
    fn schema(types: &mut Types) -> Type {
        T::schema(types)
    }
}

// Arrays and lists.

impl<T: Encode> Encode for [T] {
    #[inline]
    fn encode(&self, e: &mut Encoder<'_>) -> Result<(), Error> {
        e.count(self.len())?;
        T::encode_slice(self, e)
    }
}

impl<T: Schema> Schema for [T] {
    fn schema(types: &mut Types) -> Type {
        if T::IS_BYTE {
            return Type::Bytes { max: u32::MAX };
        }
        list(T::schema(types))
    }
}

fn list(element: Type) -> Type {
    Type::List { max: u32::MAX, element: Box::new(element) }
}

impl<T: Encode> Encode for Vec<T> {
    #[inline]
    fn encode(&self, e: &mut Encoder<'_>) -> Result<(), Error> {
        self.as_slice().encode(e)
    }
}

impl<'a, T: Decode<'a>> Decode<'a> for Vec<T> {
    const MIN_SIZE: usize = 4;

    #[inline]
    fn decode(d: &mut Decoder<'a>) -> Result<Self, Error> {
        let count = d.count()?;
        T::decode_vec(d, count)
    }
}

impl<T: Schema> Schema for Vec<T> {
    fn schema(types: &mut Types) -> Type {
        <[T]>::schema(types)
    }
}

impl<T: Encode, const N: usize> Encode for [T; N] {
    #[inline]
    fn encode(&self, e: &mut Encoder<'_>) -> Result<(), Error> {
        T::encode_slice(self, e)
    }
}

impl<'a, T: Decode<'a>, const N: usize> Decode<'a> for [T; N] {
    const MIN_SIZE: usize = T::MIN_ELEMENT_SIZE.saturating_mul(N);

    #[inline]
    fn decode(d: &mut Decoder<'a>) -> Result<Self, Error> {
        T::decode_array(d)
    }

    fn decode_boxed(d: &mut Decoder<'a>) -> Result<Box<Self>, Error> {
        match T::decode_vec(d, N)?.try_into() {
            Ok(items) => Ok(items),
            Err(_) => unreachable!("N items were decoded"),
        }
    }
}

impl<T: Schema, const N: usize> Schema for [T; N] {
    fn schema(types: &mut Types) -> Type {
        // An array of 2^32 or more elements never decodes, because no packet holds it. So its described size
        // does not matter.
        let size = u32::try_from(N).unwrap_or(u32::MAX);
        if T::IS_BYTE {
            return Type::Opaque { size };
        }
        Type::Array { size, element: Box::new(T::schema(types)) }
    }
}

// Maps are lists of pairs, and sets are lists of elements, in the order of iteration.

fn encode_each<T: Encode>(items: impl ExactSizeIterator<Item = T>, e: &mut Encoder<'_>) -> Result<(), Error> {
    e.count(items.len())?;
    e.nested(|e| {
        for (index, item) in items.enumerate() {
            item.encode(e).map_err(|error| error.at_index(index))?;
        }
        Ok(())
    })
}

/// Decodes a list by passing each element to `insert`, which returns whether the element is new, or that this
/// process has no memory for it.
fn decode_each<'a, T: Decode<'a>>(
    d: &mut Decoder<'a>,
    mut insert: impl FnMut(T) -> Result<bool, TryReserveError>,
) -> Result<(), Error> {
    let count = d.count()?;
    d.admit(count, T::MIN_SIZE, size_of::<T>())?;
    d.elements(count, |d| {
        let start = d.offset();
        let no_memory = |_| Error::new(ErrorKind::NoMemory(count.saturating_mul(size_of::<T>())), start);
        if !insert(T::decode(d)?).map_err(no_memory)? && !d.is_lenient() {
            return Err(Error::new(ErrorKind::Duplicate, start));
        }
        Ok(())
    })
}

/// Implements the traits for maps and sets. Each row of the macro's input has the collection, the bounds of
/// its first parameter, the type of its elements, and the function that inserts an element and returns
/// whether it is new. A table grows by more than one element, so it asks for memory first.
macro_rules! collections {
    ($($collection:ident<$first:ident: $($bound:path),+ $(; $value:ident)?> $(with $hasher:ident)?
        of $element:ty, $insert:expr;)*) => {$(
        impl<$first: Encode $(, $value: Encode)? $(, $hasher)?> Encode for $collection<$first $(, $value)? $(, $hasher)?> {
            fn encode(&self, e: &mut Encoder<'_>) -> Result<(), Error> {
                encode_each(self.iter(), e)
            }
        }

        impl<'a, $first $(, $value)? $(, $hasher)?> Decode<'a> for $collection<$first $(, $value)? $(, $hasher)?>
        where
            $first: Decode<'a> $(+ $bound)+,
            $($value: Decode<'a>,)?
            $($hasher: BuildHasher + Default,)?
        {
            const MIN_SIZE: usize = 4;

            fn decode(d: &mut Decoder<'a>) -> Result<Self, Error> {
                let mut all = Self::default();
                let insert: fn(&mut Self, $element) -> Result<bool, TryReserveError> = $insert;
                decode_each(d, |element| insert(&mut all, element))?;
                Ok(all)
            }
        }

        impl<$first: Schema $(, $value: Schema)? $(, $hasher)?> Schema for $collection<$first $(, $value)? $(, $hasher)?> {
            fn schema(types: &mut Types) -> Type {
                list(<$element>::schema(types))
            }
        }
    )*};
}

collections! {
    BTreeMap<K: Ord; V> of (K, V), |map, (key, value)| Ok(map.insert(key, value).is_none());
    HashMap<K: Eq, Hash; V> with S of (K, V), |map, (key, value)| {
        map.try_reserve(1)?;
        Ok(map.insert(key, value).is_none())
    };
    BTreeSet<T: Ord> of T, |set, element| Ok(set.insert(element));
    HashSet<T: Eq, Hash> with S of T, |set, element| {
        set.try_reserve(1)?;
        Ok(set.insert(element))
    };
}

// Optional data, references and boxes.

impl<T: Encode> Encode for Option<T> {
    #[inline]
    fn encode(&self, e: &mut Encoder<'_>) -> Result<(), Error> {
        e.bool(self.is_some())?;
        match self {
            Some(value) => value.encode(e),
            None => Ok(()),
        }
    }
}

impl<'a, T: Decode<'a>> Decode<'a> for Option<T> {
    const MIN_SIZE: usize = 4;

    #[inline]
    fn decode(d: &mut Decoder<'a>) -> Result<Self, Error> {
        if !d.bool()? {
            return Ok(None);
        }
        T::decode(d).map(Some)
    }
}

impl<T: Schema> Schema for Option<T> {
    fn schema(types: &mut Types) -> Type {
        Type::Optional(Box::new(T::schema(types)))
    }
}

impl<T: Encode + ?Sized> Encode for &T {
    #[inline]
    fn encode(&self, e: &mut Encoder<'_>) -> Result<(), Error> {
        (**self).encode(e)
    }
}

impl<T: Schema + ?Sized> Schema for &T {
    fn schema(types: &mut Types) -> Type {
        T::schema(types)
    }
}

macro_rules! boxes {
    ($($owner:ident $decode:expr;)*) => {$(
        impl<T: Encode + ?Sized> Encode for $owner<T> {
            #[inline]
            fn encode(&self, e: &mut Encoder<'_>) -> Result<(), Error> {
                e.nested(|e| (**self).encode(e))
            }
        }

        impl<'a, T: Decode<'a>> Decode<'a> for $owner<T> {
            const MIN_SIZE: usize = T::MIN_SIZE;

            #[inline]
            fn decode(d: &mut Decoder<'a>) -> Result<Self, Error> {
                d.nested($decode)
            }
        }

        impl Decode<'_> for $owner<str> {
            const MIN_SIZE: usize = 4;

            fn decode(d: &mut Decoder<'_>) -> Result<Self, Error> {
                String::decode(d).map($owner::from)
            }
        }

        impl<'a, T: Decode<'a>> Decode<'a> for $owner<[T]> {
            const MIN_SIZE: usize = 4;

            fn decode(d: &mut Decoder<'a>) -> Result<Self, Error> {
                d.nested(|d| Vec::decode(d).map($owner::from))
            }
        }

        impl<T: Schema + ?Sized> Schema for $owner<T> {
            fn schema(types: &mut Types) -> Type {
                T::schema(types)
            }
        }
    )*};
}

fn charged<'a, T: Decode<'a>>(d: &mut Decoder<'a>) -> Result<T, Error> {
    d.charge(size_of::<T>())?;
    T::decode(d)
}

boxes! {
    Box T::decode_boxed;
    Rc |d| charged(d).map(Rc::new);
    Arc |d| charged(d).map(Arc::new);
}

// Tuples, and `()`.

macro_rules! tuples {
    ($(($($item:ident $index:tt),*))*) => {$(
        impl<$($item: Encode),*> Encode for ($($item,)*) {
            #[inline]
            fn encode(&self, e: &mut Encoder<'_>) -> Result<(), Error> {
                $(self.$index.encode(e).map_err(|error| error.in_field("", stringify!($index)))?;)*
                Ok(())
            }
        }

        impl<'a, $($item: Decode<'a>),*> Decode<'a> for ($($item,)*) {
            const MIN_SIZE: usize = 0 $(+ $item::MIN_SIZE)*;

            #[inline]
            fn decode(d: &mut Decoder<'a>) -> Result<Self, Error> {
                Ok(($(
                    $item::decode(d).map_err(|error| error.in_field("", stringify!($index)))?,
                )*))
            }
        }

        impl<$($item: Schema),*> Schema for ($($item,)*) {
            fn schema(types: &mut Types) -> Type {
                Type::Tuple(vec![$($item::schema(types)),*])
            }
        }
    )*};
}

tuples! {
    (A 0)
    (A 0, B 1)
    (A 0, B 1, C 2)
    (A 0, B 1, C 2, D 3)
    (A 0, B 1, C 2, D 3, E 4)
    (A 0, B 1, C 2, D 3, E 4, F 5)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11)
}

crossing! {
    (), 0, |_| Type::Void, |_, _| Ok(()), |_| Ok(());
}

impl<T: ?Sized> Encode for PhantomData<T> {
    fn encode(&self, _: &mut Encoder<'_>) -> Result<(), Error> {
        Ok(())
    }
}

impl<T: ?Sized> Decode<'_> for PhantomData<T> {
    fn decode(_: &mut Decoder<'_>) -> Result<Self, Error> {
        Ok(PhantomData)
    }
}

impl<T: ?Sized> Schema for PhantomData<T> {
    fn schema(_: &mut Types) -> Type {
        Type::Void
    }
}

/// A type whose values begin with a count of bytes or elements, so that `#[xdr(max = N)]` can limit the
/// count. An `Option` of a counted type is counted too.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no length that `max` could bound",
    note = "`max` goes with strings, opaque data, lists, sets and maps, and options of them"
)]
pub trait Counted {
    /// Returns the count of this value, if it has one.
    fn count(&self) -> Option<usize>;

    /// Returns the count with which `bytes` begin. `bytes` are an encoded value of this type.
    fn count_ahead(bytes: &[u8]) -> Option<u32> {
        bytes.first_chunk().map(|chunk| u32::from_be_bytes(*chunk))
    }
}

macro_rules! counted {
    ($(($($generic:tt)*) $type:ty;)*) => {$(
        impl<$($generic)*> Counted for $type {
            #[inline]
            fn count(&self) -> Option<usize> {
                Some(self.len())
            }
        }
    )*};
}

counted! {
    () str;
    () String;
    () Bytes;
    (T) [T];
    (T) Vec<T>;
    (K, V) BTreeMap<K, V>;
    (K, V, S) HashMap<K, V, S>;
    (T) BTreeSet<T>;
    (T, S) HashSet<T, S>;
}

macro_rules! counted_by_reference {
    ($(($($generic:tt)*) $type:ty;)*) => {$(
        impl<$($generic)*> Counted for $type {
            fn count(&self) -> Option<usize> {
                (**self).count()
            }

            fn count_ahead(bytes: &[u8]) -> Option<u32> {
                T::count_ahead(bytes)
            }
        }
    )*};
}

counted_by_reference! {
    (T: Counted + ?Sized) &T;
    (T: Counted + ?Sized) Box<T>;
    (T: Counted + ?Sized) Rc<T>;
    (T: Counted + ?Sized) Arc<T>;
    (T: Counted + ToOwned + ?Sized) Cow<'_, T>;
}

impl<T: Counted> Counted for Option<T> {
    fn count(&self) -> Option<usize> {
        self.as_ref().and_then(T::count)
    }

    fn count_ahead(bytes: &[u8]) -> Option<u32> {
        match bytes.split_first_chunk() {
            Some(([0, 0, 0, 0], _)) | None => None,
            Some((_, value)) => T::count_ahead(value),
        }
    }
}
