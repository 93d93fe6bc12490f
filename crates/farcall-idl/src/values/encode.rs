//! Encodes JSON as XDR.

use std::borrow::Cow;
use std::collections::HashSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use farcall_base::work;
use farcall_xdr::schema::{Arm, Body, Field, Type, Types};
use farcall_xdr::{self as xdr, Encode, Encoder};
use serde_json::{Map, Value};

use super::arms::ArmIndex;
use super::error::{Error, Path, UNDECLARED};
use super::{Files, Form, MAX_DEPTH, form, names, nullable};
use crate::spell;

/// The base64 format that values may have. The padding may be missing, because people write base64 by hand.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Encodes values, and accepts further forms of them as [`Settings`](super::Settings) permit.
pub(super) struct Writer<'a> {
    pub(super) types: &'a Types,
    /// A description of the same types with other names, which are accepted too.
    pub(super) also: Option<&'a Types>,
    /// Reads the file NAME for opaque bytes that are written as `"@NAME"`.
    pub(super) files: Option<Files<'a>>,
    /// The arms of unions of `types`, and of those of `also`.
    pub(super) arms: [ArmIndex<'a>; 2],
}

type Done = Result<(), Error>;

impl<'a> Writer<'a> {
    pub(super) fn value(&self, ty: &'a Type, value: &Value, out: &mut Encoder<'_>, at: &Path<'_>) -> Done {
        work::step();
        if at.depth >= MAX_DEPTH {
            return Err(at.error(format!("nested deeper than {MAX_DEPTH}")));
        }
        let wrap = |done| wrap(done, at);
        match ty {
            Type::Void if value.is_null() => Ok(()),
            Type::Bool => wrap(value.as_bool().ok_or_else(|| self.mismatch(ty, value, at))?.encode(out)),
            Type::I8 => wrap(self.integer::<i8>(ty, value, at)?.encode(out)),
            Type::I16 => wrap(self.integer::<i16>(ty, value, at)?.encode(out)),
            Type::I32 => wrap(self.integer::<i32>(ty, value, at)?.encode(out)),
            Type::I64 => wrap(self.integer::<i64>(ty, value, at)?.encode(out)),
            Type::U8 => wrap(self.integer::<u8>(ty, value, at)?.encode(out)),
            Type::U16 => wrap(self.integer::<u16>(ty, value, at)?.encode(out)),
            Type::U32 => wrap(self.integer::<u32>(ty, value, at)?.encode(out)),
            Type::U64 => wrap(self.integer::<u64>(ty, value, at)?.encode(out)),
            Type::F32 => wrap(self.single(ty, value, at)?.encode(out)),
            Type::F64 => wrap(self.double(ty, value, at)?.encode(out)),
            Type::Opaque { size } => {
                let bytes = self.bytes(ty, value, at)?;
                if bytes.len() != *size as usize {
                    return Err(at.error(format!("expected {size} bytes, found {}", bytes.len())));
                }
                wrap(out.opaque(&bytes))
            }
            Type::Bytes { max } => {
                let bytes = self.bytes(ty, value, at)?;
                at_most(bytes.len(), *max, at)?;
                wrap(out.bytes(&bytes))
            }
            Type::String { max } => {
                // A string may also be written as bytes, because not every string is UTF-8.
                let text = match value {
                    Value::String(text) => Cow::Borrowed(text.as_bytes()),
                    value => Cow::Owned(self.bytes(ty, value, at)?),
                };
                at_most(text.len(), *max, at)?;
                wrap(out.bytes(&text))
            }
            Type::Array { size, element } => {
                let elements = std::iter::repeat_n(&**element, *size as usize);
                self.each(elements, *size as usize, self.items(ty, value, at)?, out, at)
            }
            Type::List { max, element } => {
                let items = self.items(ty, value, at)?;
                at_most(items.len(), *max, at)?;
                wrap(out.count(items.len()))?;
                self.each(std::iter::repeat_n(&**element, items.len()), 0, items, out, at)
            }
            Type::Optional(inner) => {
                wrap((!value.is_null()).encode(out))?;
                self.optional(inner, value, out, at)
            }
            Type::Chain(element) => {
                for (index, item) in self.items(ty, value, at)?.iter().enumerate() {
                    wrap(true.encode(out))?;
                    self.value(element, item, out, &at.index(index))?;
                }
                wrap(false.encode(out))
            }
            Type::Tuple(parts) => self.each(parts.iter(), parts.len(), self.items(ty, value, at)?, out, at),
            Type::Named(place) => self.definition(*place, value, out, at),
            Type::Void => Err(self.mismatch(ty, value, at)),
        }
    }

