//! Descriptions of wire types, which cross the wire themselves, and their fingerprints.
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

pub use fingerprint::{fingerprint, name_hash};

use std::collections::BTreeMap;

use crate::Error;

/// A wire type. Structs and unions stand in a table, [`Types`], so that types can contain themselves.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// Nothing (RFC 4506 section 4.16).
    Void,
    /// A boolean (4.4).
    Bool,
    /// An integer (4.1) of 8 bits.
    I8,
    /// An integer (4.1) of 16 bits.
    I16,
    /// An integer (4.1).
    I32,
    /// A hyper integer (4.5).
    I64,
    /// An unsigned integer (4.2) of 8 bits.
    U8,
    /// An unsigned integer (4.2) of 16 bits.
    U16,
    /// An unsigned integer (4.2).
    U32,
    /// An unsigned hyper integer (4.5).
    U64,
    /// A floating-point number (4.6).
    F32,
    /// A double-precision floating-point number (4.7).
    F64,
    /// Opaque data of a known length (4.9).
    Opaque {
        /// Its length in bytes.
        size: u32,
    },
    /// Opaque data that tells its length (4.10).
    Bytes {
        /// The most bytes.
        max: u32,
    },
    /// A string (4.11).
    String {
        /// The most bytes.
        max: u32,
    },
    /// An array of a known length (4.12).
    Array {
        /// The number of elements.
        size: u32,
        /// The type of each.
        element: Box<Type>,
    },
    /// An array that tells its length (4.13); also a set, and as a list of pairs a map.
    List {
        /// The most elements.
        max: u32,
        /// The type of each.
        element: Box<Type>,
    },
    /// Optional data (4.19).
    Optional(Box<Type>),
    /// A linked list: optional data (4.19) whose last part is again such, as many times as there are
    /// elements.
    Chain(Box<Type>),
    /// A struct without names (4.14).
    Tuple(Vec<Type>),
    /// The struct or union at this place of the table.
    Named(u32),
}

impl Type {
    /// The same type, with the declared maximum of its length, or that of its content if it is
    /// optional; other types are left as they are.
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

/// A struct or a union, as it was declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// The type's name; several may have the same.
    pub name: String,
    /// Its documentation, in Markdown.
    pub docs: String,
    /// What it consists of.
    pub body: Body,
}

/// What a [`Definition`] consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// A struct (RFC 4506 section 4.14): the fields in order.
    Struct {
        /// The fields; those of a tuple struct are named `0`, `1` and so on.
        fields: Vec<Field>,
        /// Whether the fields are preceded by their length in bytes, so that more may follow some day.
        extensible: bool,
    },
    /// A discriminated union (section 4.15): an integer, and what belongs to it. An enumeration
    /// (section 4.3) is one whose arms are all without fields.
    Union {
        /// The arms.
        arms: Vec<Arm>,
    },
}

/// A field of a struct, or of a union's arm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Its documentation.
    pub docs: String,
    /// Its type.
    pub ty: Type,
    /// Whether the struct may end before it (in extensible structs only).
    pub defaulted: bool,
}

/// An arm of a union, or a constant of an enumeration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arm {
    /// Its name.
    pub name: String,
    /// Its documentation.
    pub docs: String,
    /// The integer that selects it; none if it is selected by all integers that no other arm has.
    pub tag: Option<i32>,
    /// What follows the integer.
    pub fields: Vec<Field>,
}

/// The table of structs and unions that some types refer to.
#[derive(Clone, Debug, Default)]
pub struct Types {
    definitions: Vec<Definition>,
    /// The place of each definition that was entered here rather than decoded.
    places: BTreeMap<String, u32>,
    /// Of unions, by place: names of the integers that select the arm of all others.
    others: BTreeMap<u32, Vec<(i32, String)>>,
}

impl PartialEq for Types {
    fn eq(&self, other: &Self) -> bool {
        self.definitions == other.definitions
    }
}

impl Eq for Types {}

impl Types {
    /// An empty table.
    pub fn new() -> Types {
        Types::default()
    }

    /// The type of the definition that is known by `key`; if there is none yet, `body` makes it, and
    /// may refer to the same key.
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
        // A program does not have four billion types.
        self.places.insert(key.to_owned(), place as u32);
        let body = body(self);
        self.definitions[place].body = body;
        Type::Named(place as u32)
    }

    /// The place of the type that was defined by that key.
    pub fn place(&self, key: &str) -> Option<u32> {
        self.places.get(key).copied()
    }

    /// Says what the integers are called that select the arm of all others in the union at `place`, as the
    /// enumeration does that it switches on. Tools show them so; they are no part of the description, and are
    /// neither compared nor sent.
    pub fn name_others(&mut self, place: u32, names: impl FnOnce() -> Vec<(i32, String)>) {
        self.others.entry(place).or_insert_with(names);
    }

    /// What such an integer is called, if it was said.
    pub fn other_name(&self, place: u32, tag: i32) -> Option<&str> {
        let names = self.others.get(&place)?;
        names.iter().find(|(value, _)| *value == tag).map(|(_, name)| name.as_str())
    }

    /// The integer that is called so.
    pub fn other_tag(&self, place: u32, name: &str) -> Option<i32> {
        let names = self.others.get(&place)?;
        names.iter().find(|(_, known)| known == name).map(|(value, _)| *value)
    }

    /// The definition at `place`, where [`Type::Named`] refers to it.
    pub fn get(&self, place: u32) -> Option<&Definition> {
        self.definitions.get(place as usize)
    }

    /// All definitions, by place.
    pub fn definitions(&self) -> &[Definition] {
        &self.definitions
    }

    /// Makes sure that the table and `roots` can be walked safely.
    ///
    /// A decoded table has been checked; types that stand beside it have not. After the check every place
    /// exists, and a walk over the parts that a value always has (fields, elements of fixed arrays) goes
    /// at most 128 types deep, and meets few parts of no bytes. Options, lists and unions end such a
    /// walk: what is in them is entered by [`Decoder::nested`](crate::Decoder::nested)
    /// or [`Decoder::elements`](crate::Decoder::elements), at the cost of four bytes of the value.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid), saying what cannot be walked.
    pub fn check(&self, roots: &[Type]) -> Result<(), Error> {
        check::check(self, roots)
    }
}

/// A field of a definition.
#[doc(hidden)]
pub fn field(name: &str, docs: &str, ty: Type, defaulted: bool) -> Field {
    Field { name: name.into(), docs: docs.into(), ty, defaulted }
}

/// An arm of a definition.
#[doc(hidden)]
pub fn arm(name: &str, docs: &str, tag: Option<i32>, fields: Vec<Field>) -> Arm {
    Arm { name: name.into(), docs: docs.into(), tag, fields }
}
