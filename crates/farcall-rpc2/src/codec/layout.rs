//! The procedures of an interface as RPC2 carries them, and what it cannot say.

use std::fmt;

use farcall::idl::{self, Interface};
use farcall::xdr::schema::{Body, Definition, Type, Types};

use super::error::Error;
use super::walk::{self, Direction};

/// The procedures of an interface, in the form in which their values are transcoded.
#[derive(Debug)]
pub struct Layout {
    types: Types,
    /// The procedures in the order of their numbers.
    procedures: Vec<Procedure>,
}

/// A procedure of a [`Layout`].
#[derive(Clone, Debug)]
pub struct Procedure {
    number: u32,
    name: String,
    arguments: Vec<(String, Type)>,
    result: Type,
    has_errors: bool,
    has_bulk: bool,
}

/// What of a procedure is transcoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The arguments, one after the other.
    Arguments,
    /// The result. An error's bytes are its return code, in four bytes, and then those of a result.
    Result,
}

/// Why RPC2 cannot carry the calls of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    interface: String,
    /// The procedure or the type, with its part; empty if the interface itself is refused.
    part: String,
    why: String,
}

impl Layout {
    /// Makes the layout of an interface.
    ///
    /// # Errors
    /// RPC2 cannot say a type of the interface: booleans, numbers of 8 bits with a sign, of 16 and of 64
    /// bits, `f32`, optional data, linked lists, arrays but of bytes, enums with fields or with a default
    /// variant, extensible structs. It has no signals and no one-way calls. A declared exception must be a
    /// struct of an `i32`, which is the return code, and then the fields of the result.
    ///
    /// A procedure with bulk data is not refused, but cannot be called ([`Procedure::has_bulk`]).
    pub fn new(interface: &Interface) -> Result<Layout, Refusal> {
        let refuse = |part: String, why: &str| {
            Err(Refusal { interface: interface.name.clone(), part, why: why.into() })
        };
        if !interface.signals.is_empty() {
            return refuse(String::new(), "it has signals, and RPC2 has none");
        }
        let roots: Vec<Type> = interface.procedures.iter().flat_map(roots).collect();
        if let Err(why) = interface.types.check(&roots) {
            return refuse(String::new(), &why.to_string());
        }
        for definition in interface.types.definitions() {
            if let Err((part, why)) = check_definition(definition) {
                return refuse(part, &why);
            }
        }
        let mut procedures = Vec::new();
        for procedure in &interface.procedures {
            match made(&interface.types, procedure) {
                Ok(made) => procedures.push(made),
                Err((part, why)) => return refuse(part, &why),
            }
        }
        procedures.sort_by_key(|procedure| procedure.number);
        Ok(Layout { types: interface.types.clone(), procedures })
    }

    /// Returns the procedure with this number.
    pub fn procedure(&self, number: u32) -> Option<&Procedure> {
        let place = self.procedures.binary_search_by_key(&number, |procedure| procedure.number).ok()?;
        self.procedures.get(place)
    }

    /// Appends the packed bytes of a value to `out`, given its XDR bytes. After an error, `out` is as it was
    /// before.
    ///
    /// # Errors
    /// The bytes are no such value, or it has a string with a zero byte.
    pub fn pack(
        &self,
        procedure: &Procedure,
        part: Part,
        xdr: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        self.transcode(procedure, part, Direction::ToPacked, xdr, out)
    }

    /// Appends the XDR bytes of a value to `out`, given its packed bytes. After an error, `out` is as it was
    /// before. Takes time and memory in proportion to `packed`.
    ///
    /// # Errors
    /// The bytes are no such value, or something follows it.
    pub fn unpack(
        &self,
        procedure: &Procedure,
        part: Part,
        packed: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        self.transcode(procedure, part, Direction::ToXdr, packed, out)
    }

    /// Checks that no procedure's result has always more packed bytes than `most`.
    ///
    /// # Errors
    /// One has.
    pub(crate) fn check_results(&self, interface: &str, most: usize) -> Result<(), Refusal> {
        for procedure in &self.procedures {
            let least = self.empty_result(procedure).len();
            if least > most {
                let part = format!("{}, result", procedure.name);
                let why = format!("it has at least {least} bytes, and a packet takes {most}");
                return Err(Refusal { interface: interface.into(), part, why });
            }
        }
        Ok(())
    }

    /// Returns the packed bytes of a result whose numbers are 0 and whose parts are empty. A server that
    /// failed sends it beside the return code, because clients in C unpack a result whatever the code is.
    pub fn empty_result(&self, procedure: &Procedure) -> Vec<u8> {
        let mut out = Vec::new();
        walk::empty(&self.types, &procedure.result, &mut out);
        out
    }

    fn transcode(
        &self,
        procedure: &Procedure,
        part: Part,
        direction: Direction,
        from: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let start = out.len();
        let transcoded = match part {
            Part::Arguments => walk::fields(&self.types, direction, &procedure.arguments, from, out)
                .map_err(|why| why.within("arguments")),
            Part::Result => walk::value(&self.types, direction, &procedure.result, from, out)
                .map_err(|why| why.within("result")),
        };
        if transcoded.is_err() {
            out.truncate(start);
        }
        transcoded
    }
}

