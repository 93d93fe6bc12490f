//! Gives each copy of a call over UDP its own seal, as RPCSEC_GSS requires (RFC 2203 section 5.3.3.1).

use std::borrow::Cow;
use std::mem;
use std::sync::{Arc, Mutex};

use farcall::{CallFailed, lock};

use super::auth::{Authenticator, Seal, not_believed};
use crate::wire::auth::{AuthStat, OpaqueAuth};

/// The most seals of one call that are kept. A reply to an older copy is not believed.
const MAX_SEALS: usize = 16;

/// The authenticator of one call. It remembers the seals of the copies that were sent.
pub(crate) struct Resealer {
    auth: Arc<dyn Authenticator>,
    call: Mutex<Plain>,
}

#[derive(Default)]
struct Plain {
    header: Vec<u8>,
    arguments: Vec<u8>,
    /// The seals of the copies, the latest last.
    seals: Vec<Seal>,
}

impl Resealer {
    pub(crate) fn new(auth: Arc<dyn Authenticator>) -> Resealer {
        Resealer { auth, call: Mutex::default() }
    }

    /// Returns another copy of the call. Returns `None` if the authenticator fails or panics; the copy then
    /// counts as a lost datagram.
    pub(crate) fn another(&self) -> Option<Vec<u8>> {
        let (mut message, arguments) = {
            let call = lock(&self.call);
            (call.header.clone(), call.arguments.clone())
        };
        let write = || {
            let seal = self.seal(&mut message, 0, false)?;
            let at = message.len();
            message.extend_from_slice(&arguments);
            self.auth.protect(&mut message, at, seal)
        };
        farcall::guard::run(write).is_ok_and(|written| written.is_ok()).then_some(message)
    }
}

impl Authenticator for Resealer {
    fn seal(&self, message: &mut Vec<u8>, header: usize, again: bool) -> Result<Seal, CallFailed> {
        let plain = message.get(header..).unwrap_or_default().to_vec();
        let seal = self.auth.seal(message, header, again)?;
        let mut call = lock(&self.call);
        call.header = plain;
        if call.seals.len() == MAX_SEALS {
            call.seals.remove(0);
        }
        call.seals.push(seal);
        Ok(seal)
    }

    fn protect(&self, message: &mut Vec<u8>, arguments: usize, seal: Seal) -> Result<(), CallFailed> {
        lock(&self.call).arguments = message.get(arguments..).unwrap_or_default().to_vec();
        self.auth.protect(message, arguments, seal)
    }

    /// Opens a reply with the seal of the copy that it answers. Only the verifier shows which copy that is,
    /// so the seals are tried.
    fn open<'a>(
        &self,
        verifier: &OpaqueAuth<'_>,
        result: &'a [u8],
        _: Seal,
    ) -> Result<Cow<'a, [u8]>, CallFailed> {
        let mut opened = Err(not_believed("it answers no call"));
        for seal in mem::take(&mut lock(&self.call).seals).into_iter().rev() {
            opened = self.auth.open(verifier, result, seal);
            if opened.is_ok() {
                break;
            }
        }
        opened
    }

    fn rejected(&self, why: AuthStat, seal: Seal) -> bool {
        self.auth.rejected(why, seal)
    }
}
