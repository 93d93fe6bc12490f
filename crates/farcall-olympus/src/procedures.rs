//! Finds the procedures of nodes when the nodes fire: by name in the registry, or at an address by a `.x` or
//! `.cr` file.
//!
//! | module | job |
//! |---|---|
//! | `definition` | reads `.x` and `.cr` files |
//! | `described` | binds to the servers that these files describe |
//! | `bound` | a procedure that was found: encodes its arguments, starts calls, decodes outcomes |
//! | `check` | checks graphs against the interfaces of their procedures |
//! | `exports` | lists what is exported now, with its procedures |

mod bound;
mod check;
mod definition;
mod described;
mod exports;

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farcall::dynamic::{Dynamic, Instances};
use farcall::{CallFailed, Runtime};
use farcall_idl::values::Converter;
use farcall_onc::{AuthSys, Client};

use crate::model;
pub use bound::{Bound, Outcome};
use described::{bind_courier, bind_onc};
pub use exports::{Exported, ExportedProcedure};

/// Finds procedures, and remembers the servers that it has bound to. Clones are the same.
///
/// A procedure is looked for when its node fires, so a server may come, go and be replaced while a graph
/// runs. A binding is kept for later firings. If a node names a type (`Builder`), its calls are balanced over
/// the type's instances; if it names an instance (`Builder/fast`), they go to that one. Farcall itself
/// follows a name to another server of the same interface. If the interface has changed,
/// [`forget`](Procedures::forget) has the name looked for again.
///
/// ```
/// use std::sync::Arc;
/// use farcall_olympus::model::Procedure;
/// use farcall_olympus::procedures::Procedures;
///
/// #[farcall::interface]
/// pub trait Builder {
///     fn fetch(&self, commit: &str) -> farcall::Result<String>;
/// }
///
/// struct Server;
/// impl Builder for Server {
///     fn fetch(&self, commit: &str) -> farcall::Result<String> {
///         Ok(format!("sources of {commit}"))
///     }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let runtime = farcall::Runtime::builder().registry(farcall::names::Memory::new()).build()?;
/// let export = runtime.export::<dyn Builder>("Builder", Arc::new(Server))?;
/// let procedures = Procedures::new(&runtime);
/// let wanted: Procedure = serde_json::from_str(r#"{ "server": "Builder", "name": "fetch" }"#)?;
/// let fetch = procedures.find(&wanted)?;
/// let arguments = fetch.encode(&serde_json::json!(["a1f"]))?;
/// let outcome = fetch.outcome(fetch.start(&arguments).wait());
/// assert_eq!(outcome, farcall_olympus::procedures::Outcome::Returned("sources of a1f".into()));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Procedures(Arc<Inner>);

struct Inner {
    runtime: Runtime,
    /// The directory that relative paths of definitions refer to.
    directory: PathBuf,
    within: Option<Duration>,
    servers: Mutex<HashMap<Key, Arc<Server>>>,
}

/// What a binding is remembered by: the server in the graph, and its definition. A definition may have
/// several versions of a program, so the procedure's name belongs to it.
type Key = (String, Option<(String, String)>);

/// A bound server.
struct Server {
    dynamic: Dynamic,
    /// The file's description of the server, if the server does not describe itself.
    version: Option<farcall_idl::x::Version>,
    /// What converts the values of each procedure that was found, by its index. All nodes share it.
    converters: Mutex<HashMap<usize, Arc<Converter>>>,
}

/// The most servers that are remembered. When there are more, all are forgotten, and found again.
const MAX_SERVERS: usize = 4096;

/// The reason why a procedure was not found. It did not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotFound {
    why: String,
    lasting: bool,
}

impl Procedures {
    /// Returns a finder that uses this runtime's registry and conversations. Relative paths of definitions
    /// refer to the process's current directory.
    pub fn new(runtime: &Runtime) -> Procedures {
        Procedures(Arc::new(Inner {
            runtime: runtime.clone(),
            directory: PathBuf::new(),
            within: None,
            servers: Mutex::default(),
        }))
    }

    /// Returns a finder that has bound to no server yet, for which relative paths of definitions refer to
    /// this directory.
    #[must_use]
    pub fn in_directory(&self, directory: &Path) -> Procedures {
        let Inner { runtime, within, .. } = &*self.0;
        Procedures(Arc::new(Inner {
            runtime: runtime.clone(),
            directory: directory.to_owned(),
            within: *within,
            servers: Mutex::default(),
        }))
    }

