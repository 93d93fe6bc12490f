//! Calls that are made without the source of an interface, from the exporter's own description of it. Tools
//! make such calls.

use std::borrow::Cow;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use farcall_memory::TYPE;
use farcall_memory::clerk::COUNTERS;

use crate::builtin::{BALANCERS, CONVERSATIONS, DESCRIBE, HEALTH, ORIGINS};
use crate::env::Time;

use crate::idl::{self, Interface};
use crate::multi::{Group, Members, Multi, Prepared, Roster};
use crate::origins::Origins;
use crate::runtime::Runtime;
use crate::stub::{
    self, Binding, Client, Handled, Handler, InterfaceId, Procedure, SignalId, Unwinds, bad_arguments,
};
use crate::xdr::{self, Decode, Decoder, Encode, Encoder};
use crate::{Answer, CallFailed, Error, Kind, Pending, Ran, Stream};

pub use crate::balancers::Balancing;
pub use crate::builtin::{Description, Health};
pub use crate::conversations::{Conversation, Conversations, Protection, ServerIdentity};

/// A binding to an export, with the exporter's description of it.
///
/// ```
/// use std::sync::Arc;
/// use farcall::{dynamic::Dynamic, idl, xdr};
///
/// #[farcall::interface]
/// pub trait Echo {
///     fn twice(&self, text: &str) -> farcall::Result<String>;
/// }
///
/// struct Server;
/// impl Echo for Server {
///     fn twice(&self, text: &str) -> farcall::Result<String> {
///         Ok(text.repeat(2))
///     }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let runtime = farcall::Runtime::builder().registry(farcall::names::Memory::new()).build()?;
/// let export = runtime.export::<dyn Echo>("Echo", Arc::new(Server))?;
/// let echo = Dynamic::import(&runtime, "Echo")?;
/// let twice = echo.interface().by_name("twice").ok_or("no such procedure")?;
/// let result = echo.call(twice, &xdr::to_vec("ab")?).map_err(|why| why.to_string())?;
/// assert_eq!(result, xdr::to_vec("abab")?);
/// # Ok(())
/// # }
/// ```
///
/// The items of a stream are encoded too, and so are the arguments and answers of a signal:
///
/// ```
/// use std::sync::Arc;
/// use farcall::{Answer, Result, Stream, xdr};
/// use farcall::dynamic::{Dynamic, Encoded};
///
/// #[farcall::interface]
/// pub trait Numbers {
///     fn below(&self, limit: u64) -> Result<Stream<u64>>;
///     #[signal]
///     fn more(&self, limit: u64) -> bool;
/// }
///
/// struct Server;
/// impl Numbers for Server {
///     fn below(&self, limit: u64) -> Result<Stream<u64>> {
///         let limit = if NumbersSignals::more(limit)? { 2 * limit } else { limit };
///         Ok(Stream::of(0..limit))
///     }
/// }
///
/// # fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
/// # let runtime = farcall::Runtime::builder().registry(farcall::names::Memory::new()).build()?;
/// let export = runtime.export::<dyn Numbers>("Numbers", Arc::new(Server))?;
/// let yes = Encoded(xdr::to_vec(&true)?);
/// let numbers = Dynamic::import(&runtime, "Numbers")?.catching(move |_| Answer::Resume(yes.clone()));
/// let below = numbers.interface().by_name("below").ok_or("no such procedure")?;
/// let items = numbers.call_stream(below, &xdr::to_vec(&2u64)?, None).map_err(|why| why.to_string())?;
/// assert_eq!(items.count(), 4);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Dynamic {
    binding: Binding,
    description: Description,
}

impl Dynamic {
    /// Asks the exporter of a name for its description, and binds the name with it. If a later call goes to
    /// an exporter whose procedures have other types, the call fails without running.
    ///
    /// # Errors
    /// When no server exports the name, none answers, or the exporter does not describe itself.
    pub fn import(runtime: &Runtime, name: &str) -> crate::Result<Dynamic> {
        Dynamic::import_by(runtime, name, None)
    }

