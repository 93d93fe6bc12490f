//! Interceptors see each call, at the caller or at the server, and may refuse it. Programs use them for
//! authorisation, metrics, traces and tests.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "tracing")]
use crate::Kind;
use crate::{CallFailed, Ran, Trace};

/// Sees each call that is made or served, and may refuse it. `Builder::intercept_calls` and
/// `Builder::intercept_serving` add one. If there are several, `before` runs in the order in which they were
/// added, and `after` in the opposite order.
///
/// ```
/// use farcall::intercept::{Call, Interceptor};
/// use farcall::{CallFailed, Kind, Ran};
///
/// /// Refuses every write.
/// struct ReadOnly;
///
/// impl Interceptor for ReadOnly {
///     fn before(&self, call: &Call<'_>) -> Result<(), CallFailed> {
///         match call.procedure {
///             "put" => Err(CallFailed::new(Kind::NotPermitted, Ran::No).because("this store is read-only")),
///             _ => Ok(()),
///         }
///     }
/// }
/// # let runtime = farcall::Runtime::builder().intercept_serving(ReadOnly).build();
/// ```
pub trait Interceptor: Send + Sync + 'static {
    /// Sees a call that is about to be sent or executed. An error refuses the call: the call does not run,
    /// and fails with the error's kind and detail.
    ///
    /// # Errors
    /// Any error of the interceptor's choice.
    fn before(&self, call: &Call<'_>) -> Result<(), CallFailed> {
        let _ = call;
        Ok(())
    }

    /// Sees the end of a call that [`before`](Interceptor::before) has not refused.
    fn after(&self, call: &Call<'_>, ended: &Ended<'_>) {
        let _ = (call, ended);
    }
}

/// A call, as an interceptor sees it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Call<'a> {
    /// The interface's type name.
    pub interface: &'a str,
    /// The procedure's name.
    pub procedure: &'a str,
    /// At the server, the caller's address. `None` at the caller, because the server is not chosen yet.
    pub peer: Option<SocketAddr>,
    /// The trace that the call is part of.
    pub trace: Option<Trace>,
}

impl<'a> Call<'a> {
    /// Makes the description of a call that is about to be made or executed.
    #[doc(hidden)]
    pub fn new(
        interface: &'a str,
        procedure: &'a str,
        peer: Option<SocketAddr>,
        trace: Option<Trace>,
    ) -> Call<'a> {
        Call { interface, procedure, peer, trace }
    }
}

/// How a call ended, as an interceptor sees it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Ended<'a> {
    /// The outcome.
    pub outcome: Outcome<'a>,
    /// How long the call took. At the server this is the time of execution. At the caller it is the time from
    /// the beginning of the call to its outcome.
    pub time: Duration,
}

/// The outcome of a call, as an interceptor sees it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Outcome<'a> {
    /// The call returned its result.
    Result,
    /// The call raised its declared exception.
    Exception,
    /// The call failed.
    Failed(&'a CallFailed),
}

/// The interceptors of a runtime, in the order in which they were added.
#[doc(hidden)]
#[derive(Clone, Default)]
pub struct Interceptors(Vec<Arc<dyn Interceptor>>);

impl Interceptors {
    /// Adds an interceptor. Its `before` runs last and its `after` first.
    pub fn add(&mut self, interceptor: Arc<dyn Interceptor>) {
        self.0.push(interceptor);
    }

    /// Returns whether there are no interceptors.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Runs each interceptor's `before`. If an interceptor refuses the call, the earlier interceptors get the
    /// refusal in their `after`.
    ///
    /// # Errors
    /// The first refusal.
    pub fn before(&self, call: &Call<'_>) -> Result<(), CallFailed> {
        for (asked, interceptor) in self.0.iter().enumerate() {
            let Err(why) = interceptor.before(call) else { continue };
            let refused =
                CallFailed::new(why.kind(), Ran::No).because(why.detail().to_owned()).caused_by(why);
            let ended = Ended { outcome: Outcome::Failed(&refused), time: Duration::ZERO };
            self.0[..asked].iter().rev().for_each(|interceptor| interceptor.after(call, &ended));
            return Err(refused);
        }
        Ok(())
    }

    /// Runs each interceptor's `after`, in the opposite order.
    pub fn after(&self, call: &Call<'_>, outcome: Outcome<'_>, time: Duration) {
        let ended = Ended { outcome, time };
        self.0.iter().rev().for_each(|interceptor| interceptor.after(call, &ended));
    }
}

impl fmt::Debug for Interceptors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.len())
    }
}

/// An interceptor that emits an event of the `tracing` crate for each call that ends: at level warn if the
/// call failed, at level info if its deadline passed, and otherwise at level debug, also if its caller gave
/// it up, as the client of a watch does that leaves.
#[cfg(feature = "tracing")]
#[derive(Clone, Copy, Debug, Default)]
pub struct Traced;

#[cfg(feature = "tracing")]
impl Interceptor for Traced {
    fn after(&self, call: &Call<'_>, ended: &Ended<'_>) {
        let Call { interface, procedure, peer, trace } = *call;
        let (peer, time) = (peer.map(tracing::field::display), ended.time.as_secs_f64());
        let trace = trace.map(|trace| tracing::field::display(Hex(trace.trace)));
        match ended.outcome {
            Outcome::Result => tracing::debug!(interface, procedure, peer, trace, time, "returned"),
            Outcome::Exception => tracing::debug!(interface, procedure, peer, trace, time, "raised"),
            Outcome::Failed(why) => {
                let ran = tracing::field::display(why.ran());
                match why.kind() {
                    Kind::Cancelled => {
                        tracing::debug!(interface, procedure, peer, trace, time, ran, "{why}");
                    }
                    Kind::Deadline => tracing::info!(interface, procedure, peer, trace, time, ran, "{why}"),
                    _ => tracing::warn!(interface, procedure, peer, trace, time, ran, "{why}"),
                }
            }
        }
    }
}

/// A trace's identifier as W3C trace-context writes it.
#[cfg(feature = "tracing")]
struct Hex([u8; 16]);

#[cfg(feature = "tracing")]
impl fmt::Display for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
