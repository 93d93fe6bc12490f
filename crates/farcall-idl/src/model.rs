//! The description of an interface at run time: names, documentation, procedures and wire types. A server
//! sends it when a tool asks for the description.

use std::fmt;

use crate::spell::stream_item;
use farcall_base::work;
use farcall_xdr::schema::{Arm, Body, Field, Type, TypeHashes, Types, name_hash};
use farcall_xdr::{Decode, Decoder, Encode, Encoder, Error, ErrorKind, Schema};

/// The version of the encoding of a description without signals.
const VERSION: u32 = 1;
/// The version of the encoding of a description with signals.
const WITH_SIGNALS: u32 = 2;
/// The maximum size of an encoded description in bytes. The largest interfaces in use have 100 KiB.
const MAX_DESCRIPTION_BYTES: usize = 1 << 20;
/// The maximum length of a name in a description in bytes, as in an interface file. A name is shown wherever
/// its type is used.
const MAX_NAME_BYTES: usize = 1 << 10;

/// The description of one interface: everything that a tool needs to call it without its source.
///
/// ```
/// use farcall_idl::Interface;
/// let mut store = Interface::new("Store");
/// store.procedure(1, "get").docs("The value under `key`.").argument::<String>("key").result::<u64>().idempotent();
/// let get = store.by_name("get").unwrap();
/// assert_eq!(store.signature(get), "get(key: string<>) -> u64");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The type in an interface name: `Store` in `"Store/ebbets"`.
    pub name: String,
    /// Documentation, in Markdown.
    pub docs: String,
    /// The procedures, in the order of their declaration.
    pub procedures: Vec<Procedure>,
    /// The signals that a procedure can send to its caller during a call, in the order of their declaration.
    /// Signals have no numbers: their names and types identify them.
    pub signals: Vec<Procedure>,
    /// The named types to which `procedures` and `signals` refer.
    pub types: Types,
}

/// One procedure of an [`Interface`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Procedure {
    /// The procedure's number on the wire.
    pub number: u32,
    /// The procedure's name.
    pub name: String,
    /// Documentation, in Markdown.
    pub docs: String,
    /// The arguments, in the order in which they are encoded.
    pub arguments: Vec<Argument>,
    /// The wire type of the result, or void if there is none.
    pub result: Type,
    /// The wire type of the declared exception, or void if there is none.
    pub exception: Type,
    /// Whether the procedure may run twice without harm.
    pub idempotent: bool,
    /// Whether the procedure is known to be slow.
    pub blocking: bool,
    /// The maximum time that a call may take, in milliseconds, unless its caller sets a shorter deadline.
    pub deadline_ms: Option<u64>,
    /// Whether the procedure is one-way: callers do not wait, and get no result.
    pub oneway: bool,
    /// Whether the source sets the number explicitly (pins it). A pinned number identifies the procedure, so
    /// the procedure may be renamed.
    pub pinned: bool,
}

/// The part of a procedure's description that a binding compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// The procedure's number on the wire.
    pub number: u32,
    /// A hash of the wire types. Calls are compatible between procedures with equal hashes.
    pub types: u64,
    /// A hash of the name. Its last bit is not part of the hash: it says whether the number is pinned.
    pub name: u64,
}

impl Fingerprint {
    /// Returns whether the number is pinned.
    pub fn is_pinned(&self) -> bool {
        self.name & 1 == 1
    }

    /// Returns a hash of the name, which is equal for two procedures of one name.
    pub fn name_hash(&self) -> u64 {
        self.name & !1
    }
}

/// One argument of a [`Procedure`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    /// The argument's name.
    pub name: String,
    /// The argument's wire type.
    pub ty: Type,
}

impl Interface {
    /// Returns an interface without procedures.
    pub fn new(name: impl Into<String>) -> Interface {
        let (docs, types) = (String::new(), Types::new());
        Interface { name: name.into(), docs, procedures: Vec::new(), signals: Vec::new(), types }
    }

    /// Sets the documentation.
    #[must_use]
    pub fn docs(mut self, docs: impl Into<String>) -> Interface {
        self.docs = docs.into();
        self
    }

