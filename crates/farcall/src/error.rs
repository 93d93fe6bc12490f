//! What a call that did not give its result says: a declared exception, or why the call failed and whether it ran.

use std::borrow::Cow;
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

/// What a procedure gives its caller: a value, or an [`Error`].
pub type Result<T, E = Never> = std::result::Result<T, Error<E>>;

/// Why a call gave no value.
///
/// `?` reads naturally in a procedure that declares the exception `E`:
///
/// ```
/// # use farcall::{CallFailed, Error, Kind, Never, Ran, ResultExt};
/// #[derive(Debug, PartialEq)]
/// struct NoSuchKey;
/// impl farcall::Exception for NoSuchKey {} // `#[derive(farcall::Xdr)]` writes this line
///
/// fn plain() -> farcall::Result<u64> { Ok(42) } // declares no exception
/// fn other() -> farcall::Result<u64, String> { Err("odd".to_string().into()) }
///
/// fn get(key: &str) -> farcall::Result<u64, NoSuchKey> {
///     if key.is_empty() {
///         return Err(NoSuchKey.into());
///     }
///     let first = plain()?; // a call that declares nothing can only have failed
///     let second = other().map_declared(|_why| NoSuchKey)?; // another exception becomes ours
///     Ok(first + second)
/// }
/// assert_eq!(get("answer"), Err(Error::Declared(NoSuchKey)));
/// ```
///
/// The enum is exhaustive on purpose: a call ends by its exception or by the runtime's word, and there is no third way.
#[derive(Clone, PartialEq, Eq)]
pub enum Error<E = Never> {
    /// An exception that the interface declares: the procedure ran and raised it.
    Declared(E),
    /// The runtime's word: the call failed.
    CallFailed(CallFailed),
}

impl<E> Error<E> {
    /// Turns the declared exception into another; a failed call stays what it was.
    pub fn map_declared<F>(self, f: impl FnOnce(E) -> F) -> Error<F> {
        match self {
            Error::Declared(exception) => Error::Declared(f(exception)),
            Error::CallFailed(why) => Error::CallFailed(why),
        }
    }

    /// The declared exception, if it is one.
    pub fn declared(&self) -> Option<&E> {
        match self {
            Error::Declared(exception) => Some(exception),
            Error::CallFailed(_) => None,
        }
    }

    /// Why the call failed, if it did.
    pub fn call_failed(&self) -> Option<&CallFailed> {
        match self {
            Error::Declared(_) => None,
            Error::CallFailed(why) => Some(why),
        }
    }

    /// Whether the procedure ran. One that raised its exception did.
    pub fn ran(&self) -> Ran {
        match self {
            Error::Declared(_) => Ran::Yes,
            Error::CallFailed(why) => why.ran(),
        }
    }
}

/// [`Error::map_declared`] on a whole [`Result`], so that `?` can follow it.
pub trait ResultExt<T, E>: Sized {
    /// Turns the declared exception into another; a value or a failed call stays what it was.
    fn map_declared<F>(self, f: impl FnOnce(E) -> F) -> Result<T, F>;
}

impl<T, E> ResultExt<T, E> for Result<T, E> {
    fn map_declared<F>(self, f: impl FnOnce(E) -> F) -> Result<T, F> {
        self.map_err(|error| error.map_declared(f))
    }
}

/// A type that an interface may declare as the exception of its procedures.
///
/// `#[derive(farcall::Xdr)]` implements it. The trait exists so that `Err(NoSuchKey.into())` and `?` convert: a
/// `From<E> for Error<E>` for every `E` would overlap with those for [`CallFailed`] and for `Error<Never>`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an exception that an interface can declare",
    note = "`#[derive(farcall::Xdr)]` on a struct or enum makes it one"
)]
pub trait Exception {}

macro_rules! exceptions {
    ($($type:ty),*) => { $(impl Exception for $type {})* };
}
exceptions!(String, bool, u8, u16, u32, u64, i8, i16, i32, i64, ());
impl<T> Exception for Vec<T> {}
impl<T> Exception for Option<T> {}
impl<T> Exception for Box<T> {}

impl<E: Exception> From<E> for Error<E> {
    fn from(exception: E) -> Self {
        Error::Declared(exception)
    }
}

impl<E> From<CallFailed> for Error<E> {
    fn from(why: CallFailed) -> Self {
        Error::CallFailed(why)
    }
}

impl<E: Exception> From<Error<Never>> for Error<E> {
    fn from(error: Error<Never>) -> Self {
        Error::CallFailed(error.into())
    }
}

impl From<Error<Never>> for CallFailed {
    fn from(error: Error<Never>) -> Self {
        match error {
            Error::Declared(never) => match never {},
            Error::CallFailed(why) => why,
        }
    }
}

impl<E: fmt::Debug> fmt::Debug for Error<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Declared(exception) => f.debug_tuple("Declared").field(exception).finish(),
            Error::CallFailed(why) => fmt::Debug::fmt(why, f),
        }
    }
}

