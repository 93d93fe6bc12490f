//! From XDR to JSON: one walk over the bytes, which tells a [`Sink`] what it finds.

use farcall_xdr::schema::{Arm, Body, Field, Type, Types};
use farcall_xdr::{self as xdr, Decode, Decoder, ErrorKind};
use serde_json::{Number, Value};

use super::error::{Error, Path, UNDECLARED};
use super::sink::Sink;
use super::{Form, MAX_DEPTH, encode::base64, form, nullable};

pub(super) struct Reader<'a> {
    pub(super) types: &'a Types,
}

type Done = Result<(), Error>;

impl<'a> Reader<'a> {
    pub(super) fn value<S: Sink>(
        &self,
        ty: &'a Type,
        bytes: &mut Decoder<'_>,
        at: &Path<'_>,
        out: &mut S,
    ) -> Done {
        if at.depth >= MAX_DEPTH {
            return Err(at.error(format!("nested deeper than {MAX_DEPTH}")));
        }
        charge(S::VALUE_BYTES, bytes, at)?;
        match ty {
            Type::Array { size, element } => self.elements(element, *size as usize, bytes, at, out),
            Type::List { max, element } => {
                let count = wrap(bytes.count(), at)?;
                wrap(within(count, *max, bytes), at)?;
                self.elements(element, count, bytes, at, out)
            }
            Type::Optional(inner) => match wrap(bytes.bool(), at)? {
                false => {
                    out.leaf(Value::Null, at);
                    Ok(())
                }
                true if nullable(self.types, inner) => {
                    out.begin(b'[');
                    self.value(inner, bytes, &at.index(0), out)?;
                    out.end(b']');
                    Ok(())
                }
                true => self.value(inner, bytes, &at.inside(), out),
            },
            Type::Chain(element) => {
                out.begin(b'[');
                let mut index = 0;
                while wrap(bytes.bool(), at)? {
                    self.value(element, bytes, &at.index(index), out)?;
                    index += 1;
                }
                out.end(b']');
                Ok(())
            }
            Type::Tuple(parts) => self.positional(parts.iter(), bytes, at, out),
            Type::Named(place) => self.definition(*place, bytes, at, out),
            _ => wrap(scalar(ty, bytes, at, out), at),
        }
    }

    fn elements<S: Sink>(
        &self,
        element: &'a Type,
        count: usize,
        bytes: &mut Decoder<'_>,
        at: &Path<'_>,
        out: &mut S,
    ) -> Done {
        out.begin(b'[');
        let (mut index, mut outcome) = (0, Ok(()));
        let done = bytes.elements(count, |bytes| {
            outcome = self.value(element, bytes, &at.index(index), out);
            index += 1;
            stop_at(&outcome, bytes)
        });
        outcome.and_then(|()| wrap(done, at))?;
        out.end(b']');
        Ok(())
    }

    fn definition<S: Sink>(&self, place: u32, bytes: &mut Decoder<'_>, at: &Path<'_>, out: &mut S) -> Done {
        let Some(definition) = self.types.get(place) else {
            return Err(at.error("refers to no type"));
        };
        match &definition.body {
            Body::Struct { fields, extensible: false } if fields.is_empty() => {
                charge(S::name_bytes(&definition.name), bytes, at)?;
                out.leaf(definition.name.as_str().into(), at);
                Ok(())
            }
            Body::Struct { fields, extensible: false } => self.fields(fields, bytes, at, out),
            Body::Struct { fields, extensible: true } => {
                let mut outcome = Ok(());
                let done = bytes.sized(|bytes| {
                    outcome = self.extensible(fields, bytes, at, out);
                    stop_at(&outcome, bytes)
                });
                outcome.and_then(|()| wrap(done, at))
            }
            Body::Union { arms } => self.union((place, &definition.name), arms, bytes, at, out),
        }
    }

    /// The fields that are there, up to the end of the struct.
    fn extensible<S: Sink>(
        &self,
        fields: &'a [Field],
        bytes: &mut Decoder<'_>,
        at: &Path<'_>,
        out: &mut S,
    ) -> Done {
        out.begin(b'{');
        for field in fields {
            if field.defaulted && bytes.remaining() == 0 {
                break;
            }
            self.member(field, bytes, at, out)?;
        }
        out.end(b'}');
        Ok(())
    }

    fn fields<S: Sink>(
        &self,
        fields: &'a [Field],
        bytes: &mut Decoder<'_>,
        at: &Path<'_>,
        out: &mut S,
    ) -> Done {
        match (form(fields), fields) {
            (Form::Single, [only]) => self.value(&only.ty, bytes, &at.inside(), out),
            (Form::Named, _) => {
                out.begin(b'{');
                fields.iter().try_for_each(|field| self.member(field, bytes, at, out))?;
                out.end(b'}');
                Ok(())
            }
            _ => self.positional(fields.iter().map(|field| &field.ty), bytes, at, out),
        }
    }