    /// Imports a name, as [`Dynamic::import`] does, within this time.
    ///
    /// # Errors
    /// Those of [`Dynamic::import`]; [`Kind::Deadline`] if the time has passed.
    pub fn import_within(runtime: &Runtime, name: &str, time: Duration) -> crate::Result<Dynamic> {
        Dynamic::import_by(runtime, name, Some(runtime.after(time)))
    }

    fn import_by(runtime: &Runtime, name: &str, deadline: Option<Time>) -> crate::Result<Dynamic> {
        let description = describe_by(runtime, name, deadline)?;
        let binding = runtime.binding(name, Cow::Owned(description.interface.clone()), deadline)?;
        Ok(Dynamic { binding, description })
    }

    /// Makes a `Dynamic` from a binding, and a description that comes from elsewhere, for example from an
    /// `.x` file. This is for servers that do not describe themselves.
    pub fn described(binding: Binding, interface: Interface) -> Dynamic {
        Dynamic { binding, description: Description { interface, farcall: String::new(), wire: Vec::new() } }
    }

    /// Returns this binding with a deadline on each call.
    #[must_use]
    pub fn within(&self, deadline: Duration) -> Dynamic {
        Dynamic { binding: self.binding.within(deadline), ..self.clone() }
    }

    /// Returns the exported interface.
    pub fn interface(&self) -> &Interface {
        &self.description.interface
    }

