//! Describes wire types, and computes fingerprints of them. Programs also send such descriptions to each
//! other.
//!
//! ```
//! use farcall_xdr::{Schema, schema::{Type, Types, fingerprint}};
//! let mut types = Types::default();
//! let list = Vec::<u32>::schema(&mut types);
//! assert_eq!(list, Type::List { max: u32::MAX, element: Box::new(Type::U32) });
//! assert_ne!(fingerprint(&types, &[list]), fingerprint(&types, &[Type::U32]));
//! ```

mod check;
mod fingerprint;
mod wire;

pub use fingerprint::{TypeHashes, fingerprint, name_hash};

use std::collections::BTreeMap;

use crate::Error;

/// A wire type, with its section of RFC 4506. Structs and unions are kept in a table, [`Types`], so that a
/// type can contain itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// No value at all (section 4.16).
    Void,
    /// A boolean (section 4.4).
    Bool,
    /// A signed integer of 8 bits, encoded as an integer (section 4.1).
    I8,
    /// A signed integer of 16 bits, encoded as an integer (section 4.1).
    I16,
    /// A signed integer of 32 bits (section 4.1).
    I32,
    /// A signed integer of 64 bits, a hyper integer (section 4.5).
    I64,
    /// An unsigned integer of 8 bits, encoded as an unsigned integer (section 4.2).
    U8,
    /// An unsigned integer of 16 bits, encoded as an unsigned integer (section 4.2).
    U16,
    /// An unsigned integer of 32 bits (section 4.2).
    U32,
    /// An unsigned integer of 64 bits, an unsigned hyper integer (section 4.5).
    U64,
    /// A floating-point number of 32 bits (section 4.6).
    F32,
    /// A floating-point number of 64 bits, a double (section 4.7).
    F64,
    /// Opaque data of a fixed length (section 4.9).
    Opaque {
        /// The length in bytes.
        size: u32,
    },
    /// Opaque data of a variable length (section 4.10). The length comes before the data.
    Bytes {
        /// The declared maximum of the length, in bytes.
        max: u32,
    },
    /// A string (section 4.11).
    String {
        /// The declared maximum of the length, in bytes.
        max: u32,
    },
    /// An array of a fixed length (section 4.12).
    Array {
        /// The number of elements.
        size: u32,
        /// The type of each element.
        element: Box<Type>,
    },
    /// An array of a variable length (section 4.13). A set is sent as an array of its elements, a map as an
    /// array of pairs.
    List {
        /// The declared maximum of the number of elements.
        max: u32,
        /// The type of each element.
        element: Box<Type>,
    },
    /// Optional data (section 4.19).
    Optional(Box<Type>),
    /// A linked list: an integer 1 before each element, and an integer 0 at the end. In RFC 4506 a linked
    /// list is optional data (section 4.19): a struct whose last field is again optional data of the same
    /// type.
    Chain(Box<Type>),
    /// A struct (section 4.14) without a name, whose fields have no names.
    Tuple(Vec<Type>),
    /// The struct or union at this index of the table.
    Named(u32),
}

impl Type {
    /// Returns the type with the declared maximum `bound`. In optional data, the content gets the maximum. A
    /// smaller maximum stays as it is, and so does a type without a length.
    pub fn bounded(self, bound: u32) -> Type {
        match self {
            Type::Bytes { max } => Type::Bytes { max: max.min(bound) },
            Type::String { max } => Type::String { max: max.min(bound) },
            Type::List { max, element } => Type::List { max: max.min(bound), element },
            Type::Optional(inner) => Type::Optional(Box::new(inner.bounded(bound))),
            other => other,
        }
    }
}

/// A struct or a union as its source declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// The type's name. Several definitions can have the same name.
    pub name: String,
    /// The type's documentation, in Markdown.
    pub docs: String,
    /// The fields of the struct, or the arms of the union.
    pub body: Body,
}

/// The content of a [`Definition`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// A struct (RFC 4506 section 4.14).
    Struct {
        /// The fields in the order in which they are encoded. The fields of a tuple struct are named `0`, `1`
        /// and so on.
        fields: Vec<Field>,
        /// Whether the length of all fields, in bytes, comes before them, so that a later version can add
        /// fields.
        extensible: bool,
    },
    /// A discriminated union (section 4.15): an integer, then the fields of the arm that the integer selects.
    /// If no arm has fields, the union is an enumeration (section 4.3).
    Union {
        /// The arms in the order of their declaration.
        arms: Vec<Arm>,
    },
}

/// A field of a struct, or of a union's arm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// The field's name.
    pub name: String,
    /// The field's documentation, in Markdown.
    pub docs: String,
    /// The field's type.
    pub ty: Type,
    /// Whether a value can end before the field. This is possible only in extensible structs.
    pub defaulted: bool,
}