    /// Adds a procedure. The returned [`Builder`] sets its details.
    pub fn procedure(&mut self, number: u32, name: impl Into<String>) -> Builder<'_> {
        Builder::new(&mut self.procedures, Procedure::new(number, name), &mut self.types)
    }

    /// Adds a signal. The returned [`Builder`] sets its arguments and its result.
    pub fn signal(&mut self, name: impl Into<String>) -> Builder<'_> {
        Builder::new(&mut self.signals, Procedure::new(0, name), &mut self.types)
    }

    /// Returns the procedure of this name.
    pub fn by_name(&self, name: &str) -> Option<&Procedure> {
        self.procedures.iter().find(|procedure| procedure.name == name)
    }

    /// Returns the procedure of this number.
    pub fn by_number(&self, number: u32) -> Option<&Procedure> {
        self.procedures.iter().find(|procedure| procedure.number == number)
    }

    /// Returns the signal of this name.
    pub fn signal_by_name(&self, name: &str) -> Option<&Procedure> {
        self.signals.iter().find(|signal| signal.name == name)
    }

    /// Returns whether a call of the procedure can have exchanges: signals or streams that pass while the
    /// call runs.
    pub fn has_exchanges(&self, procedure: &Procedure) -> bool {
        !self.signals.is_empty() || procedure.has_streams()
    }

    /// Returns whether any procedure is one-way.
    pub fn has_oneway(&self) -> bool {
        self.procedures.iter().any(|procedure| procedure.oneway)
    }

    /// Returns the names in the description.
    fn names(&self) -> impl Iterator<Item = &str> {
        let procedures = self.procedures.iter().chain(&self.signals).flat_map(|procedure| {
            let arguments = procedure.arguments.iter().map(|argument| &argument.name);
            arguments.chain([&procedure.name])
        });
        let types = self.types.definitions().iter().flat_map(|definition| {
            let (fields, arms): (&[Field], &[Arm]) = match &definition.body {
                Body::Struct { fields, .. } => (fields, &[]),
                Body::Union { arms } => (&[], arms),
            };
            let arms =
                arms.iter().flat_map(|arm| arm.fields.iter().map(|field| &field.name).chain([&arm.name]));
            fields.iter().map(|field| &field.name).chain(arms).chain([&definition.name])
        });
        procedures.chain(types).chain([&self.name]).inspect(|_| work::step()).map(String::as_str)
    }

    /// Returns the part of each procedure's description that a binding compares.
    pub fn fingerprints(&self) -> Vec<Fingerprint> {
        let hashes = TypeHashes::new(&self.types);
        let fingerprint = |procedure: &Procedure| Fingerprint {
            number: procedure.number,
            types: procedure.fingerprint(&hashes),
            name: name_hash(&procedure.name) & !1 | u64::from(procedure.pinned),
        };
        self.procedures.iter().map(fingerprint).collect()
    }

    /// Returns the procedure on one line: `get(key: string<255>) -> u64 raises NoSuchKey`.
    pub fn signature(&self, procedure: &Procedure) -> String {
        let spell = |ty: &Type| crate::spell(&self.types, ty);
        let arguments: Vec<String> = procedure
            .arguments
            .iter()
            .map(|argument| format!("{}: {}", argument.name, spell(&argument.ty)))
            .collect();
        let mut line = format!("{}({})", procedure.name, arguments.join(", "));
        if procedure.result != Type::Void {
            line += &format!(" -> {}", spell(&procedure.result));
        }
        if procedure.exception != Type::Void {
            line += &format!(" raises {}", spell(&procedure.exception));
        }
        line
    }
}

/// A builder that sets the details of a new procedure.
#[derive(Debug)]
pub struct Builder<'a> {
    procedure: &'a mut Procedure,
    types: &'a mut Types,
}