    /// Returns the exporter's description.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// Returns this binding with a handler that answers the signals raised in its calls. The handler gets the
    /// signal with its encoded arguments and the procedure that has raised it, and resumes the procedure with
    /// an encoded value. Handlers that are added later are asked first.
    #[must_use]
    pub fn catching(
        &self,
        answer: impl Fn(&Raised<'_>) -> Answer<Encoded> + Send + Sync + 'static,
    ) -> Dynamic {
        let (interface, ids) = (self.interface().clone(), SignalId::all(self.interface()));
        Dynamic { binding: self.binding.catching(Catching { interface, ids, answer }), ..self.clone() }
    }

    /// Calls a procedure with encoded arguments, and returns its encoded result.
    ///
    /// # Errors
    /// Those of any call. `Declared` holds the encoded exception. The call fails without running if the
    /// procedure has streams.
    pub fn call(&self, procedure: &idl::Procedure, arguments: &[u8]) -> crate::Result<Vec<u8>, Vec<u8>> {
        if procedure.has_streams() {
            return Err(wrong_call("an argument or the result is a stream").into());
        }
        let called = self.stub_procedure(procedure);
        plain(self.binding.call::<Encoded, Encoded>(&called, &|e| e.opaque(arguments)))
    }

    /// Starts a call of a procedure with encoded arguments, and returns its handle at once. The handle gives
    /// the encoded result, or the encoded exception. [`Calls`](crate::Calls) collects many such handles.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use farcall::{Calls, dynamic::Dynamic, xdr};
    /// # #[farcall::interface]
    /// # pub trait Echo { fn twice(&self, text: &str) -> farcall::Result<String>; }
    /// # struct Server;
    /// # impl Echo for Server {
    /// #     fn twice(&self, text: &str) -> farcall::Result<String> { Ok(text.repeat(2)) }
    /// # }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let runtime = farcall::Runtime::builder().registry(farcall::names::Memory::new()).build()?;
    /// # let export = runtime.export::<dyn Echo>("Echo", Arc::new(Server))?;
    /// let echo = Dynamic::import(&runtime, "Echo")?;
    /// let twice = echo.interface().by_name("twice").ok_or("no such procedure")?;
    /// let mut calls = Calls::new();
    /// for text in ["ab", "cd"] {
    ///     calls.add(text, echo.start(twice, &xdr::to_vec(text)?));
    /// }
    /// while let Some((text, result)) = calls.wait() {
    ///     let result = result.map_err(|why| format!("{why:?}"))?;
    ///     assert_eq!(result.0, xdr::to_vec(&text.repeat(2))?);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The handle reports the errors of [`call`](Dynamic::call). If the procedure has streams, the call has
    /// failed already when this returns, without running.
    pub fn start(&self, procedure: &idl::Procedure, arguments: &[u8]) -> Pending<Encoded, Encoded> {
        if procedure.has_streams() {
            return Pending::new(Box::new(wrong_call("an argument or the result is a stream")));
        }
        let called = self.stub_procedure(procedure);
        self.binding.start(&called, &|e| e.opaque(arguments))
    }

    /// Calls a procedure that has one stream, which is an argument, and returns its encoded result. In the
    /// place of the stream the encoded arguments have [`STREAM`].
    ///
    /// # Errors
    /// Those of any call. `Declared` holds the encoded exception. Another procedure is not called.
    pub fn call_sending(
        &self,
        procedure: &idl::Procedure,
        arguments: &[u8],
        items: Stream<Encoded>,
    ) -> crate::Result<Vec<u8>, Vec<u8>> {
        if procedure.argument_stream().is_none() || procedure.result_stream().is_some() {
            return Err(wrong_call("not one argument alone is a stream").into());
        }
        let called = self.stub_procedure(procedure);
        plain(self.binding.call_sending::<Encoded, Encoded>(
            &called,
            &|e| e.opaque(arguments),
            items.into_argument(),
        ))
    }

    /// Calls a procedure whose result is a stream, and blocks until the server begins to send it. If one
    /// argument is a stream, the items are sent as well, and the encoded arguments have [`STREAM`] in its
    /// place.
    ///
    /// # Errors
    /// Those of any call. `Declared` holds the encoded exception. Another procedure is not called.
    pub fn call_stream(
        &self,
        procedure: &idl::Procedure,
        arguments: &[u8],
        items: Option<Stream<Encoded>>,
    ) -> crate::Result<Stream<Encoded, Encoded>, Vec<u8>> {
        if procedure.result_stream().is_none() || procedure.argument_stream().is_some() != items.is_some() {
            return Err(wrong_call("other parts of the call are streams").into());
        }
        let called = self.stub_procedure(procedure);
        let encode = &|e: &mut Encoder<'_>| e.opaque(arguments);
        let begun = match items {
            None => self.binding.call(&called, encode),
            Some(items) => self.binding.call_both(&called, encode, items.into_argument_of_thread()),
        };
        begun.map_err(|why: Error<Encoded>| why.map_declared(|Encoded(exception)| exception))
    }

    fn stub_procedure(&self, procedure: &idl::Procedure) -> Procedure {
        stub_procedure(self.interface(), procedure)
    }
}

/// The bytes that stand for a stream among encoded arguments: the number of the stream's exchange.
pub const STREAM: [u8; 4] = [0, 0, 0, 1];

fn plain(outcome: crate::Result<Encoded, Encoded>) -> crate::Result<Vec<u8>, Vec<u8>> {
    outcome.map(|Encoded(result)| result).map_err(|why| why.map_declared(|Encoded(exception)| exception))
}

/// Returns the failure of a call by a method that does not fit the procedure.
fn wrong_call(why: &'static str) -> CallFailed {
    CallFailed::new(Kind::Local, Ran::No).because(why)
}

/// A signal that a server has raised in a call of a described interface.
#[derive(Clone, Copy, Debug)]
pub struct Raised<'a> {
    /// The signal.
    pub signal: &'a idl::Procedure,
    /// The signal's encoded arguments.
    pub arguments: &'a [u8],
    /// The procedure that was called, and that has raised the signal.
    pub procedure: &'a idl::Procedure,
}

