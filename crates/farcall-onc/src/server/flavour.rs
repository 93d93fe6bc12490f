//! Flavours of authentication that the user adds to a server.

use std::borrow::Cow;
use std::sync::Arc;

use crate::wire::auth::{AuthStat, Flavor, OpaqueAuth};
use crate::wire::message::Call;

/// A flavour of authentication like RPCSEC_GSS (RFC 2203). It can refuse a call, answer the call itself, or
/// transform its arguments and its result.
///
/// The server passes each call whose credential has this flavour to [`Flavour::admit`], even a call that is
/// sent again. If the server has kept the reply to such a call, the reply is sealed once more. If the flavour
/// panics, the call is refused with [`AuthStat::FAILED`].
pub trait Flavour: Send + Sync {
    /// Decides about a call, before the server does anything else with it. `header` is the message up to the
    /// end of the credential, without the verifier that follows.
    fn admit<'a>(&self, call: &Call<'a>, header: &'a [u8], arguments: &'a [u8]) -> Admission<'a>;
}

/// What a [`Flavour`] decides about a call.
pub enum Admission<'a> {
    /// The call is served.
    Serve {
        /// The arguments in the form that the procedure's stub reads.
        arguments: Cow<'a, [u8]>,
        /// The flavour and the body of the reply's verifier. The body has at most 400 bytes.
        verifier: (Flavor, Vec<u8>),
        /// Transforms the result.
        seal: Option<Box<dyn Seal>>,
        /// The caller's identity, as a flavour and at most 400 bytes, if it is not the credential itself. It
        /// must not contain anything that differs each time that a call is sent, such as a sequence number.
        /// The procedure sees the identity in place of the credential, and the server uses it to recognise a
        /// call that is sent again.
        caller: Option<(Flavor, Arc<[u8]>)>,
    },
    /// The flavour has answered the call itself.
    Answer {
        /// The reply's verifier.
        verifier: (Flavor, Vec<u8>),
        /// The reply's result.
        result: Vec<u8>,
    },
    /// The call is refused.
    Refuse(AuthStat),
    /// The call gets no reply.
    Drop,
}

/// Transforms a result as a flavour of authentication requires, for example encrypts it. If this panics, the
/// caller gets SYSTEM_ERR.
pub trait Seal: Send {
    /// Transforms the result, which is the part of `reply` from the byte `at` to the end.
    fn seal(self: Box<Self>, reply: &mut Vec<u8>, at: usize);
}

/// The flavour and the body of a reply's verifier.
pub(super) type Verifier = (Flavor, Vec<u8>);

/// The outcome of authentication for a call that is served. It is moved with each call, so its rarely used
/// part is boxed to keep it small.
pub(super) struct Authenticated<'a> {
    pub(super) arguments: Cow<'a, [u8]>,
    special: Option<Box<Special>>,
}

/// What a flavour, or AUTH_SHORT, adds to a call.
#[derive(Default)]
pub(super) struct Special {
    /// `None` stands for AUTH_NONE.
    pub(super) verifier: Option<Verifier>,
    pub(super) seal: Option<Box<dyn Seal>>,
    /// The caller's identity in place of the credential. Its body has at most 400 bytes, as a credential's.
    pub(super) caller: Option<(Flavor, Arc<[u8]>)>,
}

impl<'a> Authenticated<'a> {
    /// Returns the outcome for a call that is served as it came.
    #[inline]
    pub(super) fn plain(arguments: &'a [u8]) -> Authenticated<'a> {
        Authenticated { arguments: Cow::Borrowed(arguments), special: None }
    }

    /// Returns the outcome for a call to which a flavour or AUTH_SHORT adds something. Returns `None` if the
    /// caller's identity is too long.
    pub(super) fn special(arguments: Cow<'a, [u8]>, special: Special) -> Option<Authenticated<'a>> {
        let fits = special.caller.as_ref().is_none_or(|(_, body)| body.len() <= OpaqueAuth::LONGEST);
        fits.then(|| Authenticated { arguments, special: Some(Box::new(special)) })
    }

    /// Returns the caller's identity: the credential, or the identity that replaces it.
    #[inline]
    pub(super) fn credential<'s>(&'s self, call: &Call<'s>) -> OpaqueAuth<'s> {
        let caller = self.special.as_ref().and_then(|special| special.caller.as_ref());
        let Some((flavor, body)) = caller else { return call.credential };
        OpaqueAuth::new(flavor.0, body).unwrap_or(OpaqueAuth::NONE)
    }

    /// Returns the reply's verifier; `None` stands for AUTH_NONE.
    #[inline]
    pub(super) fn verifier(&self) -> Option<&Verifier> {
        self.special.as_ref()?.verifier.as_ref()
    }

    /// Returns whether the result is transformed.
    #[inline]
    pub(super) fn is_sealed(&self) -> bool {
        self.special.as_ref().is_some_and(|special| special.seal.is_some())
    }

    /// Takes out the seal that transforms the result.
    #[inline]
    pub(super) fn take_seal(&mut self) -> Option<Box<dyn Seal>> {
        self.special.as_mut()?.seal.take()
    }
}

/// Runs code of the user's that is not a procedure. Returns `None` if the code panics. The user's code must
/// cope with state that a panic has left half changed.
#[inline]
pub(super) fn guarded<R>(user: impl FnOnce() -> R) -> Option<R> {
    farcall::guard::run(user).ok()
}
