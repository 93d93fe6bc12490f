//! Calls without the source of an interface, by the exporter's own description of it, as tools make them.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::builtin::{DESCRIBE, HEALTH};
use crate::idl::{self, Interface};
use crate::multi::{Members, Multi, Prepared, Roster};
use crate::runtime::Runtime;
use crate::stub::{Binding, Procedure};
use crate::xdr::{self, Decode, Decoder};

pub use crate::builtin::{Description, Health};

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
#[derive(Clone, Debug)]
pub struct Dynamic {
    binding: Binding,
    description: Description,
}

impl Dynamic {
    /// Asks the exporter of a name for its description, and binds the name with it. If a later call goes to an
    /// exporter whose procedures have other types, the call fails without running.
    ///
    /// # Errors
    /// When no server exports the name, none answers, or the exporter does not describe itself.
    pub fn import(runtime: &Runtime, name: &str) -> crate::Result<Dynamic> {
        let description = describe(runtime, name)?;
        let binding = runtime.binding(name, Cow::Owned(description.interface.clone()))?;
        Ok(Dynamic { binding, description })
    }

    /// Makes a `Dynamic` of a binding and a description from another source, for example an `.x` file. This is
    /// for servers that do not describe themselves.
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

    /// Calls a procedure with encoded arguments, and returns its encoded result.
    ///
    /// # Errors
    /// Those of any call. `Declared` holds the encoded exception.
    pub fn call(&self, procedure: &idl::Procedure, arguments: &[u8]) -> crate::Result<Vec<u8>, Vec<u8>> {
        let outcome =
            self.binding.call::<Encoded, Encoded>(&stub_procedure(procedure), &|e| e.opaque(arguments));
        outcome.map(|Encoded(result)| result).map_err(|why| why.map_declared(|Encoded(exception)| exception))
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
    /// Asks one instance for its description, and binds to all instances of the name. Calls to an instance
    /// whose procedures have other types fail.
    ///
    /// # Errors
    /// When no server exports the name, none answers, or the exporter does not describe itself.
    pub fn import(runtime: &Runtime, name: &str) -> crate::Result<Instances> {
        let description = describe(runtime, name)?;
        let roster = runtime.roster(name, Cow::Owned(description.interface.clone()))?;
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

    /// Prepares a call of all present members, with encoded arguments.
    pub fn multi(&self, procedure: &idl::Procedure, arguments: &[u8]) -> Multi<Encoded, Encoded> {
        Multi::new(
            self.members(),
            Prepared::of(Cow::Owned(stub_procedure(procedure)), &|e| e.opaque(arguments)),
        )
    }
}

impl fmt::Debug for Instances {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Instances").field("description", &self.description).finish_non_exhaustive()
    }
}

fn stub_procedure(procedure: &idl::Procedure) -> Procedure {
    Procedure {
        number: procedure.number,
        name: "the procedure",
        idempotent: procedure.idempotent,
        blocking: procedure.blocking,
        // Only servers use this.
        uncancelled: false,
        exchanges: false,
        deadline: procedure.deadline_ms.map(Duration::from_millis),
    }
}

/// Asks an exporter what it exports.
///
/// # Errors
/// When no server exports the name, none answers, or the exporter does not describe itself. The last is
/// [`Kind::NoSuchProcedure`](crate::Kind::NoSuchProcedure).
pub fn describe(runtime: &Runtime, name: &str) -> crate::Result<Description> {
    runtime.binding(name, Cow::Owned(Interface::new("")))?.call(&DESCRIBE, &|_| Ok(()))
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
        Ok(Pinger(runtime.binding(name, Cow::Owned(Interface::new("")))?))
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
        Ok(Encoded(d.opaque(d.remaining())?.to_vec()))
    }
}