impl Raised<'_> {
    /// Returns the answer that unwinds the call. Its caller leaves with this encoded result or exception of
    /// the procedure, or this failure.
    pub fn unwind(&self, outcome: crate::Result<Encoded, Encoded>) -> Answer<Encoded> {
        Unwinds::new(self.procedure.number).unwind(outcome)
    }
}

/// Answers the signals of a described interface by a function.
struct Catching<F> {
    interface: Interface,
    /// What the interface's signals are known by, in their order.
    ids: Vec<SignalId>,
    answer: F,
}

impl<F> Handler for Catching<F>
where
    F: Fn(&Raised<'_>) -> Answer<Encoded>,
{
    fn handle(&self, raised: &stub::Raised, arguments: &mut Decoder<'_>) -> Result<Handled, CallFailed> {
        let Interface { procedures, signals, .. } = &self.interface;
        let is_it = |(id, _): &(&SignalId, _)| **id == raised.signal;
        let signal = self.ids.iter().zip(signals).find(is_it).map(|(_, signal)| signal);
        let procedure = procedures.iter().find(|procedure| Some(procedure.number) == raised.procedure);
        let (Some(signal), Some(procedure)) = (signal, procedure) else { return Ok(Handled::Pass) };
        let arguments = arguments.opaque(arguments.remaining()).map_err(bad_arguments)?;
        let answer = (self.answer)(&Raised { signal, arguments, procedure });
        stub::answered(answer, raised, || &self.interface)
    }
}

/// All instances of a type, with the description that one of them gave.
///
/// ```
/// use std::sync::Arc;
/// use farcall::{dynamic::Instances, multi::Next, xdr};
///
/// #[farcall::interface]
/// pub trait Echo {
///     fn twice(&self, text: &str) -> farcall::Result<String>;
/// }
///
/// struct Server;
/// impl Echo for Server {
///     fn twice(&self, text: &str) -> farcall::Result<String> {
///         Ok(text.repeat(2))
///     }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let runtime = farcall::Runtime::builder().registry(farcall::names::Memory::new()).build()?;
/// let exports = [("Echo/a", Server), ("Echo/b", Server)]
///     .map(|(name, server)| runtime.export::<dyn Echo>(name, Arc::new(server)));
/// let echoes = Instances::import(&runtime, "Echo")?;
/// let twice = echoes.interface().by_name("twice").ok_or("no such procedure")?;
/// let results = echoes.multi(twice, &xdr::to_vec("ab")?).all();
/// assert!(results.results().all(|(_, result)| result.0 == xdr::to_vec("abab").unwrap()));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Instances {
    roster: Arc<dyn Roster>,
    description: Description,
}

impl Instances {
    /// Asks one instance for its description, and binds to all instances of the name. A call to an instance
    /// whose procedures have other types fails.
    ///
    /// # Errors
    /// When no server exports the name, none answers, or the exporter does not describe itself.
    pub fn import(runtime: &Runtime, name: &str) -> crate::Result<Instances> {
        Instances::import_by(runtime, name, None)
    }

    /// Imports all instances of a name, as [`Instances::import`] does, within this time.
    ///
    /// # Errors
    /// Those of [`Instances::import`]; [`Kind::Deadline`] if the time has passed.
    pub fn import_within(runtime: &Runtime, name: &str, time: Duration) -> crate::Result<Instances> {
        Instances::import_by(runtime, name, Some(runtime.after(time)))
    }

    fn import_by(runtime: &Runtime, name: &str, deadline: Option<Time>) -> crate::Result<Instances> {
        let description = describe_by(runtime, name, deadline)?;
        let roster = runtime.roster(name, Cow::Owned(description.interface.clone()), deadline)?;
        Ok(Instances { roster, description })
    }

    /// Returns the exported interface.
    pub fn interface(&self) -> &Interface {
        &self.description.interface
    }