    /// Returns the error for a value that does not have this type: `expected string<>, found 7`.
    fn mismatch(&self, ty: &Type, value: &Value, at: &Path<'_>) -> Error {
        at.error(format!("expected {}, found {}", spell(self.types, ty), brief(value)))
    }

    fn integer<T: TryFrom<i128>>(&self, ty: &Type, value: &Value, at: &Path<'_>) -> Result<T, Error> {
        let number = match value {
            Value::Number(number) => number.as_i128(),
            Value::String(digits) => digits.parse().ok(),
            _ => None,
        };
        number.and_then(|number| T::try_from(number).ok()).ok_or_else(|| self.mismatch(ty, value, at))
    }

    fn double(&self, ty: &Type, value: &Value, at: &Path<'_>) -> Result<f64, Error> {
        let number = match value {
            Value::Number(number) => number.as_f64(),
            Value::String(word) => match word.as_str() {
                "NaN" => Some(f64::NAN),
                "Infinity" => Some(f64::INFINITY),
                "-Infinity" => Some(f64::NEG_INFINITY),
                _ => None,
            },
            _ => None,
        };
        number.ok_or_else(|| self.mismatch(ty, value, at))
    }

    /// Returns the nearest `f32`, or an error if a finite number rounds to infinity.
    fn single(&self, ty: &Type, value: &Value, at: &Path<'_>) -> Result<f32, Error> {
        let number = self.double(ty, value, at)?;
        let rounded = number as f32;
        if rounded.is_infinite() && number.is_finite() {
            return Err(self.mismatch(ty, value, at));
        }
        Ok(rounded)
    }

    fn bytes(&self, ty: &Type, value: &Value, at: &Path<'_>) -> Result<Vec<u8>, Error> {
        let only = |map: &Map<String, Value>, key: &str| match map.len() {
            1 => map.get(key).and_then(Value::as_str).map(str::to_owned),
            _ => None,
        };
        match (value, self.files) {
            (Value::String(text), Some(files)) if text.starts_with('@') => {
                files(&text[1..]).map_err(|why| at.error(why))
            }
            (Value::String(text), _) => BASE64
                .decode(text)
                .map_err(|why| at.error(format!("not base64 ({why}); write base64 or {{\"hex\": \"…\"}}"))),
            (Value::Object(map), _) => match (only(map, "hex"), only(map, "text")) {
                (Some(digits), _) => {
                    hex(&digits).ok_or_else(|| at.field("hex").error("not pairs of hexadecimal digits"))
                }
                (_, Some(text)) => Ok(text.into_bytes()),
                _ => Err(self.mismatch(ty, value, at)),
            },
            _ => Err(self.mismatch(ty, value, at)),
        }
    }

    /// Returns the elements of a JSON array.
    fn items<'v>(&self, ty: &Type, value: &'v Value, at: &Path<'_>) -> Result<&'v [Value], Error> {
        value.as_array().map(Vec::as_slice).ok_or_else(|| self.mismatch(ty, value, at))
    }

    /// Encodes each item as the type at the same position. Items after the first `needed` may be missing.
    fn each(
        &self,
        types: impl ExactSizeIterator<Item = &'a Type>,
        needed: usize,
        items: &[Value],
        out: &mut Encoder<'_>,
        at: &Path<'_>,
    ) -> Done {
        if items.len() < needed || items.len() > types.len() {
            return Err(at.error(format!("expected {} elements, found {}", types.len(), items.len())));
        }
        let mut both = types.zip(items).enumerate();
        both.try_for_each(|(index, (ty, item))| self.value(ty, item, out, &at.index(index)))
    }

    fn optional(&self, inner: &'a Type, value: &Value, out: &mut Encoder<'_>, at: &Path<'_>) -> Done {
        if value.is_null() {
            return Ok(());
        }
        if !nullable(self.types, inner) {
            return self.value(inner, value, out, &at.inside());
        }
        match value.as_array().map(Vec::as_slice) {
            Some([value]) => self.value(inner, value, out, &at.index(0)),
            _ => Err(at.error(
                "write the optional value in brackets, as [value], because the value itself may be null",
            )),
        }
    }

