//! Converts the values of one procedure's calls, whose types are checked once for all of them.

use farcall_xdr::schema::{Field, Type, Types};
use farcall_xdr::{Decoder, Encoder};
use serde_json::Value;

use super::error::{Error, Path};
use super::{decode, encode, fields_of, write_arguments};
use crate::{Interface, Procedure};

/// Converts the arguments, results and exceptions of one procedure.
/// [`encode_arguments`](super::encode_arguments) and [`decode`](super::decode()) check the types of an
/// interface at each call; this checks them once, for programs that call a procedure often.
///
/// ```
/// use farcall_idl::Interface;
/// use farcall_idl::values::Converter;
/// use farcall_xdr::Encoder;
/// use serde_json::json;
///
/// let mut store = Interface::new("Store");
/// store.procedure(1, "get").argument::<String>("key").result::<u64>();
/// let get = Converter::new(&store, store.by_name("get").unwrap(), None)?;
/// let mut packet = Vec::new();
/// get.encode_arguments(&json!(["answer"]), &mut Encoder::new(&mut packet))?;
/// assert_eq!(packet, b"\0\0\0\x06answer\0\0");
/// assert_eq!(get.decode_result(&[0, 0, 0, 0, 0, 0, 0, 42])?, json!(42));
/// # Ok::<(), farcall_idl::values::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Converter {
    types: Types,
    arguments: Vec<Field>,
    result: Type,
    exception: Type,
    /// The types and arguments of a description with other names, which are accepted too.
    also: Option<(Types, Vec<Field>)>,
}

impl Converter {
    /// Makes a converter for a procedure of an interface. `also` describes the same interface with other
    /// names, which are accepted too ([`Settings::also`](super::Settings::also)).
    ///
    /// # Errors
    /// When the types of the procedure are not sound, as those of an interface from an untrusted peer may be.
    pub fn new(
        interface: &Interface,
        procedure: &Procedure,
        also: Option<&Interface>,
    ) -> Result<Converter, Error> {
        let arguments = fields_of(procedure);
        let mut roots: Vec<Type> = arguments.iter().map(|field| field.ty.clone()).collect();
        roots.extend([procedure.result.clone(), procedure.exception.clone()]);
        interface.types.check(&roots)?;
        let also = also.map(|also| {
            let other = also.by_number(procedure.number).map_or(Vec::new(), fields_of);
            (also.types.clone(), other)
        });
        Ok(Converter {
            types: interface.types.clone(),
            arguments,
            result: procedure.result.clone(),
            exception: procedure.exception.clone(),
            also,
        })
    }

    /// Encodes the arguments of a call, in the forms that [`encode_arguments`](super::encode_arguments)
    /// accepts.
    ///
    /// # Errors
    /// When a part of the JSON is not what the procedure takes. The error says which part.
    pub fn encode_arguments(&self, value: &Value, out: &mut Encoder<'_>) -> Result<(), Error> {
        if self.arguments.is_empty() && value.is_null() {
            return Ok(());
        }
        let (also, other) = match &self.also {
            Some((types, other)) => (Some(types), other.as_slice()),
            None => (None, [].as_slice()),
        };
        let writer = encode::Writer { types: &self.types, also, files: None, arms: Default::default() };
        write_arguments(&writer, &self.arguments, other, value, out)
    }

    /// Decodes a whole result. Integers of 64 bits become numbers.
    ///
    /// # Errors
    /// When the bytes are not one value of the result's type. The error says at which byte.
    pub fn decode_result(&self, bytes: &[u8]) -> Result<Value, Error> {
        self.decode(&self.result, bytes)
    }

    /// Decodes a whole exception. Integers of 64 bits become numbers.
    ///
    /// # Errors
    /// When the bytes are not one value of the exception's type. The error says at which byte.
    pub fn decode_exception(&self, bytes: &[u8]) -> Result<Value, Error> {
        self.decode(&self.exception, bytes)
    }

    fn decode(&self, ty: &Type, bytes: &[u8]) -> Result<Value, Error> {
        if bytes.is_empty() && *ty == Type::Void {
            return Ok(Value::Null);
        }
        let mut decoder = Decoder::new(bytes);
        let reader = decode::Reader::new(&self.types, true, None).with_numbers();
        let value = super::read(&reader, ty, &mut decoder)?;
        decoder.finish().map_err(|why| Path::ROOT.error(why.to_string()))?;
        Ok(value)
    }
}