    /// Returns the present members.
    pub fn members(&self) -> Members {
        self.roster.members()
    }

    /// Returns a binding whose calls each go to one instance, which is chosen when the call is made.
    /// [`Balancer`](crate::balance::Balancer) says how. A call that did not run goes to another instance.
    ///
    /// Starting a call asks the registry now and then which instances there are. It waits for none of them.
    pub fn balanced(&self) -> Dynamic {
        let group = Group::<Plain>::living(self.roster.clone());
        Dynamic { binding: group.balanced().0, description: self.description.clone() }
    }

    /// Prepares a call of all present members, with encoded arguments.
    pub fn multi(&self, procedure: &idl::Procedure, arguments: &[u8]) -> Multi<Encoded, Encoded> {
        Multi::new(
            self.members(),
            Prepared::of(Cow::Owned(stub_procedure(self.interface(), procedure)), &|e| e.opaque(arguments)),
        )
    }
}

/// The user-stub of an interface without methods.
#[derive(Clone)]
struct Plain(Binding);

impl From<Binding> for Plain {
    fn from(binding: Binding) -> Plain {
        Plain(binding)
    }
}

impl Client for Plain {
    type Multi<M> = ();
    type Prepare = ();

    fn binding(&self) -> &Binding {
        &self.0
    }

    fn multi<M>(_: Members) -> Self::Multi<M> {}
}

impl fmt::Debug for Instances {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Instances").field("description", &self.description).finish_non_exhaustive()
    }
}

fn stub_procedure(interface: &Interface, procedure: &idl::Procedure) -> Procedure {
    Procedure {
        number: procedure.number,
        name: "the procedure",
        interface: InterfaceId::of(&interface.name),
        idempotent: procedure.idempotent,
        blocking: procedure.blocking,
        // Only servers use this field.
        uncancelled: false,
        exchanges: interface.has_exchanges(procedure),
        deadline: procedure.deadline_ms.map(Duration::from_millis),
    }
}

/// Asks an exporter what it exports.
///
/// # Errors
/// When no server exports the name, none answers, or the exporter does not describe itself. The error is
/// [`Kind::NoSuchProcedure`] if the exporter does not describe itself.
pub fn describe(runtime: &Runtime, name: &str) -> crate::Result<Description> {
    describe_by(runtime, name, None)
}

/// Asks an exporter what it exports, until the deadline at most.
fn describe_by(runtime: &Runtime, name: &str, deadline: Option<Time>) -> crate::Result<Description> {
    let mut binding = runtime.binding(name, Cow::Owned(Interface::new("")), deadline)?;
    if let Some(deadline) = deadline {
        binding = binding.within(deadline.since(runtime.after(Duration::ZERO)));
    }
    binding.call(&DESCRIBE, &|_| Ok(()))
}

/// Asks the server at an address for the balancers of its process: those of the groups that the server's
/// runtime follows in the registry. At most 64 of them are shown, and at most 1,000 members of all of them
/// together. The call takes at most `within`.
///
/// # Errors
/// When no server answers there, or the server does not describe itself. The error is
/// [`Kind::NoSuchProcedure`] if the server is of an older version.
pub fn balancers(runtime: &Runtime, address: SocketAddr, within: Duration) -> crate::Result<Vec<Balancing>> {
    beside_counters(runtime, address, within)?.call(&BALANCERS, &|_| Ok(()))
}

/// Asks the server at an address where the settings of its runtime come from: which ones its program has
/// made, and which ones variables of its environment have filled in. The call takes at most `within`.
///
/// # Errors
/// When no server answers there, it does not let this runtime read its counters, or it does not describe
/// itself. The error is [`Kind::NoSuchProcedure`] if the server is of an older version.
pub fn origins(runtime: &Runtime, address: SocketAddr, within: Duration) -> crate::Result<Origins> {
    beside_counters(runtime, address, within)?.call(&ORIGINS, &|_| Ok(()))
}