    fn definition(&self, place: u32, value: &Value, out: &mut Encoder<'_>, at: &Path<'_>) -> Done {
        let Some(definition) = self.types.get(place) else {
            return Err(at.error("the interface's description refers to a type that it does not define"));
        };
        let also = self.also.and_then(|also| also.get(place));
        let other = match also.map(|also| &also.body) {
            Some(Body::Struct { fields, .. }) => fields.as_slice(),
            _ => &[],
        };
        let is_name = |name: &String| *value == name.as_str();
        match &definition.body {
            Body::Struct { fields, extensible: false }
                if fields.is_empty()
                    && (is_name(&definition.name) || also.is_some_and(|also| is_name(&also.name))) =>
            {
                Ok(())
            }
            Body::Struct { fields, extensible: false } => self.fields(fields, other, value, out, at),
            Body::Struct { fields, extensible: true } => {
                let mut outcome = Ok(());
                let done = out.sized(|out| {
                    outcome = self.fields(fields, other, value, out, at);
                    Ok(())
                });
                outcome.and_then(|()| wrap(done, at))
            }
            Body::Union { arms } => self.union(place, arms, value, out, at),
        }
    }

    /// Encodes the fields of a struct or a variant. `other` has the same fields under other names, or is
    /// empty.
    fn fields(
        &self,
        fields: &'a [Field],
        other: &[Field],
        value: &Value,
        out: &mut Encoder<'_>,
        at: &Path<'_>,
    ) -> Done {
        match (form(fields), fields) {
            (Form::Named, _) => self.named(fields, other, value, out, at),
            (Form::Single, [only]) => self.value(&only.ty, value, out, &at.inside()),
            _ => self.positional(fields, value, out, at),
        }
    }

    /// Encodes an object with a member for each field. The members for optional fields and for trailing
    /// fields with defaults may be missing.
    pub(super) fn named(
        &self,
        fields: &'a [Field],
        other: &[Field],
        value: &Value,
        out: &mut Encoder<'_>,
        at: &Path<'_>,
    ) -> Done {
        let none = Map::new();
        let members = match value {
            Value::Object(members) => members,
            Value::Null if fields.is_empty() => &none,
            _ => {
                let expected = format!("expected an object with {}", expected(fields));
                return Err(at.error(format!("{expected}, found {}", brief(value))));
            }
        };
        // A member has its field's own name or its other name. An other name that is also the own name of a
        // field stands for the latter.
        work::steps(fields.len() + other.len() + members.len());
        let own: HashSet<&str> = fields.iter().map(|field| field.name.as_str()).collect();
        let others: HashSet<&str> = other.iter().map(|field| field.name.as_str()).collect();
        let is_own = |name: &str| own.contains(name);
        let member = |index: usize, field: &Field| {
            let by_other = || other.get(index).filter(|other| !is_own(&other.name));
            members.get(&field.name).or_else(|| members.get(&by_other()?.name))
        };
        for (field, other) in fields.iter().zip(other).filter(|(_, other)| !is_own(&other.name)) {
            if members.contains_key(&field.name) && members.contains_key(&other.name) {
                return Err(at.error(format!(
                    "{} and {} name the same field; write only one of them",
                    field.name, other.name
                )));
            }
        }
        let is_known = |name: &str| is_own(name) || others.contains(name);
        if let Some(unknown) = members.keys().find(|key| !is_known(key)) {
            return Err(at.error(format!("there is no field {unknown:?}; expected {}", expected(fields))));
        }
        for (index, field) in fields.iter().enumerate() {
            let at = at.field(&field.name);
            match member(index, field) {
                Some(value) => self.value(&field.ty, value, out, &at)?,
                None if matches!(field.ty, Type::Optional(_)) && !field.defaulted => {
                    self.value(&field.ty, &Value::Null, out, &at)?;
                }
                None if (index..)
                    .zip(&fields[index..])
                    .all(|(at, field)| field.defaulted && member(at, field).is_none()) =>
                {
                    return Ok(());
                }
                None => {
                    return Err(at.error(format!("missing; expected {}", spell(self.types, &field.ty))));
                }
            }
        }
        Ok(())
    }

    /// Encodes an array with an element for each field. Trailing fields with defaults may have none.
    pub(super) fn positional(
        &self,
        fields: &'a [Field],
        value: &Value,
        out: &mut Encoder<'_>,
        at: &Path<'_>,
    ) -> Done {
        let Some(items) = value.as_array() else {
            let expected = format!("expected an array of {} elements", fields.len());
            return Err(at.error(format!("{expected}, found {}", brief(value))));
        };
        let needed = fields.iter().filter(|field| !field.defaulted).count();
        self.each(fields.iter().map(|field| &field.ty), needed, items, out, at)
    }

