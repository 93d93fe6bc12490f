//! Converts values to and from JSON, by the run-time description of their types. Tools use it to make
//! arguments and to show results.
//!
//! | wire type | JSON |
//! |---|---|
//! | void | `null` |
//! | integers of up to 32 bits | a number |
//! | integers of 64 bits | a string of digits, whatever their size: many programs lose digits of numbers above 2^53 |
//! | floating point | a number, `"NaN"`, `"Infinity"`, `"-Infinity"` |
//! | opaque | a string in base64; `{"hex": "…"}` and `{"text": "…"}` are accepted too |
//! | string | a string; `{"hex": "…"}` if it is not UTF-8 |
//! | optional | `null` or the value; the value in brackets if it could itself be `null` |
//! | list, linked list, array, tuple | an array |
//! | struct | an object; an array if several fields have no names; the field's value if a single field has no name; the struct's name if it has no fields |
//! | enum | `"Name"`; its integer is accepted too; `{"Name": fields}` if the variant has fields, which are written like a struct's |
//! | the default variant | `{"Name": [integer, fields]}`, with the integer's name if it has one; `{"Name": [integer]}` without fields |
//!
//! Numbers and strings of digits are accepted for all integers. An interface that was read from an `.x` file
//! has the file's names; the names in Rust are accepted too ([`Settings::also`]).
//!
//! Descriptions, values and bytes can come from an untrusted peer, so all of them are bounded in depth and
//! size.

mod arms;
mod converter;
mod decode;
mod encode;
mod error;
mod example;
mod print;
mod question;

use farcall_xdr::schema::{Arm, Body, Field, Type, Types, field};
use farcall_xdr::{Decoder, Encoder};
use serde_json::Value;

use crate::{Interface, Procedure};
pub use converter::Converter;
pub use error::Error;
use error::Path;
pub use example::example;
pub use print::{Layout, write};
pub use question::{Question, Subject};

/// The maximum depth to which values nest.
const MAX_DEPTH: usize = 128;

/// Encodes a value of the type `ty`.
///
/// # Errors
/// When a part of the JSON is not a value of the type. The error says which part.
pub fn encode(types: &Types, ty: &Type, value: &Value, out: &mut Encoder<'_>) -> Result<(), Error> {
    types.check(std::slice::from_ref(ty))?;
    encode::Writer { types, also: None, files: None, arms: Default::default() }.value(
        ty,
        value,
        out,
        &Path::ROOT,
    )
}

/// Decodes a value of the type `ty` from the front of the remaining bytes.
///
/// # Errors
/// When the bytes are not a value of the type. The error says at which byte.
pub fn decode(types: &Types, ty: &Type, bytes: &mut Decoder<'_>) -> Result<Value, Error> {
    types.check(std::slice::from_ref(ty))?;
    read(&decode::Reader::new(types, true, None), ty, bytes)
}

/// Decodes a value of a type that has been checked.
fn read<'a>(reader: &decode::Reader<'a>, ty: &'a Type, bytes: &mut Decoder<'_>) -> Result<Value, Error> {
    let decoded = reader.value(ty, bytes, &Path::ROOT, serde_json::value::Serializer);
    decoded.map_err(|why| reader.refusal().unwrap_or_else(|| Path::ROOT.error(why.to_string())))
}

/// Encodes the arguments of a call. The JSON is an object with the arguments' names, or an array of arguments
/// in order. A single argument can also be given as its value alone, unless that is an array, or an object
/// that has a member with the argument's name.
///
/// ```
/// use farcall_idl::{Interface, values};
/// use farcall_xdr::Encoder;
/// let mut store = Interface::new("Store");
/// store.procedure(1, "put").argument::<String>("key").argument::<u64>("value");
/// let put = store.by_name("put").unwrap();
/// let mut packet = Vec::new();
/// let json = serde_json::json!({"key": "answer", "value": 42});
/// values::encode_arguments(&store, put, &json, &mut Encoder::new(&mut packet))?;
/// assert_eq!(packet, b"\0\0\0\x06answer\0\0\0\0\0\0\0\0\0\x2a");
///
/// let json = serde_json::json!({"key": "answer", "value": -1});
/// let why = values::encode_arguments(&store, put, &json, &mut Encoder::new(&mut packet)).unwrap_err();
/// assert_eq!(why.to_string(), "at $.value: expected u64, found -1");
/// # Ok::<(), values::Error>(())
/// ```
///
/// # Errors
/// When a part of the JSON is not what the procedure takes. The error says which part.
pub fn encode_arguments(
    interface: &Interface,
    procedure: &Procedure,
    value: &Value,
    out: &mut Encoder<'_>,
) -> Result<(), Error> {
    encode_arguments_with(interface, procedure, value, Settings::default(), out)
}

/// A function that returns the content of the file that a user names, or the reason why it cannot be read.
pub type Files<'a> = &'a dyn Fn(&str) -> Result<Vec<u8>, String>;

