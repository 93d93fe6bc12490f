//! A procedure that was found: encodes its arguments, starts its calls, and decodes their outcomes.

use std::fmt;
use std::sync::{Arc, PoisonError};

use farcall::dynamic::Encoded;
use farcall::xdr::Encoder;
use farcall::xdr::schema::{Body, Type, Types};
use farcall::{Error, Kind, Pending, Ran};
use farcall_idl::values::{self, Converter};
use farcall_idl::{Interface, Procedure};
use serde_json::Value;

use super::{NotFound, Server};

/// A procedure that was found.
pub struct Bound {
    server: Arc<Server>,
    /// The index of the procedure in its interface.
    index: usize,
    converter: Arc<Converter>,
}

/// How a call of a node's procedure ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The procedure returned this value.
    Returned(Value),
    /// The procedure raised the exception that it declares.
    Declared {
        /// The exception's name: that of the enum's variant or of the struct.
        name: String,
        /// What the exception carries; `null` if it carries nothing.
        value: Value,
    },
    /// The call failed.
    Failed {
        /// Why, for people.
        why: String,
        /// What kind of failure it is.
        kind: Kind,
        /// Whether the procedure ran.
        ran: Ran,
    },
}

impl Bound {
    pub(super) fn of(server: Arc<Server>, name: &str) -> Result<Bound, NotFound> {
        let interface = server.dynamic.interface();
        let index = match &server.version {
            Some(version) => version.index_of(name),
            None => interface.procedures.iter().position(|procedure| procedure.name == name),
        };
        let Some(index) = index.filter(|index| *index < interface.procedures.len()) else {
            // Another version of the server may have the procedure.
            return Err(NotFound {
                why: format!("{} has no procedure {name}", interface.name),
                lasting: false,
            });
        };
        let procedure = &interface.procedures[index];
        if procedure.has_streams() {
            return Err(NotFound::lasting(format!("{name} has a stream, which a node cannot pass")));
        }
        let converter = converter(&server, index, procedure)
            .map_err(|why| NotFound::lasting(format!("the description of {name}: {why}")))?;
        Ok(Bound { index, converter, server })
    }

    /// Returns whether the interface says that the procedure may run twice without harm.
    pub fn is_idempotent(&self) -> bool {
        self.procedure().idempotent
    }

    /// Returns the description of the procedure.
    pub fn procedure(&self) -> &Procedure {
        &self.interface().procedures[self.index]
    }

    /// Returns the interface that the procedure belongs to.
    pub fn interface(&self) -> &Interface {
        self.server.dynamic.interface()
    }

    /// Encodes the arguments of a call: an array, an object with the arguments' names, or `null` if there are
    /// none.
    ///
    /// # Errors
    /// When a part of the JSON is not what the procedure takes. The error says which part.
    pub fn encode(&self, arguments: &Value) -> Result<Vec<u8>, String> {
        let mut encoded = Vec::new();
        self.encode_to(arguments, &mut encoded)?;
        Ok(encoded)
    }

    /// Encodes the arguments of a call as [`encode`](Bound::encode) does, behind what `out` has.
    ///
    /// # Errors
    /// Those of `encode`.
    pub fn encode_to(&self, arguments: &Value, out: &mut Vec<u8>) -> Result<(), String> {
        self.converter
            .encode_arguments(arguments, &mut Encoder::new(out))
            .map_err(|why| format!("the arguments of {}: {why}", self.procedure().name))
    }

    /// Starts a call with encoded arguments. Does not wait for its end; of a type with many instances, it may
    /// wait for up to a second until one is bound.
    pub fn start(&self, arguments: &[u8]) -> Pending<Encoded, Encoded> {
        self.server.dynamic.start(self.procedure(), arguments)
    }

    /// Returns how a call ended, with its result as JSON. Integers of 64 bits are numbers.
    pub fn outcome(&self, ended: farcall::Result<Encoded, Encoded>) -> Outcome {
        match ended {
            Ok(Encoded(result)) => match self.converter.decode_result(&result) {
                Ok(value) => Outcome::Returned(value),
                Err(why) => unreadable(&why),
            },
            Err(Error::Declared(Encoded(exception))) => match self.converter.decode_exception(&exception) {
                Ok(value) => declared(&self.interface().types, &self.procedure().exception, value),
                Err(why) => unreadable(&why),
            },
            Err(Error::CallFailed(why)) => {
                Outcome::Failed { why: why.to_string(), kind: why.kind(), ran: why.ran() }
            }
        }
    }

    pub(super) fn is_of(&self, server: &Arc<Server>) -> bool {
        Arc::ptr_eq(&self.server, server)
    }
}

fn converter(server: &Server, index: usize, procedure: &Procedure) -> Result<Arc<Converter>, values::Error> {
    let mut converters = server.converters.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = converters.get(&index) {
        return Ok(known.clone());
    }
    let also = server.version.as_ref().map(|version| &version.interface);
    let made = Arc::new(Converter::new(server.dynamic.interface(), procedure, also)?);
    converters.insert(index, made.clone());
    Ok(made)
}

fn unreadable(why: &values::Error) -> Outcome {
    let why = format!("the reply does not have the described type: {why}");
    Outcome::Failed { why, kind: Kind::BadResult, ran: Ran::Yes }
}

/// Returns an exception with its name. The JSON of an enum is the name of its variant, or an object whose
/// only member has that name.
fn declared(types: &Types, ty: &Type, value: Value) -> Outcome {
    let definition = match ty {
        Type::Named(place) => types.get(*place),
        _ => None,
    };
    let Some(definition) = definition else {
        return Outcome::Declared { name: spelled(ty).to_owned(), value };
    };
    let name = definition.name.clone();
    match (&definition.body, value) {
        (Body::Union { .. }, Value::String(name)) => Outcome::Declared { name, value: Value::Null },
        (Body::Union { .. }, Value::Object(members)) if members.len() == 1 => {
            match members.into_iter().next() {
                Some((name, value)) => Outcome::Declared { name, value },
                None => Outcome::Declared { name, value: Value::Null },
            }
        }
        (Body::Struct { fields, .. }, _) if fields.is_empty() => {
            Outcome::Declared { name, value: Value::Null }
        }
        (_, value) => Outcome::Declared { name, value },
    }
}

/// Returns the name of an exception whose type has none of its own.
fn spelled(ty: &Type) -> &'static str {
    match ty {
        Type::String { .. } => "string",
        Type::Bool => "bool",
        Type::U64 => "u64",
        Type::U32 => "u32",
        Type::I64 => "i64",
        Type::I32 => "i32",
        _ => "exception",
    }
}

impl fmt::Debug for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bound").field("procedure", &self.procedure().name).finish_non_exhaustive()
    }
}