    /// Returns a finder that has bound to no server yet, and whose calls take at most this long. Without it,
    /// a call lasts while its server answers probes.
    #[must_use]
    pub fn within(&self, deadline: Duration) -> Procedures {
        let Inner { runtime, directory, .. } = &*self.0;
        Procedures(Arc::new(Inner {
            runtime: runtime.clone(),
            directory: directory.clone(),
            within: Some(deadline),
            servers: Mutex::default(),
        }))
    }

    /// Finds a procedure. Blocks while the server is looked up and asked for its description, unless a
    /// binding to it is known.
    ///
    /// # Errors
    /// When no server exports the name, none answers, it has no such procedure, or the definition cannot be
    /// read.
    pub fn find(&self, wanted: &model::Procedure) -> Result<Arc<Bound>, NotFound> {
        // (A server that has been replaced since may have a procedure that it had not.)
        if let Some(bound) = self.find_known(wanted) {
            return Ok(bound);
        }
        let server = Arc::new(self.bind(wanted)?);
        let bound = Bound::of(server.clone(), &wanted.name).map(Arc::new)?;
        let mut servers = self.servers();
        if servers.len() >= MAX_SERVERS {
            servers.clear();
        }
        servers.insert(key(wanted), server);
        Ok(bound)
    }

    /// Returns a procedure if a binding to its server is known. Does not block.
    pub fn find_known(&self, wanted: &model::Procedure) -> Option<Arc<Bound>> {
        Bound::of(self.known(wanted)?, &wanted.name).map(Arc::new).ok()
    }

    /// Forgets the binding to a procedure's server, so that the server is looked for again. A binding that
    /// was made later is kept.
    pub fn forget(&self, wanted: &model::Procedure, bound: &Bound) {
        let key = key(wanted);
        let mut servers = self.servers();
        if servers.get(&key).is_some_and(|server| bound.is_of(server)) {
            servers.remove(&key);
        }
    }

    fn known(&self, wanted: &model::Procedure) -> Option<Arc<Server>> {
        self.servers().get(&key(wanted)).cloned()
    }

    fn bind(&self, wanted: &model::Procedure) -> Result<Server, NotFound> {
        let Inner { runtime, directory, within, .. } = &*self.0;
        let server = match &wanted.definition {
            None => {
                // The name of a type may have many instances; that of an instance, or an address, has one.
                let dynamic = match wanted.server.contains('/') {
                    true => Dynamic::import(runtime, &wanted.server),
                    false => Instances::import(runtime, &wanted.server).map(|all| all.balanced()),
                };
                Server::new(dynamic.map_err(CallFailed::from)?, None)
            }
            Some(file) => {
                let version = definition::version(directory, file, &wanted.name)?;
                let dynamic = match definition::is_courier(file) {
                    true => bind_courier(&farcall_courier::Builder::default(), &wanted.server, &version)?,
                    // As this user of this machine.
                    false => {
                        let settings = Client::builder().auth(AuthSys::of_process());
                        bind_onc(&settings, &wanted.server, &version)?
                    }
                };
                Server::new(dynamic, Some(version))
            }
        };
        Ok(match within {
            Some(deadline) => Server { dynamic: server.dynamic.within(*deadline), ..server },
            None => server,
        })
    }

    fn servers(&self) -> MutexGuard<'_, HashMap<Key, Arc<Server>>> {
        self.0.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Server {
    fn new(dynamic: Dynamic, version: Option<farcall_idl::x::Version>) -> Server {
        Server { dynamic, version, converters: Mutex::default() }
    }
}

fn key(wanted: &model::Procedure) -> Key {
    let definition = wanted.definition.as_ref().map(|file| (file.clone(), wanted.name.clone()));
    (wanted.server.clone(), definition)
}

impl NotFound {
    fn lasting(why: impl Into<String>) -> NotFound {
        NotFound { why: why.into(), lasting: true }
    }

    /// Returns whether looking again does not help unless the graph or a definition is changed.
    pub fn is_lasting(&self) -> bool {
        self.lasting
    }
}

impl From<CallFailed> for NotFound {
    fn from(why: CallFailed) -> NotFound {
        NotFound { why: why.to_string(), lasting: false }
    }
}

impl fmt::Display for NotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for NotFound {}

impl fmt::Debug for Procedures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Procedures").field("directory", &self.0.directory).finish_non_exhaustive()
    }
}