impl<'a> Builder<'a> {
    fn new(list: &'a mut Vec<Procedure>, procedure: Procedure, types: &'a mut Types) -> Builder<'a> {
        list.push(procedure);
        let last = list.len() - 1;
        Builder { procedure: &mut list[last], types }
    }

    /// Sets the documentation, in Markdown.
    pub fn docs(self, docs: impl Into<String>) -> Self {
        self.procedure.docs = docs.into();
        self
    }

    /// Adds an argument.
    pub fn argument<T: Schema>(self, name: impl Into<String>) -> Self {
        let ty = T::schema(self.types);
        self.procedure.arguments.push(Argument { name: name.into(), ty });
        self
    }

    /// Adds an argument of at most `max` bytes or elements.
    pub fn argument_max<T: Schema>(self, name: impl Into<String>, max: u32) -> Self {
        let ty = T::schema(self.types).bounded(max);
        self.procedure.arguments.push(Argument { name: name.into(), ty });
        self
    }

    /// Sets the type of the result.
    pub fn result<T: Schema>(self) -> Self {
        self.procedure.result = T::schema(self.types);
        self
    }

    /// Sets the type of the declared exception.
    pub fn exception<E: Schema>(self) -> Self {
        self.procedure.exception = E::schema(self.types);
        self
    }

    /// Declares that the procedure may run twice without harm.
    pub fn idempotent(self) -> Self {
        self.procedure.idempotent = true;
        self
    }

    /// Declares that the procedure is slow.
    pub fn blocking(self) -> Self {
        self.procedure.blocking = true;
        self
    }

    /// Declares that the procedure is one-way: callers do not wait, and get no result.
    pub fn oneway(self) -> Self {
        self.procedure.oneway = true;
        self
    }

    /// Sets the maximum time that a call may take, in milliseconds, unless its caller sets a shorter
    /// deadline.
    pub fn deadline_ms(self, ms: u64) -> Self {
        self.procedure.deadline_ms = Some(ms);
        self
    }

    /// Declares that the number is pinned, by `#[procedure(n)]` or in an `.x` file.
    pub fn pinned(self) -> Self {
        self.procedure.pinned = true;
        self
    }
}

impl Procedure {
    fn new(number: u32, name: impl Into<String>) -> Procedure {
        Procedure {
            number,
            name: name.into(),
            docs: String::new(),
            arguments: Vec::new(),
            result: Type::Void,
            exception: Type::Void,
            idempotent: false,
            blocking: false,
            deadline_ms: None,
            oneway: false,
            pinned: false,
        }
    }

    /// Returns a hash of the name, which identifies a signal.
    pub fn name_hash(&self) -> u64 {
        name_hash(&self.name)
    }

    /// Returns a hash that is equal for two procedures between which calls are compatible. It depends only on
    /// the wire types of arguments, result and exception, not on names or documentation. `hashes` are those
    /// of the interface's table of types; one table serves all procedures.
    pub fn fingerprint(&self, hashes: &TypeHashes) -> u64 {
        let arguments = hashes.fingerprint(self.arguments.iter().map(|argument| &argument.ty));
        TypeHashes::together(&[arguments, hashes.of(&self.result), hashes.of(&self.exception)])
    }

    /// Returns the type of the result's items, if the result is a stream.
    pub fn result_stream(&self) -> Option<&Type> {
        stream_item(&self.result)
    }

    /// Returns the index of the argument that is a stream, and the type of its items.
    pub fn argument_stream(&self) -> Option<(usize, &Type)> {
        let items = self.arguments.iter().map(|argument| stream_item(&argument.ty));
        items.enumerate().find_map(|(index, item)| Some((index, item?)))
    }

    /// Returns whether the result or an argument is a stream.
    pub fn has_streams(&self) -> bool {
        self.result_stream().is_some() || self.argument_stream().is_some()
    }

    fn roots(&self) -> impl Iterator<Item = &Type> {
        self.arguments.iter().map(|argument| &argument.ty).chain([&self.result, &self.exception])
    }
}

impl Encode for Interface {
    fn encode(&self, e: &mut Encoder<'_>) -> Result<(), Error> {
        let version = if self.signals.is_empty() { VERSION } else { WITH_SIGNALS };
        (version, &self.name, &self.docs, &self.types, &self.procedures).encode(e)?;
        if version == WITH_SIGNALS { self.signals.encode(e) } else { Ok(()) }
    }
}

impl<'a> Decode<'a> for Interface {
    const MIN_SIZE: usize = 20;

