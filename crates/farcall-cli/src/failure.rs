//! Failures of subcommands: the message, and the exit code.

use std::error::Error as _;
use std::io;
use std::net::SocketAddr;

use farcall::memory::Refused;
use farcall::names::{NameError, Owner};
use farcall::{CallFailed, Error, Kind, Never, Ran};
use farcall_file_access::FileError;
use serde_json::{Value, json};

pub type Outcome<T = ()> = Result<T, Failure>;

/// Exit codes; `farcall --help` documents them.
mod code {
    pub const FAILED: u8 = 1;
    pub const USAGE: u8 = 2;
    pub const EXCEPTION: u8 = 3;
    pub const DID_NOT_RUN: u8 = 4;
    pub const MAY_HAVE_RUN: u8 = 5;
    pub const JUDGED: u8 = 6;
}

/// The message for the user on standard error, and the exit code for scripts.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    /// The message; empty if everything was printed on standard output.
    message: String,
    hint: Option<String>,
    /// Further fields in JSON, besides the message.
    facts: Vec<(&'static str, Value)>,
    unreadable: bool,
}

impl Failure {
    /// Returns a failure that concerns no call.
    pub fn new(message: impl Into<String>) -> Failure {
        Failure {
            code: code::FAILED,
            message: message.into(),
            hint: None,
            facts: Vec::new(),
            unreadable: false,
        }
    }

    /// Returns the failure of an invalid request of the user.
    pub fn usage(message: impl Into<String>) -> Failure {
        Failure { code: code::USAGE, ..Failure::new(message) }
    }

    /// Returns the failure for a farcall error outside of a call.
    pub fn no_call(why: CallFailed) -> Failure {
        match why.kind() {
            Kind::NoSuchName => Failure::usage(why.to_string()).hint("a name is TYPE, or TYPE/INSTANCE"),
            kind => Failure { hint: hint(kind).map(str::to_owned), ..Failure::new(why.to_string()) },
        }
    }

    /// Returns the failure for differences that were printed on standard output.
    pub fn found() -> Failure {
        Failure::new("")
    }

    /// Returns a failure that was reported already, so it has no message. `code` is the exit code.
    pub fn told(code: i32) -> Failure {
        Failure { code: u8::try_from(code).unwrap_or(code::FAILED), ..Failure::new("") }
    }

    /// Sets the message.
    #[cfg(feature = "olympus")]
    #[must_use]
    pub fn with_message(self, message: impl Into<String>) -> Failure {
        Failure { message: message.into(), ..self }
    }

    /// Returns the failure for a declared exception that was printed on standard output.
    pub fn exception() -> Failure {
        Failure { code: code::EXCEPTION, ..Failure::new("") }
    }

    /// Returns the failure for an assertion that the result does not meet.
    pub fn judged(message: impl Into<String>) -> Failure {
        Failure { code: code::JUDGED, ..Failure::new(message) }
    }

    /// Returns the failure for a reply that cannot be decoded as its type.
    pub fn unreadable(message: impl Into<String>) -> Failure {
        Failure { unreadable: true, ..Failure::new(message) }
    }

    /// Returns whether the failure is that a reply cannot be decoded as its type.
    pub fn is_unreadable(&self) -> bool {
        self.unreadable
    }

    /// Returns whether the reader of the output has ended.
    pub fn is_broken_pipe(&self) -> bool {
        self.message.is_empty() && self.code == code::FAILED
    }

    /// Returns the exit code.
    pub fn code(&self) -> u8 {
        self.code
    }

    /// Returns what went wrong. Empty if everything was printed.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns what the user can do about it, if that is known.
    pub fn advice(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Returns the failure as JSON, or `None` if everything was printed.
    pub fn as_json(&self) -> Option<Value> {
        if self.message.is_empty() {
            return None;
        }
        let mut error = json!({ "message": self.message });
        self.facts.iter().for_each(|(name, value)| error[*name] = value.clone());
        self.hint.iter().for_each(|hint| error["hint"] = hint.as_str().into());
        Some(error)
    }

    /// Returns the failure of a call of a group that gave too few results. Its exit code is that of the worst
    /// failure of a member, if there is one.
    pub fn of_members(message: impl Into<String>, worst: Option<Failure>) -> Failure {
        let (code, hint) = worst.map_or((code::FAILED, None), |worst| (worst.code, worst.hint));
        Failure { code, hint, ..Failure::new(message) }
    }

    /// Returns that one of the two failures which has the greater exit code.
    #[must_use]
    pub fn or_worse(self, other: Option<Failure>) -> Failure {
        match other {
            Some(other) if other.code >= self.code => other,
            _ => self,
        }
    }

    /// Adds a hint, unless there is one already.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint.get_or_insert_with(|| hint.into());
        self
    }

    /// Replaces the hint.
    #[must_use]
    pub fn in_place_of_hint(self, hint: impl Into<String>) -> Failure {
        Failure { hint: Some(hint.into()), ..self }
    }

