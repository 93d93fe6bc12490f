//! The errors of calls: a declared exception, or the reason why a call failed and whether it ran.

use std::borrow::Cow;
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use crate::xdr::schema::{Type, Types};
use crate::xdr::{self, Decode, Decoder, Encode, Encoder, ErrorKind, Schema};

use farcall_base::room::NoMemory;
use farcall_base::{Kind, Ran};

/// The result of a call: a value, or an [`Error`].
pub type Result<T, E = Never> = std::result::Result<T, Error<E>>;

/// The reason why a call returned no value.
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
/// The enum is exhaustive on purpose: a call without a value either raised its exception or failed, and there
/// is no third way.
#[derive(Clone, PartialEq, Eq)]
pub enum Error<E = Never> {
    /// An exception that the interface declares: the procedure ran and raised it.
    Declared(E),
    /// The call failed; the runtime says why.
    CallFailed(CallFailed),
}

impl<E> Error<E> {
    /// Turns the declared exception into another. A failed call is unchanged.
    pub fn map_declared<F>(self, f: impl FnOnce(E) -> F) -> Error<F> {
        match self {
            Error::Declared(exception) => Error::Declared(f(exception)),
            Error::CallFailed(why) => Error::CallFailed(why),
        }
    }

    /// Returns the declared exception, if the error is one.
    pub fn declared(&self) -> Option<&E> {
        match self {
            Error::Declared(exception) => Some(exception),
            Error::CallFailed(_) => None,
        }
    }

    /// Returns why the call failed, if it did.
    pub fn call_failed(&self) -> Option<&CallFailed> {
        match self {
            Error::Declared(_) => None,
            Error::CallFailed(why) => Some(why),
        }
    }

    /// Returns whether the procedure ran. A procedure that raised its exception did.
    pub fn ran(&self) -> Ran {
        match self {
            Error::Declared(_) => Ran::Yes,
            Error::CallFailed(why) => why.ran(),
        }
    }
}

/// [`Error::map_declared`] on a whole [`Result`], so that `?` can follow it.
pub trait ResultExt<T, E>: Sized {
    /// Turns the declared exception into another. A value or a failed call is unchanged.
    fn map_declared<F>(self, f: impl FnOnce(E) -> F) -> Result<T, F>;
}

impl<T, E> ResultExt<T, E> for Result<T, E> {
    fn map_declared<F>(self, f: impl FnOnce(E) -> F) -> Result<T, F> {
        self.map_err(|error| error.map_declared(f))
    }
}

/// A type that an interface may declare as the exception of its procedures.
///
/// `#[derive(farcall::Xdr)]` implements it. The trait exists so that `Err(NoSuchKey.into())` and `?` convert:
/// a `From<E> for Error<E>` for every `E` would overlap with those for [`CallFailed`] and for `Error<Never>`.
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

impl Encode for Never {
    fn encode(&self, _: &mut Encoder<'_>) -> std::result::Result<(), xdr::Error> {
        match *self {}
    }
}

impl<'a> Decode<'a> for Never {
    fn decode(d: &mut Decoder<'a>) -> std::result::Result<Self, xdr::Error> {
        Err(d.error(ErrorKind::Invalid("an exception where none is declared".into())))
    }
}

impl Schema for Never {
    fn schema(_: &mut Types) -> Type {
        Type::Void
    }
}

impl From<Infallible> for Never {
    fn from(infallible: Infallible) -> Self {
        match infallible {}
    }
}

type Source = Arc<dyn std::error::Error + Send + Sync>;

/// The reason why a call failed, and whether its procedure ran. It is one word long and cheap to clone.
///
/// ```
/// use farcall::{CallFailed, Kind, Ran};
/// let why = CallFailed::new(Kind::Unreachable, Ran::Maybe).because("10 probes unanswered");
/// assert_eq!(format!("{why}; {}", why.ran()), "the server does not answer: 10 probes unanswered; it may have run");
/// ```
#[derive(Clone)]
pub struct CallFailed(Arc<Failure>);

#[derive(Clone)]
struct Failure {
    kind: Kind,
    ran: Ran,
    detail: Cow<'static, str>,
    source: Option<Source>,
    is_after_handler: bool,
}

impl CallFailed {
    /// Makes a failure without detail or cause.
    pub fn new(kind: Kind, ran: Ran) -> CallFailed {
        CallFailed(Arc::new(Failure {
            kind,
            ran,
            detail: Cow::Borrowed(""),
            source: None,
            is_after_handler: false,
        }))
    }

    /// Adds a detail, which the message shows after the kind.
    #[must_use]
    pub fn because(mut self, detail: impl Into<Cow<'static, str>>) -> CallFailed {
        Arc::make_mut(&mut self.0).detail = detail.into();
        self
    }

    /// Adds the cause. Its text becomes the detail, if there is none yet.
    #[must_use]
    pub fn caused_by(mut self, source: impl std::error::Error + Send + Sync + 'static) -> CallFailed {
        let failure = Arc::make_mut(&mut self.0);
        if failure.detail.is_empty() {
            failure.detail = source.to_string().into();
        }
        failure.source = Some(Arc::new(source));
        self
    }

    /// Replaces the statement whether the call ran, because earlier attempts may have run too.
    pub fn but_ran(mut self, ran: Ran) -> CallFailed {
        if self.ran() != ran {
            Arc::make_mut(&mut self.0).ran = ran;
        }
        self
    }