/// Asks the server at an address for its own identity and its conversations: the level of each, who the
/// client is, and how old its keys are. At most 64 conversations are shown: first those with the most running
/// calls, then those whose clients were heard last. The call takes at most `within`.
///
/// A policy decides about this as about the server's counters (`@counters`). A server without a policy shows
/// each client its own conversations only. A server without keys has nothing to show. A server with more than
/// about 100,000 conversations looks at as many of them for each answer, the next ones each time.
///
/// # Errors
/// When no server answers there, it does not let this runtime read its counters, or it does not describe
/// itself. The error is [`Kind::NoSuchProcedure`] if the server is of an older version.
///
/// ```no_run
/// # fn main() -> farcall::Result<()> {
/// # let runtime = farcall::Runtime::builder().build()?;
/// let address = "10.0.0.7:7000".parse().unwrap();
/// let shown = farcall::dynamic::conversations(&runtime, address, std::time::Duration::from_secs(1))?;
/// for conversation in &shown.conversations {
///     println!("{} since {:?}", conversation.principal, conversation.handshake);
/// }
/// # Ok(())
/// # }
/// ```
pub fn conversations(
    runtime: &Runtime,
    address: SocketAddr,
    within: Duration,
) -> crate::Result<Conversations> {
    beside_counters(runtime, address, within)?.call(&CONVERSATIONS, &|_| Ok(()))
}

/// Returns a binding to the export of a server's counters.
fn beside_counters(runtime: &Runtime, address: SocketAddr, within: Duration) -> crate::Result<Binding> {
    let name = format!("udp://{address}/{TYPE}/{COUNTERS}");
    let deadline = runtime.after(within);
    let binding = runtime.binding(&name, Cow::Owned(Interface::new("")), Some(deadline))?;
    Ok(binding.within(deadline.since(runtime.after(Duration::ZERO))))
}

/// A binding for asking an exporter repeatedly whether it is alive.
#[derive(Clone, Debug)]
pub struct Pinger(Binding);

impl Pinger {
    /// Binds to the export of a name, whatever its interface.
    ///
    /// # Errors
    /// When no server exports the name, or none answers.
    pub fn import(runtime: &Runtime, name: &str) -> crate::Result<Pinger> {
        Ok(Pinger(runtime.binding(name, Cow::Owned(Interface::new("")), None)?))
    }

    /// Binds to the export of a name, as [`Pinger::import`] does, within this time.
    ///
    /// # Errors
    /// Those of [`Pinger::import`]; [`Kind::Deadline`] if the time has passed.
    pub fn import_within(runtime: &Runtime, name: &str, time: Duration) -> crate::Result<Pinger> {
        let deadline = Some(runtime.after(time));
        Ok(Pinger(runtime.binding(name, Cow::Owned(Interface::new("")), deadline)?))
    }

    /// Returns this binding with a deadline on each ping.
    #[must_use]
    pub fn within(&self, deadline: Duration) -> Pinger {
        Pinger(self.0.within(deadline))
    }

    /// Asks the exporter for its health, by a call without arguments.
    ///
    /// # Errors
    /// Those of any call.
    pub fn ping(&self) -> crate::Result<Health> {
        self.0.call(&HEALTH, &|_| Ok(()))
    }
}

/// A value that stays encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded(pub Vec<u8>);

impl<'a> Decode<'a> for Encoded {
    fn decode(d: &mut Decoder<'a>) -> Result<Self, xdr::Error> {
        let bytes = d.opaque(d.remaining())?;
        let copied = farcall_core::room::copied(bytes);
        Ok(Encoded(copied.map_err(|why| d.error(xdr::ErrorKind::NoMemory(why.bytes)))?))
    }
}

impl Encode for Encoded {
    fn encode(&self, e: &mut Encoder<'_>) -> Result<(), xdr::Error> {
        e.opaque(&self.0)
    }
}