    /// Values of these types, one after the other, as an array.
    fn positional<S: Sink>(
        &self,
        types: impl Iterator<Item = &'a Type>,
        bytes: &mut Decoder<'_>,
        at: &Path<'_>,
        out: &mut S,
    ) -> Done {
        out.begin(b'[');
        types.enumerate().try_for_each(|(index, ty)| self.value(ty, bytes, &at.index(index), out))?;
        out.end(b']');
        Ok(())
    }

    fn member<S: Sink>(&self, field: &'a Field, bytes: &mut Decoder<'_>, at: &Path<'_>, out: &mut S) -> Done {
        // Names come from the description, which may be a peer's: repeated in a list, a long one takes much
        // memory.
        charge(S::name_bytes(&field.name), bytes, at)?;
        out.key(&field.name);
        self.value(&field.ty, bytes, &at.field(&field.name), out)
    }

    fn union<S: Sink>(
        &self,
        (place, of): (u32, &str),
        arms: &'a [Arm],
        bytes: &mut Decoder<'_>,
        at: &Path<'_>,
        out: &mut S,
    ) -> Done {
        if arms.is_empty() {
            return Err(at.error(UNDECLARED));
        }
        let tag = wrap(bytes.i32(), at)?;
        let exact = arms.iter().position(|arm| arm.tag == Some(tag));
        let Some(index) = exact.or_else(|| arms.iter().position(|arm| arm.tag.is_none())) else {
            return Err(at.error(format!("at byte {}: {tag} is not a variant of {of}", bytes.offset())));
        };
        let arm = &arms[index];
        charge(S::name_bytes(&arm.name), bytes, at)?;
        out.variant(place, index, tag, at);
        if arm.tag.is_some() && arm.fields.is_empty() {
            out.leaf(arm.name.as_str().into(), at);
            return Ok(());
        }
        let at = at.field(&arm.name);
        out.begin(b'{');
        out.key(&arm.name);
        if arm.tag.is_some() {
            self.fields(&arm.fields, bytes, &at, out)?;
        } else {
            out.begin(b'[');
            match self.types.other_name(place, tag) {
                Some(name) => {
                    charge(S::name_bytes(name), bytes, &at)?;
                    out.leaf(name.into(), &at.index(0));
                }
                None => out.leaf(tag.into(), &at.index(0)),
            }
            if !arm.fields.is_empty() {
                // The brackets of JSON are no level of the type.
                let mut inner = at.index(1);
                inner.depth = at.depth;
                self.fields(&arm.fields, bytes, &inner, out)?;
            }
            out.end(b']');
        }
        out.end(b'}');
        Ok(())
    }
}

fn scalar<S: Sink>(ty: &Type, bytes: &mut Decoder<'_>, at: &Path<'_>, out: &mut S) -> Result<(), xdr::Error> {
    let value = match ty {
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
        Type::Bytes { max } => base64(limited(bytes, *max)?).into(),
        Type::String { max } => {
            let found = limited(bytes, *max)?;
            match std::str::from_utf8(found) {
                Ok(text) => text.into(),
                // Some strings of ONC RPC are in no encoding that is known.
                Err(_) => {
                    out.begin(b'{');
                    out.key("hex");
                    let hex: String = found.iter().map(|byte| format!("{byte:02x}")).collect();
                    out.leaf(hex.into(), &at.field("hex"));
                    out.end(b'}');
                    return Ok(());
                }
            }
        }
        _ => Value::Null,
    };
    out.leaf(value, at);
    Ok(())
}

/// Bytes of a length that is told, of at most `max`.
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

/// The number that people would write for it: 0.1, not 0.10000000149011612.
fn shortest(number: f32) -> f64 {
    number.to_string().parse().unwrap_or(number.into())
}

/// Stops the decoder's own walk after a refusal, which says more.
fn stop_at(outcome: &Done, bytes: &Decoder<'_>) -> Result<(), xdr::Error> {
    outcome.as_ref().copied().map_err(|_| bytes.error(ErrorKind::Invalid("".into())))
}

fn charge(cost: usize, bytes: &mut Decoder<'_>, at: &Path<'_>) -> Done {
    wrap(bytes.charge(cost), at)
}

fn within(length: usize, max: u32, bytes: &Decoder<'_>) -> Result<(), xdr::Error> {
    if length > max as usize {
        return Err(bytes.error(ErrorKind::TooLong { length, max }));
    }
    Ok(())
}

fn wrap<T>(result: Result<T, xdr::Error>, at: &Path<'_>) -> Result<T, Error> {
    result.map_err(|why| at.error(why.to_string()))
}