    /// Notes that a handler of the caller has run in the call. Then the call is never made again by itself.
    #[doc(hidden)]
    pub fn after_handler(mut self) -> CallFailed {
        Arc::make_mut(&mut self.0).is_after_handler = true;
        self
    }

    /// Returns whether a handler of the caller has run in the call.
    pub(crate) fn is_after_handler(&self) -> bool {
        self.0.is_after_handler
    }

    /// Returns the failure of an operation that the local system refused; `doing` names the operation.
    #[doc(hidden)]
    pub fn local(doing: &str, why: std::io::Error) -> CallFailed {
        CallFailed::new(Kind::Local, Ran::No).because(format!("{doing}: {why}")).caused_by(why)
    }

    /// Returns the failure of a call because this process has no memory for `what`.
    #[doc(hidden)]
    #[cold]
    pub fn no_memory(what: &str, ran: Ran, why: NoMemory) -> CallFailed {
        CallFailed::new(Kind::TooLarge, ran).because(format!("{what}: {why}"))
    }

    /// Returns the failure of a call through a stub or handle that was made before this process was forked.
    #[doc(hidden)]
    #[cold]
    pub fn forked() -> CallFailed {
        CallFailed::new(Kind::Forked, Ran::No)
    }

    /// Returns the failure of a procedure that failed because a call of its own failed with `inner`. It says
    /// that the procedure ran, whether the inner call did or not.
    pub fn nested(inner: CallFailed) -> CallFailed {
        // Of calls that are nested deeply only the innermost one says whether it ran, as all others did. So
        // the end of the detail, which is never left out, has the cause.
        let detail = match (inner.kind(), inner.ran()) {
            (Kind::Nested, Ran::Yes) => inner.to_string(),
            (_, ran) => format!("{inner}; {ran}"),
        };
        CallFailed::new(Kind::Nested, Ran::Yes).because(detail).caused_by(inner)
    }

    /// Returns what went wrong.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// Returns whether the procedure ran.
    pub fn ran(&self) -> Ran {
        self.0.ran
    }

    /// Returns the detail of the failure; may be empty.
    pub fn detail(&self) -> &str {
        &self.0.detail
    }
}

impl From<farcall_base::Failure> for CallFailed {
    fn from(failure: farcall_base::Failure) -> CallFailed {
        CallFailed::new(failure.kind, failure.ran).because(failure.detail)
    }
}

/// Two failures are equal if their kind, their `ran` and their detail are equal. Their sources are not
/// compared.
impl PartialEq for CallFailed {
    fn eq(&self, other: &CallFailed) -> bool {
        self.kind() == other.kind() && self.ran() == other.ran() && self.detail() == other.detail()
    }
}

impl Eq for CallFailed {}

/// Writes a sentence: the message, and whether the procedure ran. This sentence is what a program prints if
/// its `main` returns the error, and what `unwrap` and `expect` print. `{:#?}` shows the parts.
impl fmt::Debug for CallFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !f.alternate() {
            return write!(f, "{self}; {}", self.ran());
        }
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
        self.0.source.as_ref().map(|source| &**source as &(dyn std::error::Error + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;

    /// Each server sends what its own call met, and each caller adds where.
    #[test]
    fn however_deep_failures_are_passed_on_the_last_one_tells_the_cause() {
        let cause = CallFailed::new(Kind::Unreachable, Ran::Maybe).because("get at 10.0.0.9:7000");
        let mut failed = cause.clone();
        for depth in 1..100 {
            let CallFailed(nested) = CallFailed::nested(failed);
            let sent = farcall_base::Failure::new(nested.kind, nested.ran).with_detail(nested.detail.clone());
            failed = CallFailed::new(sent.kind, sent.ran).because(format!(
                "relay at 127.0.0.1:{}: {}",
                40_000 + depth,
                sent.sent_detail()
            ));
            assert!(failed.to_string().ends_with(&format!("{cause:?}")), "{depth}: {failed}");
        }
        assert!(failed.to_string().contains("nested calls) … "), "{failed}");
    }

    #[test]
    fn nested_failure_ran_whatever_the_inner_says() {
        let inner = CallFailed::new(Kind::Unreachable, Ran::No);
        let outer = CallFailed::nested(inner.clone());
        assert_eq!((outer.kind(), outer.ran()), (Kind::Nested, Ran::Yes));
        assert_eq!(outer.source().unwrap().to_string(), inner.to_string());
        assert_eq!(
            outer.to_string(),
            "a call made by the procedure failed: the server does not answer; it did not run"
        );
    }

    #[test]
    fn what_main_returns_reads_as_a_sentence() {
        let why = CallFailed::new(Kind::NoSuchName, Ran::No).because("nobody exports Store");
        let error = Error::<Never>::from(why.clone());
        assert_eq!(format!("{error:?}"), "no such name: nobody exports Store; it did not run");
        assert!(format!("{why:#?}").contains("kind: NoSuchName"), "{why:#?}");
        assert_eq!(format!("{:?}", Error::Declared("odd")), "Declared(\"odd\")");
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
        let boxed: Box<dyn std::error::Error + Send + Sync> = Error::Declared("odd".to_string()).into();
        assert_eq!(boxed.to_string(), "exception \"odd\"");
    }
}