impl<E: fmt::Debug> fmt::Display for Error<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Declared(exception) => write!(f, "exception {exception:?}"),
            Error::CallFailed(why) => fmt::Display::fmt(why, f),
        }
    }
}

impl<E: fmt::Debug> std::error::Error for Error<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.call_failed().and_then(std::error::Error::source)
    }
}

/// The exception of a procedure that declares none: it has no values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Never {}

impl fmt::Display for Never {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}

impl std::error::Error for Never {}

impl From<Infallible> for Never {
    fn from(infallible: Infallible) -> Self {
        match infallible {}
    }
}

/// Whether the procedure of a failed call ran at the server.
///
/// It speaks of the very call that the failure names, and `No` is for ever: no packet that is still under way can make
/// the call run later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ran {
    /// It did not run and never will: the call may be repeated.
    No,
    /// Nobody can say.
    Maybe,
    /// It ran, wholly or in part; its result is lost.
    Yes,
}

impl Ran {
    /// The number that crosses the wire.
    pub const fn code(self) -> u32 {
        match self {
            Ran::No => 0,
            Ran::Maybe => 1,
            Ran::Yes => 2,
        }
    }

    /// The meaning of a number from the wire. One that we do not know promises nothing: [`Ran::Maybe`].
    pub const fn from_code(code: u32) -> Ran {
        match code {
            0 => Ran::No,
            2 => Ran::Yes,
            _ => Ran::Maybe,
        }
    }
}

impl fmt::Display for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Ran::No => "it did not run",
            Ran::Maybe => "it may have run",
            Ran::Yes => "it ran",
        })
    }
}

macro_rules! kinds {
    ($($(#[$docs:meta])* $name:ident = $code:literal, $text:literal;)*) => {
        /// What went wrong with a call. The numbers cross the wire and are never used again for another meaning.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        #[repr(u32)]
        pub enum Kind { $($(#[$docs])* $name = $code,)* }

        impl Kind {
            /// Every kind, in the order of their numbers.
            pub const ALL: &'static [Kind] = &[$(Kind::$name),*];

            /// The kind that a number from the wire means; `None` for one of a later version.
            pub const fn from_code(code: u32) -> Option<Kind> {
                match code { $($code => Some(Kind::$name),)* _ => None }
            }
        }

        impl fmt::Display for Kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Kind::$name => $text,)* })
            }
        }
    };
}

kinds! {
    /// The registry knows no living exporter of this name.
    NoSuchName = 1, "no such name";
    /// The server does not answer, neither calls nor probes.
    Unreachable = 2, "server unreachable";
    /// The server that had the call is gone; another incarnation answers at its address.
    ServerRestarted = 3, "server restarted";
    /// The server answers, but does not (or no longer) export this interface.
    NotExported = 4, "not exported";
    /// The server's version of the interface lacks this procedure.
    NoSuchProcedure = 5, "no such procedure";
    /// The server, or this process, is at a limit of its own.
    Overloaded = 6, "overloaded";
    /// The arguments cannot be encoded, or the server could not decode them.
    BadArguments = 7, "bad arguments";
    /// The result cannot be encoded at the server, or could not be decoded here.
    BadResult = 8, "bad result";
    /// The two sides disagree about the procedure's wire types, or about the version of the protocol.
    Mismatch = 9, "interface mismatch";
    /// The caller cancelled.
    Cancelled = 10, "cancelled";
    /// The deadline passed.
    Deadline = 11, "deadline passed";
    /// The caller may not do this.
    NotPermitted = 12, "not permitted";
    /// The procedure ran, and a call that it made itself failed; that failure is the source.
    Nested = 13, "a call made by the procedure failed";
    /// The procedure panicked.
    Panicked = 14, "the procedure panicked";
    /// The arguments or the result exceed what may cross in one call.
    TooLarge = 15, "too large";
    /// The other side broke the protocol.
    Protocol = 16, "protocol violated";
    /// This handle belongs to the parent of a fork.
    Forked = 17, "used after a fork";
    /// The server is shutting down: it finishes what it has and takes no more.
    Draining = 18, "server draining";
    /// This process's runtime has been shut down.
    Stopped = 19, "runtime stopped";
    /// The registry cannot be read or written.
    Registry = 20, "registry failed";
    /// The procedure ran, and the server no longer holds the result.
    ResultLost = 21, "result no longer held";
    /// The operating system refused something that the runtime needs.
    System = 22, "system error";
    /// A name, address or setting that was given makes no sense.
    BadSetting = 23, "bad setting";
}

impl Kind {
    /// The number that crosses the wire.
    pub const fn code(self) -> u32 {
        self as u32
    }
}

type Source = Arc<dyn std::error::Error + Send + Sync>;

