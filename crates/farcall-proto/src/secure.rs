//! The seals of schemes with secrets (docs/protocol.md, section 11): which datagrams a program that drives
//! this crate has to open, and how.
//!
//! A program opens each sealed datagram before it hands the datagram in, and seals each datagram that has a
//! [`Cipher`] before it sends it. So both can happen outside the lock under which the protocol works.

use std::sync::Arc;
#[cfg(feature = "secure")]
use std::time::Duration;

#[cfg(feature = "secure")]
pub use farcall_crypto::Cipher;
#[cfg(feature = "audit")]
#[doc(hidden)]
pub use farcall_crypto::audit;

#[cfg(feature = "secure")]
pub use crate::padding::Padding;
use crate::wire::Layout;
pub use crate::wire::{Opened, is_sealed};

/// The longest time that a server lets a client wait at once, and that a client waits because the server says
/// so.
#[cfg(feature = "secure")]
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(4);

/// The keys of one end of a conversation. In this build there are none.
#[cfg(not(feature = "secure"))]
#[derive(Debug)]
pub enum Cipher {}

#[cfg(not(feature = "secure"))]
impl Cipher {
    fn phase(&self) -> u32 {
        match *self {}
    }

    fn open(&self, _: u16, _: u64, _: &mut [u8], _: usize) -> Option<u32> {
        match *self {}
    }

    fn seal(&self, _: u64, _: &mut [u8], _: usize) {
        match *self {}
    }
}

/// Opens a datagram in place. Returns `None` if it was not sealed by the other end of the cipher's
/// conversation. Its content is lost then.
pub fn open(cipher: &Cipher, datagram: &mut [u8]) -> Option<Opened> {
    let Layout { number, phase, clear } = Layout::read(datagram)?;
    cipher.open(phase, number, datagram, clear).map(|phase| Opened { phase })
}

/// Seals a datagram in place.
pub fn seal(cipher: &Cipher, datagram: &mut [u8]) {
    if let Some(Layout { number, clear, .. }) = Layout::mark(datagram, cipher.phase()) {
        cipher.seal(number, datagram, clear);
    }
}

/// Seals a datagram in place as the answer to one question.
#[cfg(feature = "secure")]
pub(crate) fn seal_answer(answering: &farcall_crypto::Answering, datagram: &mut [u8]) {
    if let Some(number) = Layout::mark_answer(datagram) {
        answering.seal(number, datagram);
    }
}

/// Seals a datagram in place if there is a cipher for it.
#[inline]
pub fn seal_by(cipher: &Option<Arc<Cipher>>, datagram: &mut [u8]) {
    if let Some(cipher) = cipher {
        seal(cipher, datagram);
    }
}

#[cfg(feature = "secure")]
mod trust {
    use std::sync::Arc;

    use farcall_base::Principal;
    use zeroize::Zeroizing;

    /// The longest presentation of an end, in bytes, so that a handshake fits one datagram each way.
    pub const MAX_PRESENTATION: usize = 500;

    /// The longest facts about a client that a ticket holds, in bytes.
    pub const MAX_FACTS: usize = 128;

    /// What an end knows of keys: its own, and which others it accepts for what. The functions may be called
    /// while the protocol's lock is held, so they must not wait. A server calls [`Trust::accept_client`]
    /// while it does not hold the lock.
    pub trait Trust: std::fmt::Debug + Send + Sync {
        /// Returns this end's private key (X25519).
        fn private_key(&self) -> Zeroizing<[u8; 32]>;

        /// Returns what this end shows of itself to an end that asked for `name`, or that it asks for it: at
        /// most [`MAX_PRESENTATION`] bytes. A server calls this for an end that it does not know.
        fn presentation(&self, name: &[u8]) -> Vec<u8>;

        /// Returns what a client shows of itself in a handshake for a conversation that has these names, the
        /// one that it asks for first: at most [`MAX_PRESENTATION`] bytes. There is at least one name. The
        /// conversation's rights for all of them follow from this. By default, it shows what the first name
        /// needs.
        fn presentation_for(&self, names: &[&[u8]]) -> Vec<u8> {
            self.presentation(names.first().copied().unwrap_or_default())
        }

        /// Decides whether the server that shows this presentation may answer for `name`. Returns its public
        /// key (X25519), which the handshake then proves, and who it is. The principal has what the server
        /// has shown as its evidence: a key can show several grants, and each name of each conversation
        /// stands on what was shown for it there.
        ///
        /// Anybody on the path can show something in a server's name, so this must not change what is known
        /// of any server.
        ///
        /// # Errors
        /// Why the server is not accepted: what was expected, what came, and what to do.
        fn accept_server(&self, name: &[u8], presentation: &[u8]) -> Result<Accepted, String>;

        /// Returns whether a server that was accepted, and has proven its key, still is, by its own evidence.
        /// A client asks this when the server's proof has come, because keys may change meanwhile, and in
        /// [`recheck_server`](crate::client::Conversation::recheck_server), both under the lock of the
        /// conversation. By default it is.
        fn stands(&self, server: &Principal) -> bool {
            let _ = server;
            true
        }

        /// Decides whether the client that has this public key (X25519), and shows this presentation, may
        /// call. Returns facts from which [`Trust::recall`] makes the principal: at most [`MAX_FACTS`] bytes.
        /// The facts name this presentation, not only the key: a key can show several, and each conversation
        /// has the rights of its own.
        ///
        /// Anybody can repeat a client's first message, so this must not change what is known of any client.
        ///
        /// # Errors
        /// Why the client is not accepted.
        fn accept_client(&self, key: &[u8; 32], presentation: &[u8]) -> Result<Vec<u8>, String>;

        /// Returns the principal of these facts, if it is still accepted.
        ///
        /// # Errors
        /// Why the client is no longer accepted.
        fn recall(&self, facts: &[u8]) -> Result<Arc<Principal>, String>;

        /// Is told that a client has proven that it holds its key now, and begins a conversation. `client` is
        /// what [`Trust::recall`] has returned. By default nothing follows.
        fn proven(&self, client: &Arc<Principal>) {
            let _ = client;
        }

        /// Fills `out` with random bytes that nobody can guess.
        fn entropy(&self, out: &mut [u8]);

        /// Is told that a client has new secrets. `line` makes the [line](crate::key_log::line_of) of a log
        /// of secrets for them. By default nothing is logged.
        fn agreed(&self, line: &dyn Fn() -> Zeroizing<String>) {
            let _ = line;
        }
    }

    /// A server that may answer for a name.
    #[derive(Clone, Debug)]
    pub struct Accepted {
        /// The server's public key (X25519).
        pub key: [u8; 32],
        /// Who the server is.
        pub principal: Arc<Principal>,
    }
}

#[cfg(feature = "secure")]
pub use farcall_crypto::{Level, Suite, Suites};
#[cfg(feature = "secure")]
pub use trust::{Accepted, MAX_FACTS, MAX_PRESENTATION, Trust};