impl Procedure {
    /// Returns the procedure's number, which is its opcode.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns the procedure's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether the procedure declares an exception, which brings its return code to the caller.
    pub fn has_errors(&self) -> bool {
        self.has_errors
    }

    /// Returns whether the procedure has an argument or a result that is a stream. RPC2 sends such data
    /// beside the call, by SFTP, which this crate does not speak.
    pub fn has_bulk(&self) -> bool {
        self.has_bulk
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refusal { interface, part, why } = self;
        let dot = if part.is_empty() { "" } else { "." };
        write!(f, "RPC2 cannot carry the calls of {interface}{dot}{part}: {why}")
    }
}

impl std::error::Error for Refusal {}

type Checked<T> = Result<T, (String, String)>;

fn roots(procedure: &idl::Procedure) -> impl Iterator<Item = Type> {
    let arguments = procedure.arguments.iter().map(|argument| &argument.ty);
    arguments.chain([&procedure.result, &procedure.exception]).cloned()
}

fn made(types: &Types, procedure: &idl::Procedure) -> Checked<Procedure> {
    let name = procedure.name.clone();
    let refuse = |part: &str, why: String| Err((format!("{name}{part}"), why));
    if procedure.oneway {
        return refuse("", "it is one-way, and in RPC2 each call has a reply".into());
    }
    let has_bulk = procedure.has_streams();
    let bulk = procedure.argument_stream().map(|(index, _)| index);
    let mut arguments = Vec::new();
    for (index, argument) in procedure.arguments.iter().enumerate() {
        if bulk == Some(index) {
            continue;
        }
        if let Err(why) = check(&argument.ty) {
            return refuse(&format!(", argument {}", argument.name), why);
        }
        arguments.push((argument.name.clone(), argument.ty.clone()));
    }
    let result = match procedure.result_stream() {
        Some(_) => Type::Void,
        None => procedure.result.clone(),
    };
    if result != Type::Void
        && let Err(why) = check(&result)
    {
        return refuse(", result", why);
    }
    let has_errors = procedure.exception != Type::Void;
    if has_errors && !is_error_of(types, &procedure.exception, &result) {
        let why = "it is no struct of an i32, the return code, and then what the result has";
        return refuse(", exception", why.into());
    }
    Ok(Procedure {
        number: procedure.number,
        name: procedure.name.clone(),
        arguments,
        result,
        has_errors,
        has_bulk,
    })
}

/// Returns whether an exception is a return code with the same fields as the result.
fn is_error_of(types: &Types, exception: &Type, result: &Type) -> bool {
    let fields = |ty: &Type| match ty {
        Type::Named(place) => match &types.get(*place)?.body {
            Body::Struct { fields, .. } => Some(fields.iter().map(|field| &field.ty).collect::<Vec<_>>()),
            Body::Union { .. } => None,
        },
        _ => None,
    };
    let Some(of_error) = fields(exception) else { return false };
    let Some((Type::I32, rest)) = of_error.split_first() else { return false };
    match result {
        Type::Void => rest.is_empty(),
        result => *rest == [result] || fields(result).is_some_and(|of_result| of_result == *rest),
    }
}

/// Checks the parts of a definition. Each part's own definition is checked for itself.
fn check_definition(definition: &Definition) -> Checked<()> {
    let name = &definition.name;
    match &definition.body {
        Body::Struct { extensible: true, .. } => {
            Err((name.clone(), "it is extensible, and structs of RPC2 are not".into()))
        }
        Body::Struct { fields, .. } => fields
            .iter()
            .try_for_each(|field| check(&field.ty).map_err(|why| (format!("{name}.{}", field.name), why))),
        Body::Union { arms } => arms.iter().try_for_each(|arm| match arm.tag {
            Some(_) if arm.fields.is_empty() => Ok(()),
            Some(_) => Err((format!("{name}.{}", arm.name), "enums of RPC2 have no fields".into())),
            None => Err((format!("{name}.{}", arm.name), "enums of RPC2 have no default".into())),
        }),
    }
}

/// Checks a type. `Types::check` bounds its depth.
fn check(ty: &Type) -> Result<(), String> {
    match ty {
        Type::I32 | Type::U32 | Type::U8 | Type::F64 | Type::Named(_) => Ok(()),
        Type::Opaque { .. } | Type::Bytes { .. } | Type::String { .. } => Ok(()),
        Type::List { element, .. } => match &**element {
            Type::Named(_) => Ok(()),
            _ => Err("RPC2 has lists of structs only".into()),
        },
        Type::Array { .. } => Err("RPC2 has arrays of bytes only".into()),
        Type::Void | Type::Tuple(_) => Err("RPC2 has no tuples; a struct can say it".into()),
        Type::Bool => Err("RPC2 has no booleans; an enum can say it".into()),
        Type::I8 | Type::I16 | Type::U16 => Err("numbers of RPC2 have 32 bits; u8 is an RPC2_Byte".into()),
        Type::I64 | Type::U64 => Err("a number of 64 bits; the largest ones have 32".into()),
        Type::F32 => Err("RPC2 has floating-point numbers of 64 bits only".into()),
        Type::Optional(_) => Err("RPC2 has no optional data; a list can say it".into()),
        Type::Chain(_) => Err("RPC2 has no linked lists".into()),
    }
}