/// Settings that accept further forms of values.
#[derive(Clone, Copy, Default)]
pub struct Settings<'a> {
    /// Reads the file NAME for opaque bytes that are written as `"@NAME"`.
    pub files: Option<Files<'a>>,
    /// A description of the same interface with other names, which are accepted too.
    pub also: Option<&'a Interface>,
}

/// Encodes a procedure's arguments from JSON, as [`encode_arguments`] does. The settings say which further
/// forms of values are accepted.
///
/// # Errors
/// The errors of [`encode_arguments`].
pub fn encode_arguments_with(
    interface: &Interface,
    procedure: &Procedure,
    value: &Value,
    Settings { files, also }: Settings<'_>,
    out: &mut Encoder<'_>,
) -> Result<(), Error> {
    let fields = fields_of(procedure);
    let roots: Vec<Type> = fields.iter().map(|field| field.ty.clone()).collect();
    interface.types.check(&roots)?;
    let other = also.and_then(|also| also.by_number(procedure.number)).map_or(Vec::new(), fields_of);
    let (types, also) = (&interface.types, also.map(|also| &also.types));
    let writer = encode::Writer { types, also, files, arms: Default::default() };
    write_arguments(&writer, &fields, &other, value, out)
}

/// Encodes arguments, the types of which have been checked.
fn write_arguments<'a>(
    writer: &encode::Writer<'a>,
    fields: &'a [Field],
    other: &[Field],
    value: &Value,
    out: &mut Encoder<'_>,
) -> Result<(), Error> {
    let is_named = |members: &serde_json::Map<String, Value>, only: &Field| {
        members.contains_key(&only.name)
            || other.first().is_some_and(|other| members.contains_key(&other.name))
    };
    match (value, fields) {
        (Value::Array(_), _) => writer.positional(fields, value, out, &Path::ROOT),
        (Value::Object(members), [only])
            if !(members.is_empty() || is_named(members, only)) && is_object(writer.types, &only.ty) =>
        {
            writer.value(&only.ty, value, out, &Path::ROOT)
        }
        (Value::Object(_), _) | (Value::Null, []) => writer.named(fields, other, value, out, &Path::ROOT),
        (_, [only]) => writer.value(&only.ty, value, out, &Path::ROOT),
        _ => writer.named(fields, other, value, out, &Path::ROOT),
    }
}

/// Returns a procedure's arguments as the fields of a struct.
fn fields_of(procedure: &Procedure) -> Vec<Field> {
    let arguments = procedure.arguments.iter();
    arguments.map(|argument| field(&argument.name, "", argument.ty.clone(), false)).collect()
}

/// The JSON form of the fields of a struct or a variant.
enum Form {
    /// An object: the fields have names.
    Named,
    /// An array: several fields have no names.
    Positional,
    /// The value of the only field, which has no name.
    Single,
}

fn form(fields: &[Field]) -> Form {
    // The fields of a default variant are counted from 1, because its integer comes before them.
    let unnamed_from =
        |first: usize| fields.iter().zip(first..).all(|(field, index)| field.name == index.to_string());
    match (unnamed_from(0) || unnamed_from(1), fields.len()) {
        (false, _) | (true, 0) => Form::Named,
        (true, 1) => Form::Single,
        (true, _) => Form::Positional,
    }
}

/// Returns whether values of this type are written as objects.
fn is_object(types: &Types, ty: &Type) -> bool {
    let Some(Type::Named(place)) = written_as(types, ty) else { return false };
    types.get(*place).is_some_and(|found| match &found.body {
        Body::Union { .. } => true,
        Body::Struct { fields, .. } => matches!(form(fields), Form::Named),
    })
}

/// Returns whether a value of this type may itself be written as `null`.
fn nullable(types: &Types, ty: &Type) -> bool {
    match written_as(types, ty) {
        None | Some(Type::Void | Type::Optional(_)) => true,
        Some(Type::Named(place)) => types
            .get(*place)
            .is_some_and(|found| matches!(&found.body, Body::Struct { fields, .. } if fields.is_empty())),
        Some(_) => false,
    }
}

/// Returns the type whose JSON form values of this type have. For a struct with a single field, without a
/// name, that is the field's type. Returns `None` if such structs nest without end.
fn written_as<'t>(types: &'t Types, mut ty: &'t Type) -> Option<&'t Type> {
    for _ in 0..MAX_DEPTH {
        let Type::Named(place) = ty else { return Some(ty) };
        match types.get(*place).map(|found| &found.body) {
            Some(Body::Struct { fields, .. }) if matches!(form(fields), Form::Single) => ty = &fields[0].ty,
            _ => return Some(ty),
        }
    }
    None
}

/// Returns the names of the first 16 variants, for a message.
fn names(arms: &[Arm]) -> String {
    let names: Vec<&str> = arms.iter().take(16).map(|arm| arm.name.as_str()).collect();
    names.join(", ")
}
