//! What a flavour of authentication makes of a call, and of the reply to it.

use std::borrow::Cow;
use std::sync::Arc;

use crate::wire::auth::{AuthStat, Flavor, OpaqueAuth};
use crate::wire::message::Call;

/// A flavour of authentication that has more to say than that a credential is well-formed, like RPCSEC_GSS
/// (RFC 2203): it may refuse a call, answer it itself, or have its arguments and its result in a form of its
/// own.
///
/// It looks at each message that bears its flavour, also at a call that is sent again: what such a call is
/// answered with is sealed anew. If it panics the call is refused with [`AuthStat::FAILED`].
pub trait Flavour: Send + Sync {
    /// Looks at a call before anything else does. `header` is what authenticated before the credential's verifier.
    fn admit<'a>(&self, call: &Call<'a>, header: &'a [u8], arguments: &'a [u8]) -> Admission<'a>;
}

/// What a [`Flavour`] says of a call.
pub enum Admission<'a> {
    /// It is served: with these arguments, and a result that may be changed on its way.
    Serve {
        /// The arguments, as the procedure's stub reads them.
        arguments: Cow<'a, [u8]>,
        /// The reply's verifier: its flavour and its body, of 400 bytes at most.
        verifier: (Flavor, Vec<u8>),
        /// What is done to the result.
        seal: Option<Box<dyn Seal>>,
        /// Who calls, where the credential does not say it or not alone: what it authenticated for, without what
        /// differs each time that a call is sent (a sequence number). A flavour and at most 400 bytes. A
        /// procedure is told this, and calls that are sent again are known by it.
        caller: Option<(Flavor, Arc<[u8]>)>,
    },
    /// The flavour has answered it: with this verifier and this result.
    Answer {
        /// The reply's verifier.
        verifier: (Flavor, Vec<u8>),
        /// The reply's result.
        result: Vec<u8>,
    },
    /// It is refused.
    Refuse(AuthStat),
    /// Nothing is said.
    Drop,
}

/// Puts a result into the form that a flavour gives it. If it panics the caller hears of an error of the
/// system.
pub trait Seal: Send {
    /// Changes what authenticated in `reply` from the byte `at` on.
    fn seal(self: Box<Self>, reply: &mut Vec<u8>, at: usize);
}

/// A reply's verifier.
pub(super) type Verifier = (Flavor, Vec<u8>);

/// What was made of a call that is served. It is moved with each call: what few have authenticated elsewhere.
pub(super) struct Authenticated<'a> {
    pub(super) arguments: Cow<'a, [u8]>,
    special: Option<Box<Special>>,
}

/// What a flavour adds to a call.
#[derive(Default)]
pub(super) struct Special {
    /// None is AUTH_NONE.
    pub(super) verifier: Option<Verifier>,
    pub(super) seal: Option<Box<dyn Seal>>,
    /// No longer than a credential.
    pub(super) caller: Option<(Flavor, Arc<[u8]>)>,
}

impl<'a> Authenticated<'a> {
    /// As it came.
    #[inline]
    pub(super) fn plain(arguments: &'a [u8]) -> Authenticated<'a> {
        Authenticated { arguments: Cow::Borrowed(arguments), special: None }
    }

    /// None if nobody may be called what its caller is.
    pub(super) fn special(arguments: Cow<'a, [u8]>, special: Special) -> Option<Authenticated<'a>> {
        let fits = special.caller.as_ref().is_none_or(|(_, body)| body.len() <= OpaqueAuth::LONGEST);
        fits.then(|| Authenticated { arguments, special: Some(Box::new(special)) })
    }

    /// Who calls.
    #[inline]
    pub(super) fn credential<'s>(&'s self, call: &Call<'s>) -> OpaqueAuth<'s> {
        let caller = self.special.as_ref().and_then(|special| special.caller.as_ref());
        let Some((flavor, body)) = caller else { return call.credential };
        OpaqueAuth::new(flavor.0, body).unwrap_or(OpaqueAuth::NONE)
    }

    /// The reply's.
    #[inline]
    pub(super) fn verifier(&self) -> Option<&Verifier> {
        self.special.as_ref()?.verifier.as_ref()
    }

    /// Whether something is done to the result.
    #[inline]
    pub(super) fn is_sealed(&self) -> bool {
        self.special.as_ref().is_some_and(|special| special.seal.is_some())
    }

    /// What is done to the result, once.
    #[inline]
    pub(super) fn take_seal(&mut self) -> Option<Box<dyn Seal>> {
        self.special.as_mut()?.seal.take()
    }
}

/// Runs what a user wrote, which is no procedure; none if it panics. What it leaves behind is its own.
#[inline]
pub(super) fn guarded<R>(user: impl FnOnce() -> R) -> Option<R> {
    farcall::guard::run(user).ok()
}