/// An arm of a union, or a constant of an enumeration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arm {
    /// The arm's name.
    pub name: String,
    /// The arm's documentation, in Markdown.
    pub docs: String,
    /// The integer that selects the arm. `None` marks the default arm, which all integers without an arm of
    /// their own select.
    pub tag: Option<i32>,
    /// The fields that follow the integer.
    pub fields: Vec<Field>,
}

/// A table of structs and unions. [`Type::Named`] refers to them by their index.
#[derive(Clone, Debug, Default)]
pub struct Types {
    definitions: Vec<Definition>,
    /// The index of each definition by its key. Decoded definitions have no key.
    places: BTreeMap<String, u32>,
    /// For unions with a default arm, by index: the names of integers that select the default arm.
    others: BTreeMap<u32, OtherNames>,
}

/// Integers that select the default arm of a union, and their names.
#[derive(Clone, Debug, Default)]
struct OtherNames {
    names: BTreeMap<i32, String>,
    tags: BTreeMap<String, i32>,
}

impl PartialEq for Types {
    fn eq(&self, other: &Self) -> bool {
        self.definitions == other.definitions
    }
}

impl Eq for Types {}

impl Types {
    /// Returns an empty table.
    pub fn new() -> Types {
        Types::default()
    }

    /// Returns the type of the definition with this key. If the table has none, `body` makes the definition;
    /// `body` can itself use the key, for a type that contains itself.
    pub fn define(
        &mut self,
        key: &str,
        name: impl Into<String>,
        docs: impl Into<String>,
        body: impl FnOnce(&mut Types) -> Body,
    ) -> Type {
        if let Some(place) = self.places.get(key) {
            return Type::Named(*place);
        }
        let place = self.definitions.len();
        let nothing = Body::Union { arms: Vec::new() };
        let definition = Definition { name: name.into(), docs: docs.into(), body: nothing };
        self.definitions.push(definition);
        // The index fits, because a program has fewer than 2^32 types.
        self.places.insert(key.to_owned(), place as u32);
        let body = body(self);
        self.definitions[place].body = body;
        Type::Named(place as u32)
    }

    /// Returns the index of the definition with this key.
    pub fn place(&self, key: &str) -> Option<u32> {
        self.places.get(key).copied()
    }

    /// Gives names to integers that select the default arm of the union at `place`. The names come from the
    /// enumeration that is the union's discriminant. Tools show the names. They are not part of the
    /// description: fingerprints ignore them, and they are not sent.
    pub fn name_others(&mut self, place: u32, names: impl FnOnce() -> Vec<(i32, String)>) {
        self.others.entry(place).or_insert_with(|| {
            let mut others = OtherNames::default();
            for (tag, name) in names() {
                others.names.entry(tag).or_insert_with(|| name.clone());
                others.tags.entry(name).or_insert(tag);
            }
            others
        });
    }

    /// Returns the name of the integer `tag`, which selects the default arm of the union at `place`, if the
    /// integer has one.
    pub fn other_name(&self, place: u32, tag: i32) -> Option<&str> {
        self.others.get(&place)?.names.get(&tag).map(String::as_str)
    }

    /// Returns the integer of this name, which selects the default arm of the union at `place`.
    pub fn other_tag(&self, place: u32, name: &str) -> Option<i32> {
        self.others.get(&place)?.tags.get(name).copied()
    }

    /// Returns the definition at the index `place`, to which [`Type::Named`] refers.
    pub fn get(&self, place: u32) -> Option<&Definition> {
        self.definitions.get(place as usize)
    }

    /// Returns all definitions in the order of their indexes.
    pub fn definitions(&self) -> &[Definition] {
        &self.definitions
    }

    /// Checks that a program can walk the table and `roots` without endless recursion or excessive work.
    ///
    /// The decoder of a table does this check. Types outside of the table need their own check. After the
    /// check, every index exists. A walk over the parts that every value has (fields, elements of fixed
    /// arrays) is at most 128 types deep, and meets only a bounded number of parts that take no bytes.
    /// Optional data, lists and unions end this walk: their content is decoded within
    /// [`Decoder::nested`](crate::Decoder::nested) or [`Decoder::elements`](crate::Decoder::elements), and
    /// takes at least four bytes.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) with the reason.
    pub fn check(&self, roots: &[Type]) -> Result<(), Error> {
        check::check(self, roots)
    }
}

/// Returns a field of a definition.
#[doc(hidden)]
pub fn field(name: &str, docs: &str, ty: Type, defaulted: bool) -> Field {
    Field { name: name.into(), docs: docs.into(), ty, defaulted }
}

/// Returns an arm of a definition.
#[doc(hidden)]
pub fn arm(name: &str, docs: &str, tag: Option<i32>, fields: Vec<Field>) -> Arm {
    Arm { name: name.into(), docs: docs.into(), tag, fields }
}
