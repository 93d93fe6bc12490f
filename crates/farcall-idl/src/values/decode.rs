//! Decodes XDR into serde's data model: into a JSON value in memory, or directly into text.

use std::cell::RefCell;

use farcall_base::work;
use farcall_xdr::schema::{Arm, Body, Field, Type, Types};
use farcall_xdr::{self as xdr, Decode, Decoder, ErrorKind};
use serde_core::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use serde_json::{Number, Value, json};

use super::arms::ArmIndex;
use super::error::{Error, Path, UNDECLARED};
use super::{Form, MAX_DEPTH, encode::base64, form, nullable};

/// Decodes one value.
pub(super) struct Reader<'a> {
    types: &'a Types,
    /// Whether the value is kept in memory. Its parts are then charged against the memory limit.
    kept: bool,
    /// Whether integers of 64 bits become numbers, instead of strings of digits.
    numbers: bool,
    /// Is told the parts of the value, if there is one.
    watch: Option<&'a dyn Watch>,
    /// Why decoding has ended with an error. Serde's own error does not hold the reason.
    refusal: RefCell<Option<Error>>,
    /// The arms of the unions.
    arms: ArmIndex<'a>,
}

/// Receives the parts of a value in order.
pub(super) trait Watch {
    /// Receives a value that is neither an array nor an object.
    fn leaf(&self, value: &Value, at: &Path<'_>);
    /// Receives the choice of an arm, for the union at `at`. `place` is the index of the union in the table,
    /// `arm` the index of the arm, and `tag` the integer that selected it.
    fn variant(&self, place: u32, arm: usize, tag: i32, at: &Path<'_>);
}

/// For each item that is added to a vector, the memory of this many items is charged. The vector reserves up
/// to twice its items, and keeps its former buffer while it grows.
const GROWTH: usize = 3;

/// A part of a value. Serializing the part decodes it from the next bytes.
struct Part<'d, 'a, 'b> {
    reader: &'d Reader<'a>,
    form: PartForm<'a>,
    bytes: RefCell<&'d mut Decoder<'b>>,
    at: &'d Path<'d>,
}

#[derive(Clone, Copy)]
enum PartForm<'a> {
    Value(&'a Type),
    Fields(&'a [Field]),
    /// The default arm of a union: the union's index, the integer, then the fields.
    Other(u32, i32, &'a [Field]),
}

impl Serialize for Part<'_, '_, '_> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        let bytes = &mut **self.bytes.borrow_mut();
        match self.form {
            PartForm::Value(ty) => self.reader.value(ty, bytes, self.at, out),
            PartForm::Fields(fields) => self.reader.fields(fields, bytes, self.at, out),
            PartForm::Other(place, tag, fields) => {
                self.reader.other((place, tag), fields, bytes, self.at, out)
            }
        }
    }
}

impl<'a> Reader<'a> {
    pub(super) fn new(types: &'a Types, kept: bool, watch: Option<&'a dyn Watch>) -> Reader<'a> {
        Reader { types, kept, numbers: false, watch, refusal: RefCell::default(), arms: ArmIndex::default() }
    }