    /// Puts `what`, the subject of the failure, in front of the message.
    #[must_use]
    pub fn about(mut self, what: impl std::fmt::Display) -> Failure {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// Appends text to the message.
    #[must_use]
    pub fn and(mut self, more: impl std::fmt::Display) -> Failure {
        self.message = format!("{}; {more}", self.message);
        self
    }

    /// Puts the server's address in front of the message, unless the message contains it.
    #[must_use]
    pub fn at(self, address: SocketAddr) -> Failure {
        match self.message.contains(&address.to_string()) {
            true => self,
            false => self.about(address),
        }
    }

    /// Marks the failure: the procedure ran.
    #[must_use]
    pub fn ran(self) -> Failure {
        Failure { code: code::MAY_HAVE_RUN, ..self }
    }
}

impl From<CallFailed> for Failure {
    fn from(why: CallFailed) -> Failure {
        let (code, message) = match why.ran() {
            // The name is not valid, so no registry was asked.
            _ if why.source().is_some_and(|source| source.is::<NameError>()) => {
                (code::USAGE, why.detail().to_owned())
            }
            Ran::No => (code::DID_NOT_RUN, format!("{why}; {}", why.ran())),
            _ => (code::MAY_HAVE_RUN, format!("{why}; {}", why.ran())),
        };
        let facts =
            vec![("kind", format!("{:?}", why.kind()).into()), ("ran", format!("{:?}", why.ran()).into())];
        let registry = why.source().and_then(|source| source.downcast_ref::<farcall::names::Error>());
        let hint = match registry {
            Some(why) => Some(registry_hint(why)),
            None => hint(why.kind()).map(str::to_owned),
        };
        Failure { code, message, hint, facts, unreadable: false }
    }
}

/// The hint about how exporters are found.
pub const NAMES: &str =
    "`farcall names` lists what is exported; an address needs no registry: udp://HOST:PORT/TYPE";

/// Returns advice on a failed call.
fn hint(kind: Kind) -> Option<&'static str> {
    Some(match kind {
        Kind::NoSuchName => NAMES,
        Kind::Unreachable => {
            "is the server running, and may packets reach it? `farcall names` lists what is exported"
        }
        Kind::NotExported => {
            "the server runs, but no longer offers this; `farcall names` lists what is exported"
        }
        Kind::NoSuchProcedure => "`farcall describe NAME` lists the procedures",
        Kind::Unwound => {
            "`farcall call --on SIGNAL=VALUE` answers a signal, and `farcall describe NAME` lists them"
        }
        Kind::Overloaded => "try again later; it did no harm",
        Kind::Mismatch => "one side is older than the other; `farcall check` says what differs",
        Kind::Registry => REGISTRY_HINT,
        Kind::NotPermitted => {
            "`farcall keys show`, at both ends, says who is known; without keys, `farcall serve --open` lets \
             other users and other machines call"
        }
        _ => return None,
    })
}

impl From<Error<Never>> for Failure {
    fn from(why: Error<Never>) -> Failure {
        CallFailed::from(why).into()
    }
}

impl From<Error<Refused>> for Failure {
    fn from(why: Error<Refused>) -> Failure {
        match why {
            Error::Declared(why) => Failure::new(why.to_string()),
            Error::CallFailed(why) => why.into(),
        }
    }
}

impl From<Error<FileError>> for Failure {
    fn from(why: Error<FileError>) -> Failure {
        match why {
            Error::Declared(why) => Failure { code: code::EXCEPTION, ..Failure::new(why.to_string()) }
                .fact("exception", format!("{why:?}")),
            Error::CallFailed(why) => why.into(),
        }
    }
}

impl Failure {
    /// Adds the fields for scripts.
    #[must_use]
    pub fn fact(mut self, name: &'static str, value: impl Into<Value>) -> Failure {
        self.facts.push((name, value.into()));
        self
    }
}

impl From<io::Error> for Failure {
    fn from(why: io::Error) -> Failure {
        if why.kind() == io::ErrorKind::BrokenPipe {
            // The reader of the output has closed it, which is no error.
            return Failure::new("");
        }
        Failure::new(why.to_string())
    }
}

impl From<farcall::names::Error> for Failure {
    fn from(why: farcall::names::Error) -> Failure {
        Failure::new(why.to_string()).hint(registry_hint(&why))
    }
}

/// Returns advice on a failure of the registry.
fn registry_hint(why: &farcall::names::Error) -> String {
    match why {
        farcall::names::Error::Taken { name, owner: Owner::NONE, .. } => {
            format!("`farcall names --remove {name}` removes it")
        }
        farcall::names::Error::Taken { .. } => {
            "choose another instance, or stop that process; an entry goes when its process ends".to_owned()
        }
        farcall::names::Error::NotGenuine { .. } => {
            "`farcall names` without FARCALL_KEYS lists also the entries that do not count".to_owned()
        }
        _ => REGISTRY_HINT.to_owned(),
    }
}

const REGISTRY_HINT: &str =
    "FARCALL_REGISTRY names the registry: a directory, file:///PATH, dns://DOMAIN or etcd://HOST";
