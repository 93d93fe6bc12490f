//! From XDR to JSON.

use farcall_xdr::schema::{Arm, Body, Field, Type, Types};
use farcall_xdr::{self as xdr, Decode, Decoder, ErrorKind};
use serde_json::{Map, Number, Value, json};

use super::error::{Error, Path, UNDECLARED};
use super::{DEPTH, Form, encode::base64, form, nullable};

/// What a JSON value takes in memory, besides its text, in bytes.
const COST: usize = 64;

pub(super) struct Reader<'a> {
    pub(super) types: &'a Types,
}

impl<'a> Reader<'a> {
    pub(super) fn value(&self, ty: &'a Type, bytes: &mut Decoder<'_>, at: &Path<'_>) -> Result<Value, Error> {
        if at.depth >= DEPTH {
            return Err(at.error(format!("nested deeper than {DEPTH}")));
        }
        bytes.charge(COST).map_err(|why| at.error(why.to_string()))?;
        match ty {
            Type::Array { size, element } => self.elements(element, *size as usize, bytes, at),
            Type::List { max, element } => {
                let count = wrap(bytes.count(), at)?;
                at_most(count, *max, bytes, at)?;
                self.elements(element, count, bytes, at)
            }
            Type::Optional(inner) => match wrap(bytes.bool(), at)? {
                false => Ok(Value::Null),
                true if nullable(self.types, inner) => {
                    Ok(Value::Array(vec![self.value(inner, bytes, &at.index(0))?]))
                }
                true => self.value(inner, bytes, &at.inside()),
            },
            Type::Chain(element) => {
                let mut items = Vec::new();
                while wrap(bytes.bool(), at)? {
                    items.push(self.value(element, bytes, &at.index(items.len()))?);
                }
                Ok(Value::Array(items))
            }
            Type::Tuple(parts) => {
                let parts = parts.iter().enumerate();
                parts.map(|(index, part)| self.value(part, bytes, &at.index(index))).collect()
            }
            Type::Named(place) => self.definition(*place, bytes, at),
            _ => wrap(scalar(ty, bytes), at),
        }
    }

    fn elements(
        &self,
        element: &'a Type,
        count: usize,
        bytes: &mut Decoder<'_>,
        at: &Path<'_>,
    ) -> Result<Value, Error> {
        let mut items = Vec::new();
        let mut refusal = None;
        let done = bytes.elements(count, |bytes| {
            match self.value(element, bytes, &at.index(items.len())) {
                Ok(item) => items.push(item),
                Err(why) => {
                    refusal = Some(why);
                    // What stops the walk; the refusal says more.
                    return Err(bytes.error(ErrorKind::Invalid("".into())));
                }
            }
            Ok(())
        });
        match refusal {
            Some(refusal) => Err(refusal),
            None => wrap(done, at).map(|()| Value::Array(items)),
        }
    }

    fn definition(&self, place: u32, bytes: &mut Decoder<'_>, at: &Path<'_>) -> Result<Value, Error> {
        let Some(definition) = self.types.get(place) else {
            return Err(at.error("refers to no type"));
        };
        match &definition.body {
            Body::Struct { fields, extensible: false } if fields.is_empty() => {
                bytes.charge(definition.name.len()).map_err(|why| at.error(why.to_string()))?;
                Ok(definition.name.clone().into())
            }
            Body::Struct { fields, extensible: false } => self.fields(fields, bytes, at),
            Body::Struct { fields, extensible: true } => {
                let mut value = Err(at.error("empty"));
                let done = bytes.sized(|bytes| {
                    value = self.extensible(fields, bytes, at);
                    match &value {
                        Ok(_) => Ok(()),
                        Err(_) => Err(bytes.error(ErrorKind::Invalid("".into()))),
                    }
                });
                match (value, done) {
                    (Ok(_), Err(why)) => Err(at.error(why.to_string())),
                    (value, _) => value,
                }
            }
            Body::Union { arms } => self.union((place, &definition.name), arms, bytes, at),
        }
    }

    /// The fields that are there, up to the end of the struct.
    fn extensible(&self, fields: &'a [Field], bytes: &mut Decoder<'_>, at: &Path<'_>) -> Result<Value, Error> {
        let mut members = Map::new();
        for field in fields {
            if field.defaulted && bytes.remaining() == 0 {
                break;
            }
            self.member(field, &mut members, bytes, at)?;
        }
        Ok(members.into())
    }

    fn fields(&self, fields: &'a [Field], bytes: &mut Decoder<'_>, at: &Path<'_>) -> Result<Value, Error> {
        match (form(fields), fields) {
            (Form::Single, [only]) => self.value(&only.ty, bytes, &at.inside()),
            (Form::Named, _) => {
                let mut members = Map::new();
                fields.iter().try_for_each(|field| self.member(field, &mut members, bytes, at))?;
                Ok(members.into())
            }
            _ => {
                let fields = fields.iter().enumerate();
                fields.map(|(index, field)| self.value(&field.ty, bytes, &at.index(index))).collect()
            }
        }
    }