/// Why a call failed, and whether its procedure ran. Small to pass and cheap to clone.
///
/// ```
/// use farcall::{CallFailed, Kind, Ran};
/// let why = CallFailed::new(Kind::Unreachable, Ran::Maybe).because("10 probes unanswered");
/// assert_eq!(format!("{why}; {}", why.ran()), "server unreachable: 10 probes unanswered; it may have run");
/// ```
#[derive(Clone)]
pub struct CallFailed(Arc<Failure>);

#[derive(Clone)]
struct Failure {
    kind: Kind,
    ran: Ran,
    detail: Cow<'static, str>,
    source: Option<Source>,
}

impl CallFailed {
    /// A failure with nothing to add to its kind.
    pub fn new(kind: Kind, ran: Ran) -> CallFailed {
        CallFailed(Arc::new(Failure {
            kind,
            ran,
            detail: Cow::Borrowed(""),
            source: None,
        }))
    }

    /// Adds what a reader of the message should know.
    #[must_use]
    pub fn because(mut self, detail: impl Into<Cow<'static, str>>) -> CallFailed {
        Arc::make_mut(&mut self.0).detail = detail.into();
        self
    }

    /// Keeps the cause. Its text becomes the detail, if there is none yet.
    #[must_use]
    pub fn caused_by(
        mut self,
        source: impl std::error::Error + Send + Sync + 'static,
    ) -> CallFailed {
        let failure = Arc::make_mut(&mut self.0);
        if failure.detail.is_empty() {
            failure.detail = source.to_string().into();
        }
        failure.source = Some(Arc::new(source));
        self
    }

    /// What the caller of a procedure hears when that procedure passes on the failure of a call of its own: the
    /// procedure ran, whatever became of the inner call.
    pub fn nested(inner: CallFailed) -> CallFailed {
        let detail = format!("{inner}; {}", inner.ran());
        CallFailed::new(Kind::Nested, Ran::Yes)
            .because(detail)
            .caused_by(inner)
    }

    /// What went wrong.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// Whether the procedure ran.
    pub fn ran(&self) -> Ran {
        self.0.ran
    }

    /// What there is to say beyond the kind; may be empty.
    pub fn detail(&self) -> &str {
        &self.0.detail
    }
}

/// Two failures are equal when they say the same; their sources are not compared.
impl PartialEq for CallFailed {
    fn eq(&self, other: &CallFailed) -> bool {
        self.kind() == other.kind() && self.ran() == other.ran() && self.detail() == other.detail()
    }
}

impl Eq for CallFailed {}

impl fmt::Debug for CallFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = f.debug_struct("CallFailed");
        all.field("kind", &self.0.kind).field("ran", &self.0.ran);
        if !self.0.detail.is_empty() {
            all.field("detail", &self.0.detail);
        }
        if let Some(source) = &self.0.source {
            all.field("source", source);
        }
        all.finish()
    }
}

impl fmt::Display for CallFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.detail() {
            "" => write!(f, "{}", self.0.kind),
            detail => write!(f, "{}: {detail}", self.0.kind),
        }
    }
}

impl std::error::Error for CallFailed {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0
            .source
            .as_ref()
            .map(|source| &**source as &(dyn std::error::Error + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;

    #[test]
    fn kinds_survive_the_wire() {
        for &kind in Kind::ALL {
            assert_eq!(Kind::from_code(kind.code()), Some(kind));
        }
        assert_eq!(Kind::from_code(0), None);
        assert_eq!(Kind::from_code(u32::MAX), None);
        for ran in [Ran::No, Ran::Maybe, Ran::Yes] {
            assert_eq!(Ran::from_code(ran.code()), ran);
        }
        assert_eq!(Ran::from_code(77), Ran::Maybe);
    }

    #[test]
    fn nested_failure_ran_whatever_the_inner_says() {
        let inner = CallFailed::new(Kind::Unreachable, Ran::No);
        let outer = CallFailed::nested(inner.clone());
        assert_eq!((outer.kind(), outer.ran()), (Kind::Nested, Ran::Yes));
        assert_eq!(outer.source().unwrap().to_string(), inner.to_string());
        assert_eq!(
            outer.to_string(),
            "a call made by the procedure failed: server unreachable; it did not run"
        );
    }

    #[test]
    fn call_failed_is_one_word() {
        assert_eq!(size_of::<CallFailed>(), size_of::<usize>());
        assert_eq!(size_of::<Result<()>>(), size_of::<usize>());
    }

    #[test]
    fn question_mark_converts() {
        fn fails() -> Result<()> {
            Err(CallFailed::new(Kind::Draining, Ran::No).into())
        }
        fn declares() -> Result<(), String> {
            Ok(fails()?)
        }
        fn undeclared() -> std::result::Result<(), CallFailed> {
            Ok(fails()?)
        }
        assert_eq!(declares().unwrap_err().ran(), Ran::No);
        assert_eq!(undeclared().unwrap_err().kind(), Kind::Draining);
        let boxed: Box<dyn std::error::Error + Send + Sync> =
            Error::Declared("odd".to_string()).into();
        assert_eq!(boxed.to_string(), "exception \"odd\"");
    }
}