    /// Makes integers of 64 bits numbers.
    pub(super) fn with_numbers(self) -> Reader<'a> {
        Reader { numbers: true, ..self }
    }

    /// Returns why decoding has ended with an error, or `None` if the serializer itself has failed.
    pub(super) fn refusal(&self) -> Option<Error> {
        self.refusal.take()
    }

    /// Decodes to the end of a value without keeping it.
    pub(super) fn walk(&self, ty: &'a Type, bytes: &mut Decoder<'_>) -> Result<(), Error> {
        let mut nowhere = serde_json::Serializer::new(std::io::sink());
        let walked = self.value(ty, bytes, &Path::ROOT, &mut nowhere);
        walked.map_err(|why| self.refusal().unwrap_or_else(|| Path::ROOT.error(why.to_string())))
    }

    pub(super) fn value<S: Serializer>(
        &self,
        ty: &'a Type,
        bytes: &mut Decoder<'_>,
        at: &Path<'_>,
        out: S,
    ) -> Result<S::Ok, S::Error> {
        work::step();
        if at.depth >= MAX_DEPTH {
            return Err(self.refuse(at.error(format!("nested deeper than {MAX_DEPTH}"))));
        }
        // If nothing is kept, the charge limits the time, because a description can announce very many values
        // that take no bytes.
        self.charge(if self.kept { GROWTH * size_of::<Value>() } else { 8 }, bytes, at)?;
        match ty {
            Type::Array { size, element } => self.elements(element, *size as usize, bytes, at, out),
            Type::List { max, element } => {
                let count = bytes.count().and_then(|count| within(count, *max, bytes).map(|()| count));
                self.elements(element, self.wrap(count, at)?, bytes, at, out)
            }
            Type::Optional(inner) => match self.wrap(bytes.bool(), at)? {
                false => self.leaf(&Value::Null, at, out),
                true if nullable(self.types, inner) => {
                    let mut brackets = out.serialize_seq(None)?;
                    let part = PartForm::Value(inner);
                    brackets.serialize_element(&self.part(part, bytes, &at.index(0)))?;
                    brackets.end()
                }
                true => self.value(inner, bytes, &at.inside(), out),
            },
            Type::Chain(element) => {
                let mut list = out.serialize_seq(None)?;
                let mut index = 0;
                while self.wrap(bytes.bool(), at)? {
                    let part = PartForm::Value(element);
                    list.serialize_element(&self.part(part, bytes, &at.index(index)))?;
                    index += 1;
                }
                list.end()
            }
            Type::Tuple(parts) => self.positional(parts.iter(), bytes, at, out),
            Type::Named(place) => self.definition(*place, bytes, at, out),
            Type::I64 if self.numbers => self.leaf(&self.wrap(bytes.i64(), at)?.into(), at, out),
            Type::U64 if self.numbers => self.leaf(&self.wrap(bytes.u64(), at)?.into(), at, out),
            _ => match self.wrap(scalar(ty, bytes), at)? {
                Ok(value) => self.leaf(&value, at, out),
                // Some ONC RPC strings have an unknown encoding.
                Err(found) => {
                    let hex: String = found.iter().map(|byte| format!("{byte:02x}")).collect();
                    let value = json!({ "hex": hex });
                    self.watch.inspect(|watch| watch.leaf(&value["hex"], &at.field("hex")));
                    value.serialize(out)
                }
            },
        }
    }

    fn elements<S: Serializer>(
        &self,
        element: &'a Type,
        count: usize,
        bytes: &mut Decoder<'_>,
        at: &Path<'_>,
        out: S,
    ) -> Result<S::Ok, S::Error> {
        let mut list = out.serialize_seq(None)?;
        let (mut index, mut outcome) = (0, Ok(()));
        let done = bytes.elements(count, |bytes| {
            outcome = list.serialize_element(&self.part(PartForm::Value(element), bytes, &at.index(index)));
            index += 1;
            // This error stops serde. `outcome` has the reason.
            outcome.as_ref().copied().map_err(|_| bytes.error(ErrorKind::Invalid("".into())))
        });
        outcome?;
        self.wrap(done, at)?;
        list.end()
    }

    fn definition<S: Serializer>(
        &self,
        place: u32,
        bytes: &mut Decoder<'_>,
        at: &Path<'_>,
        out: S,
    ) -> Result<S::Ok, S::Error> {
        let Some(definition) = self.types.get(place) else {
            return Err(
                self.refuse(at.error("the interface's description refers to a type that it does not define"))
            );
        };
        match &definition.body {
            Body::Struct { fields, extensible: false } if fields.is_empty() => {
                self.charge_name(&definition.name, bytes, at)?;
                self.leaf(&definition.name.as_str().into(), at, out)
            }
            Body::Struct { fields, extensible: false } => self.fields(fields, bytes, at, out),
            Body::Struct { fields, extensible: true } => {
                self.wrap(bytes.sized(|bytes| Ok(self.named(fields, bytes, at, out))), at)?
            }
            Body::Union { arms } => self.union((place, &definition.name), arms, bytes, at, out),
        }
    }

    fn fields<S: Serializer>(
        &self,
        fields: &'a [Field],
        bytes: &mut Decoder<'_>,
        at: &Path<'_>,
        out: S,
    ) -> Result<S::Ok, S::Error> {
        match (form(fields), fields) {
            (Form::Single, [only]) => self.value(&only.ty, bytes, &at.inside(), out),
            (Form::Named, _) => self.named(fields, bytes, at, out),
            _ => self.positional(fields.iter().map(|field| &field.ty), bytes, at, out),
        }
    }

    /// Serializes the fields that are present as an object. An extensible struct may end before a field with
    /// a default.
    fn named<S: Serializer>(
        &self,
        fields: &'a [Field],
        bytes: &mut Decoder<'_>,
        at: &Path<'_>,
        out: S,
    ) -> Result<S::Ok, S::Error> {
        let mut object = out.serialize_map(None)?;
        for Field { name, ty, defaulted, .. } in fields {
            if *defaulted && bytes.remaining() == 0 {
                break;
            }
            self.charge_name(name, bytes, at)?;
            object.serialize_entry(name, &self.part(PartForm::Value(ty), bytes, &at.field(name)))?;
        }
        object.end()
    }

    /// Serializes values of these types, one after the other, as an array.
    fn positional<S: Serializer>(
        &self,
        types: impl Iterator<Item = &'a Type>,
        bytes: &mut Decoder<'_>,
        at: &Path<'_>,
        out: S,
    ) -> Result<S::Ok, S::Error> {
        let mut list = out.serialize_seq(None)?;
        for (index, ty) in types.enumerate() {
            list.serialize_element(&self.part(PartForm::Value(ty), bytes, &at.index(index)))?;
        }
        list.end()
    }

    fn union<S: Serializer>(
        &self,
        (place, of): (u32, &str),
        arms: &'a [Arm],
        bytes: &mut Decoder<'_>,
        at: &Path<'_>,
        out: S,
    ) -> Result<S::Ok, S::Error> {
        if arms.is_empty() {
            return Err(self.refuse(at.error(UNDECLARED)));
        }
        let tag = self.wrap(bytes.i32(), at)?;
        let exact = self.arms.by_tag(place, arms, Some(tag));
        let Some(index) = exact.or_else(|| self.arms.by_tag(place, arms, None)) else {
            let why = format!("at byte {}: {tag} is not a variant of {of}", bytes.offset());
            return Err(self.refuse(at.error(why)));
        };
        let Arm { name, tag: label, fields, .. } = &arms[index];
        self.charge_name(name, bytes, at)?;
        self.watch.inspect(|watch| watch.variant(place, index, tag, at));
        let form = match label {
            Some(_) if fields.is_empty() => return self.leaf(&name.as_str().into(), at, out),
            Some(_) => PartForm::Fields(fields),
            None => PartForm::Other(place, tag, fields),
        };
        let mut object = out.serialize_map(Some(1))?;
        object.serialize_entry(name, &self.part(form, bytes, &at.field(name)))?;
        object.end()
    }

    fn other<S: Serializer>(
        &self,
        (place, tag): (u32, i32),
        fields: &'a [Field],
        bytes: &mut Decoder<'_>,
        at: &Path<'_>,
        out: S,
    ) -> Result<S::Ok, S::Error> {
        let mut list = out.serialize_seq(None)?;
        let value = match self.types.other_name(place, tag) {
            Some(name) => {
                self.charge_name(name, bytes, at)?;
                name.into()
            }
            None => Value::from(tag),
        };
        self.watch.inspect(|watch| watch.leaf(&value, &at.index(0)));
        list.serialize_element(&value)?;
        if !fields.is_empty() {
            // The brackets in JSON do not count as a level of the type.
            let mut inner = at.index(1);
            inner.depth = at.depth;
            list.serialize_element(&self.part(PartForm::Fields(fields), bytes, &inner))?;
        }
        list.end()
    }

    fn part<'d, 'b>(
        &'d self,
        form: PartForm<'a>,
        bytes: &'d mut Decoder<'b>,
        at: &'d Path<'d>,
    ) -> Part<'d, 'a, 'b> {
        Part { reader: self, form, bytes: RefCell::new(bytes), at }
    }

    fn leaf<S: Serializer>(&self, value: &Value, at: &Path<'_>, out: S) -> Result<S::Ok, S::Error> {
        self.watch.inspect(|watch| watch.leaf(value, at));
        value.serialize(out)
    }

    /// Charges the memory for a name from the description, its entry in a map and its index.
    fn charge_name<E: serde_core::ser::Error>(
        &self,
        name: &str,
        bytes: &mut Decoder<'_>,
        at: &Path<'_>,
    ) -> Result<(), E> {
        let entry = GROWTH * (size_of::<String>() + 2 * size_of::<usize>());
        self.charge(if self.kept { entry + name.len() } else { 0 }, bytes, at)
    }

    fn charge<E: serde_core::ser::Error>(
        &self,
        cost: usize,
        bytes: &mut Decoder<'_>,
        at: &Path<'_>,
    ) -> Result<(), E> {
        self.wrap(bytes.charge(cost), at)
    }

    fn wrap<T, E: serde_core::ser::Error>(
        &self,
        result: Result<T, xdr::Error>,
        at: &Path<'_>,
    ) -> Result<T, E> {
        result.map_err(|why| self.refuse(at.error(why.to_string())))
    }

    /// Ends decoding for this reason.
    fn refuse<E: serde_core::ser::Error>(&self, why: Error) -> E {
        self.refusal.replace(Some(why));
        E::custom("refused")
    }
}

