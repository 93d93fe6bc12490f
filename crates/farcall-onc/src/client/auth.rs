//! The credentials of a client (RFC 5531 sections 8 and 10).

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use farcall::{CallFailed, Kind, Ran, lock};

use crate::wire::auth::{AuthStat, Flavor, OpaqueAuth, Sys};

/// Writes the credentials of calls, and checks the verifiers of replies. An authenticator of a flavour that
/// protects arguments and results, such as RPCSEC_GSS (RFC 2203), does this too. The rest of the client does
/// not know the flavour.
pub trait Authenticator: Send + Sync + 'static {
    /// Appends the credential and the verifier to `message`. The call's header, from its identifier to its
    /// procedure, begins at `header`. The client passes the returned seal back with the reply. `again` says
    /// that the client can make the call once more if the server rejects it.
    ///
    /// # Errors
    /// The reason why there is no credential; the call is not made.
    fn seal(&self, message: &mut Vec<u8>, header: usize, again: bool) -> Result<Seal, CallFailed>;

    /// Protects the arguments of a call, which begin at index `arguments` in `message`.
    ///
    /// # Errors
    /// The reason why the arguments cannot be protected; the call is not made.
    fn protect(&self, message: &mut Vec<u8>, arguments: usize, seal: Seal) -> Result<(), CallFailed> {
        let _ = (message, arguments, seal);
        Ok(())
    }

    /// Checks the server's verifier, and removes the protection from the result.
    ///
    /// # Errors
    /// The reason why the server is not believed.
    fn open<'a>(
        &self,
        verifier: &OpaqueAuth<'_>,
        result: &'a [u8],
        seal: Seal,
    ) -> Result<Cow<'a, [u8]>, CallFailed> {
        let _ = (verifier, seal);
        Ok(Cow::Borrowed(result))
    }

    /// Returns whether each copy of a call that is sent again over UDP gets a new seal. Otherwise all copies
    /// have the same bytes. The thread that sends the copies seals them, so `seal` must not wait for a call
    /// of its own. A reply is opened with the seal of each copy, the latest first, until one seal fits.
    fn is_numbered(&self) -> bool {
        false
    }

    /// Handles the server's rejection of a call. Returns whether another credential may make it succeed.
    fn rejected(&self, why: AuthStat, seal: Seal) -> bool {
        let _ = (why, seal);
        false
    }
}

/// Identifies the credential that a call bears: a sequence number, or any number that the authenticator
/// chooses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seal(pub u64);

/// The credential AUTH_NONE, which names no user.
#[derive(Clone, Copy, Debug, Default)]
pub struct AuthNone;

impl Authenticator for AuthNone {
    #[inline]
    fn seal(&self, message: &mut Vec<u8>, _: usize, _: bool) -> Result<Seal, CallFailed> {
        // The credential and the verifier, each of flavour 0 and length 0.
        message.extend_from_slice(&[0; 16]);
        Ok(Seal::default())
    }
}

/// The credential AUTH_SYS: a user and groups, which this process asserts without proof. If the server gives
/// an AUTH_SHORT, a token that replaces the credential, the client sends the AUTH_SHORT until the server
/// rejects it.
pub struct AuthSys {
    /// The credential and the verifier, encoded.
    full: Vec<u8>,
    has_short: AtomicBool,
    short: Mutex<Vec<u8>>,
}

/// The seal of a call that bears the AUTH_SHORT.
const SHORT: Seal = Seal(1);

impl AuthSys {
    /// Returns the credential of the user that this process acts for, at this machine. Only the first 16 of
    /// the user's other groups fit.
    pub fn of_process() -> AuthSys {
        let uid = rustix::process::geteuid().as_raw();
        let gid = rustix::process::getegid().as_raw();
        let mut gids: Vec<u32> =
            rustix::process::getgroups().unwrap_or_default().iter().map(|g| g.as_raw()).collect();
        gids.retain(|other| *other != gid);
        gids.truncate(Sys::MOST_GIDS);
        let uname = rustix::system::uname();
        let machine = uname.nodename().to_bytes();
        let machine = &machine[..machine.len().min(Sys::LONGEST_NAME)];
        // This does not fail, because the name and the groups were cut to fit.
        AuthSys::new(machine, uid, gid, &gids).unwrap_or_else(|_| AuthSys::with(&[]))
    }

    /// Returns the credential of a user and groups at a machine.
    ///
    /// # Errors
    /// If there are more than 16 groups, or the name has more than 255 bytes.
    pub fn new(machine: &[u8], uid: u32, gid: u32, gids: &[u32]) -> io::Result<AuthSys> {
        let stamp = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs() as u32);
        let Some(sys) = Sys::new(stamp, machine, uid, gid, gids) else {
            let why = "AUTH_SYS has room for 16 groups and 255 bytes of a machine's name";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        };
        let mut body = Vec::new();
        sys.write(&mut body);
        Ok(AuthSys::with(&body))
    }

    fn with(body: &[u8]) -> AuthSys {
        let mut full = Vec::new();
        OpaqueAuth::new(Flavor::SYS.0, body).unwrap_or(OpaqueAuth::NONE).write(&mut full);
        OpaqueAuth::NONE.write(&mut full);
        AuthSys { full, has_short: AtomicBool::new(false), short: Mutex::default() }
    }
}

impl Authenticator for AuthSys {
    #[inline]
    fn seal(&self, message: &mut Vec<u8>, _: usize, again: bool) -> Result<Seal, CallFailed> {
        if again && self.has_short.load(Ordering::Relaxed) {
            message.extend_from_slice(&lock(&self.short));
            return Ok(SHORT);
        }
        message.extend_from_slice(&self.full);
        Ok(Seal::default())
    }

    #[inline]
    fn open<'a>(
        &self,
        verifier: &OpaqueAuth<'_>,
        result: &'a [u8],
        _: Seal,
    ) -> Result<Cow<'a, [u8]>, CallFailed> {
        if verifier.flavor() == Flavor::SHORT {
            let mut short = lock(&self.short);
            short.clear();
            verifier.write(&mut short);
            OpaqueAuth::NONE.write(&mut short);
            self.has_short.store(true, Ordering::Relaxed);
        }
        Ok(Cow::Borrowed(result))
    }

    fn rejected(&self, _: AuthStat, seal: Seal) -> bool {
        if seal == SHORT {
            self.has_short.store(false, Ordering::Relaxed);
        }
        seal == SHORT
    }
}

impl fmt::Debug for AuthSys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthSys").field("has_short", &self.has_short).finish_non_exhaustive()
    }
}

/// Returns the failure of a call whose server is not believed.
pub fn not_believed(why: impl Into<Cow<'static, str>>) -> CallFailed {
    CallFailed::new(Kind::NotPermitted, Ran::Maybe).because(why)
}