    fn decode(d: &mut Decoder<'a>) -> Result<Self, Error> {
        let start = d.offset();
        let version = u32::decode(d)?;
        if version != VERSION && version != WITH_SIGNALS {
            let why = format!(
                "version {version} of the interface model; this program knows {VERSION} and {WITH_SIGNALS}"
            );
            return Err(d.error(ErrorKind::Invalid(why.into())));
        }
        let name = String::decode(d).map_err(|why| why.in_field("Interface", "name"))?;
        let docs = String::decode(d).map_err(|why| why.in_field("Interface", "docs"))?;
        let types = Types::decode(d).map_err(|why| why.in_field("Interface", "types"))?;
        let procedures =
            Vec::<Procedure>::decode(d).map_err(|why| why.in_field("Interface", "procedures"))?;
        let signals = match version {
            WITH_SIGNALS => {
                Vec::<Procedure>::decode(d).map_err(|why| why.in_field("Interface", "signals"))?
            }
            _ => Vec::new(),
        };
        // The table was checked when it was decoded, but the types that refer to it were not.
        let roots: Vec<Type> =
            procedures.iter().chain(&signals).flat_map(Procedure::roots).cloned().collect();
        types.check(&roots)?;
        let size = d.offset() - start;
        if size > MAX_DESCRIPTION_BYTES {
            let why = format!(
                "a description of {size} bytes, with {} procedures and {} types; it may have at most \
                 {MAX_DESCRIPTION_BYTES} bytes",
                procedures.len() + signals.len(),
                types.definitions().len()
            );
            return Err(d.error(ErrorKind::Invalid(why.into())));
        }
        let interface = Interface { name, docs, procedures, signals, types };
        if let Some(long) = interface.names().map(str::len).find(|length| *length > MAX_NAME_BYTES) {
            let why = format!("a name of {long} bytes; it may have at most {MAX_NAME_BYTES}");
            return Err(d.error(ErrorKind::Invalid(why.into())));
        }
        Ok(interface)
    }
}

/// Encodes each item as an extensible struct: its length, then its fields. A later version may add fields.
impl Encode for Procedure {
    fn encode(&self, e: &mut Encoder<'_>) -> Result<(), Error> {
        let Procedure { number, name, docs, arguments, result, exception, .. } = self;
        let Procedure { idempotent, blocking, deadline_ms, pinned, oneway, .. } = self;
        e.sized(|e| {
            (number, name, docs, arguments, result, exception).encode(e)?;
            (idempotent, blocking, deadline_ms, pinned).encode(e)?;
            // The flag is left out of ordinary procedures, because the first versions of the program do not
            // know it.
            if *oneway { oneway.encode(e) } else { Ok(()) }
        })
    }
}

impl<'a> Decode<'a> for Procedure {
    const MIN_SIZE: usize = 44;

    fn decode(d: &mut Decoder<'a>) -> Result<Self, Error> {
        d.sized(|d| {
            Ok(Procedure {
                number: Decode::decode(d)?,
                name: Decode::decode(d)?,
                docs: Decode::decode(d)?,
                arguments: Decode::decode(d)?,
                result: Decode::decode(d)?,
                exception: Decode::decode(d)?,
                idempotent: Decode::decode(d)?,
                blocking: Decode::decode(d)?,
                deadline_ms: Decode::decode(d)?,
                pinned: Decode::decode(d)?,
                oneway: d.remaining() > 0 && bool::decode(d)?,
            })
        })
    }
}

impl Encode for Argument {
    fn encode(&self, e: &mut Encoder<'_>) -> Result<(), Error> {
        (&self.name, &self.ty).encode(e)
    }
}

impl<'a> Decode<'a> for Argument {
    const MIN_SIZE: usize = 8;

    fn decode(d: &mut Decoder<'a>) -> Result<Self, Error> {
        Ok(Argument { name: Decode::decode(d)?, ty: Decode::decode(d)? })
    }
}

/// Writes the interface for people, much as a source file would declare it.
impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        document(f, "", &self.docs)?;
        writeln!(f, "interface {} {{", one_line(&self.name))?;
        for procedure in &self.procedures {
            document(f, "    ", &procedure.docs)?;
            write!(f, "    {:>3}  {}", procedure.number, one_line(&self.signature(procedure)))?;
            if procedure.idempotent {
                write!(f, ", idempotent")?;
            }
            if procedure.oneway {
                write!(f, ", one-way")?;
            }
            if let Some(ms) = procedure.deadline_ms {
                write!(f, ", within {ms} ms")?;
            }
            writeln!(f)?;
        }
        for signal in &self.signals {
            document(f, "    ", &signal.docs)?;
            writeln!(f, "    signal {}", one_line(&self.signature(signal)))?;
        }
        write!(f, "}}")
    }
}

/// Escapes line ends in a name, because names can come from a peer.
fn one_line(name: &str) -> String {
    name.replace('\r', "\\r").replace('\n', "\\n")
}

fn document(f: &mut fmt::Formatter<'_>, indent: &str, docs: &str) -> fmt::Result {
    docs.lines().try_for_each(|line| writeln!(f, "{}", format!("{indent}/// {line}").trim_end()))
}