/// Decodes a value without parts. Returns the bytes of a string that is not UTF-8 as an error.
fn scalar<'b>(ty: &Type, bytes: &mut Decoder<'b>) -> Result<Result<Value, &'b [u8]>, xdr::Error> {
    Ok(Ok(match ty {
        Type::Bool => bytes.bool()?.into(),
        Type::I8 => i8::decode(bytes)?.into(),
        Type::I16 => i16::decode(bytes)?.into(),
        Type::I32 => bytes.i32()?.into(),
        Type::I64 => bytes.i64()?.to_string().into(),
        Type::U8 => u8::decode(bytes)?.into(),
        Type::U16 => u16::decode(bytes)?.into(),
        Type::U32 => bytes.u32()?.into(),
        Type::U64 => bytes.u64()?.to_string().into(),
        Type::F32 => float(shortest(bytes.f32()?)),
        Type::F64 => float(bytes.f64()?),
        Type::Opaque { size } => base64(bytes.opaque(*size as usize)?).into(),
        Type::Bytes { max } => base64(limited(bytes, *max)?).into(),
        Type::String { max } => {
            let found = limited(bytes, *max)?;
            return Ok(std::str::from_utf8(found).map(Value::from).map_err(|_| found));
        }
        _ => Value::Null,
    }))
}

/// Reads the length and then the bytes, at most `max`.
fn limited<'b>(bytes: &mut Decoder<'b>, max: u32) -> Result<&'b [u8], xdr::Error> {
    let found = bytes.bytes()?;
    within(found.len(), max, bytes)?;
    Ok(found)
}

fn float(number: f64) -> Value {
    match Number::from_f64(number) {
        Some(number) => number.into(),
        None if number.is_nan() => "NaN".into(),
        None if number > 0.0 => "Infinity".into(),
        None => "-Infinity".into(),
    }
}

/// Returns the number that people would write for the value: 0.1, not 0.10000000149011612.
fn shortest(number: f32) -> f64 {
    number.to_string().parse().unwrap_or(number.into())
}

fn within(length: usize, max: u32, bytes: &Decoder<'_>) -> Result<(), xdr::Error> {
    if length > max as usize {
        return Err(bytes.error(ErrorKind::TooLong { length, max }));
    }
    Ok(())
}