    fn member(
        &self,
        field: &'a Field,
        members: &mut Map<String, Value>,
        bytes: &mut Decoder<'_>,
        at: &Path<'_>,
    ) -> Result<(), Error> {
        let value = self.value(&field.ty, bytes, &at.field(&field.name))?;
        // Names come from the description, which may be a peer's: repeated in a list, a long one takes much memory.
        bytes.charge(field.name.len()).map_err(|why| at.error(why.to_string()))?;
        members.insert(field.name.clone(), value);
        Ok(())
    }

    fn union(
        &self,
        (place, of): (u32, &str),
        arms: &'a [Arm],
        bytes: &mut Decoder<'_>,
        at: &Path<'_>,
    ) -> Result<Value, Error> {
        if arms.is_empty() {
            return Err(at.error(UNDECLARED));
        }
        let tag = wrap(bytes.i32(), at)?;
        let exact = arms.iter().find(|arm| arm.tag == Some(tag));
        let Some(arm) = exact.or_else(|| arms.iter().find(|arm| arm.tag.is_none())) else {
            return Err(at.error(format!("at byte {}: {tag} is not a variant of {of}", bytes.offset())));
        };
        bytes.charge(arm.name.len()).map_err(|why| at.error(why.to_string()))?;
        let at = at.field(&arm.name);
        if arm.tag.is_some() && arm.fields.is_empty() {
            return Ok(arm.name.clone().into());
        }
        let mut content = self.fields(&arm.fields, bytes, &at)?;
        if arm.tag.is_none() {
            let name = self.types.other_name(place, tag).unwrap_or_default();
            bytes.charge(name.len()).map_err(|why| at.error(why.to_string()))?;
            let tag: Value = if name.is_empty() { tag.into() } else { name.into() };
            content = Value::Array(if arm.fields.is_empty() { vec![tag] } else { vec![tag, content] });
        }
        Ok(Map::from_iter([(arm.name.clone(), content)]).into())
    }
}

fn scalar(ty: &Type, bytes: &mut Decoder<'_>) -> Result<Value, xdr::Error> {
    Ok(match ty {
        Type::Bool => bytes.bool()?.into(),
        Type::I8 => i8::decode(bytes)?.into(),
        Type::I16 => i16::decode(bytes)?.into(),
        Type::I32 => bytes.i32()?.into(),
        Type::I64 => bytes.i64()?.to_string().into(),
        Type::U8 => u8::decode(bytes)?.into(),
        Type::U16 => u16::decode(bytes)?.into(),
        Type::U32 => bytes.u32()?.into(),
        Type::U64 => bytes.u64()?.to_string().into(),
        Type::F32 => float(shortest(f32::decode(bytes)?)),
        Type::F64 => float(f64::decode(bytes)?),
        Type::Opaque { size } => base64(bytes.opaque(*size as usize)?).into(),
        Type::Bytes { max } => {
            let found = bytes.bytes()?;
            within(found.len(), *max, bytes)?;
            base64(found).into()
        }
        Type::String { max } => {
            let found = bytes.bytes()?;
            within(found.len(), *max, bytes)?;
            match std::str::from_utf8(found) {
                Ok(text) => text.into(),
                // As some strings of ONC RPC are, which are in no encoding that is known.
                Err(_) => json!({ "hex": found.iter().map(|byte| format!("{byte:02x}")).collect::<String>() }),
            }
        }
        _ => Value::Null,
    })
}

fn float(number: f64) -> Value {
    match Number::from_f64(number) {
        Some(number) => number.into(),
        None if number.is_nan() => "NaN".into(),
        None if number > 0.0 => "Infinity".into(),
        None => "-Infinity".into(),
    }
}

/// The number that people would write for it: 0.1, not 0.10000000149011612.
fn shortest(number: f32) -> f64 {
    number.to_string().parse().unwrap_or(number.into())
}

fn within(length: usize, max: u32, bytes: &Decoder<'_>) -> Result<(), xdr::Error> {
    if length > max as usize {
        return Err(bytes.error(ErrorKind::TooLong { length, max }));
    }
    Ok(())
}

fn at_most(length: usize, max: u32, bytes: &Decoder<'_>, at: &Path<'_>) -> Result<(), Error> {
    wrap(within(length, max, bytes), at)
}

fn wrap<T>(result: Result<T, xdr::Error>, at: &Path<'_>) -> Result<T, Error> {
    result.map_err(|why| at.error(why.to_string()))
}