    fn union(
        &self,
        place: u32,
        arms: &'a [Arm],
        value: &Value,
        out: &mut Encoder<'_>,
        at: &Path<'_>,
    ) -> Done {
        if arms.is_empty() {
            return Err(at.error(UNDECLARED));
        }
        let none = Value::Null;
        let digits;
        let (name, content) = match value {
            Value::String(name) => (name, &none),
            Value::Number(number) => {
                digits = number.to_string();
                (&digits, &none)
            }
            _ => match value
                .as_object()
                .filter(|members| members.len() == 1)
                .and_then(|only| only.iter().next())
            {
                Some(member) => member,
                None => {
                    let found = brief(value);
                    return Err(
                        at.error(format!("expected \"Variant\" or {{\"Variant\": …}}, found {found}"))
                    );
                }
            },
        };
        let also = match self.also.and_then(|also| also.get(place)).map(|also| &also.body) {
            Some(Body::Union { arms }) => arms.as_slice(),
            _ => &[],
        };
        let number = name.parse().ok().and_then(in_32_bits);
        let [own, others] = &self.arms;
        let by_number = || own.by_tag(place, arms, Some(number?));
        let index = own.by_name(place, arms, name);
        let index = index.or_else(|| others.by_name(place, also, name)).or_else(by_number);
        let Some(arm) = index.and_then(|index| arms.get(index)) else {
            let rest = own.by_tag(place, arms, None).is_some_and(|arm| arms[arm].fields.is_empty());
            return match number.filter(|_| rest && content.is_null()) {
                Some(number) => wrap(number.encode(out), at),
                None => Err(at.error(format!("there is no variant {name:?}; expected {}", names(arms)))),
            };
        };
        let other = index.and_then(|index| also.get(index)).map_or(&[][..], |arm| &arm.fields);
        let at = at.field(name);
        let (tag, content) = match arm.tag {
            Some(tag) => (tag, content),
            None => self.default_arm(place, arms, content, &at)?,
        };
        wrap(tag.encode(out), &at)?;
        if arm.fields.is_empty() && content.is_null() {
            return Ok(());
        }
        self.fields(&arm.fields, other, content, out, &at)
    }

    /// Returns the integer and the fields of the default variant, whose content is `[integer, fields]`. The
    /// integer can be written as a name. The integer must select no other variant.
    fn default_arm<'v>(
        &self,
        place: u32,
        arms: &'a [Arm],
        content: &'v Value,
        at: &Path<'_>,
    ) -> Result<(i32, &'v Value), Error> {
        let (tag, content) = match content.as_array().map(Vec::as_slice) {
            Some([tag]) => (tag, &Value::Null),
            Some([tag, content]) => (tag, content),
            _ => {
                return Err(at.error(
                    "this variant stands for all other integers: write its content as [integer, fields]",
                ));
            }
        };
        let by_name = |name: &str| {
            let also = || self.also.and_then(|also| also.other_tag(place, name));
            self.types.other_tag(place, name).or_else(also)
        };
        let tag = match tag.as_str().and_then(by_name) {
            Some(tag) => tag,
            None => self.integer(&Type::I32, tag, &at.index(0))?,
        };
        match self.arms[0].by_tag(place, arms, Some(tag)) {
            Some(arm) => {
                let name = &arms[arm].name;
                Err(at.error(format!("{tag} selects variant {name}; write that variant")))
            }
            None => Ok((tag, content)),
        }
    }
}

fn wrap(done: Result<(), xdr::Error>, at: &Path<'_>) -> Done {
    done.map_err(|why| at.error(why.kind().to_string()))
}

fn at_most(length: usize, max: u32, at: &Path<'_>) -> Done {
    if length > max as usize {
        return Err(at.error(format!("length {length} is over the maximum of {max}")));
    }
    Ok(())
}

/// Returns the names of at most 16 fields, for a message.
fn expected(fields: &[Field]) -> String {
    let names: Vec<&str> = fields.iter().take(16).map(|field| field.name.as_str()).collect();
    if names.is_empty() { "no fields".into() } else { names.join(", ") }
}

/// Returns the text by which a message refers to a value: the value itself, or its kind if it may be long.
fn brief(value: &Value) -> String {
    match value {
        Value::Array(_) => "an array".into(),
        Value::Object(_) => "an object".into(),
        Value::String(text) if text.chars().count() > 40 => "a long string".into(),
        other => other.to_string(),
    }
}

/// Returns the integer of a variant, or `None` if the number has more than 32 bits. An unsigned number above
/// the signed range becomes the signed number with the same bits.
fn in_32_bits(number: i64) -> Option<i32> {
    i32::try_from(number).ok().or_else(|| u32::try_from(number).ok().map(u32::cast_signed))
}

/// Returns the bytes that pairs of hexadecimal digits stand for.
fn hex(digits: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pairs = digits.as_bytes().chunks(2).map(|pair| match pair {
        [high, low] => u8::try_from(digit(*high)? << 4 | digit(*low)?).ok(),
        _ => None,
    });
    pairs.collect()
}

/// Returns opaque bytes in base64 with padding, the form that results have.
pub(super) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}
