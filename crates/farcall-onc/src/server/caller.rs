//! What a procedure can ask about the call that it serves: the caller, its credential and its connection.

use std::cell::RefCell;
use std::fmt;
use std::net::SocketAddr;

use farcall::context::{EnteredElsewhere, enter_elsewhere};

use super::peer::{Peer, Transport};
use crate::Client;
use crate::wire::auth::{Credential, Flavor, OpaqueAuth};
use crate::wire::message::Call;

/// Returns the caller of the ONC RPC call that this thread is serving, if it is serving one.
///
/// [`farcall::context`] returns the caller's address for calls of every protocol.
pub fn caller() -> Option<Caller> {
    CURRENT.with_borrow(Current::caller)
}

/// Suppresses the reply to the call that this thread is serving, whatever its procedure returns. Some
/// protocols ask many servers at once, and want no reply from a server that has nothing to tell.
pub fn say_nothing() {
    CURRENT.with_borrow_mut(|current| current.silent = true);
}

/// A call's origin: the caller's address and credential, the transport, and the procedure that is called.
#[derive(Clone)]
pub struct Caller {
    peer: Peer,
    /// The numbers of the program, the version and the procedure.
    numbers: [u32; 3],
    flavor: Flavor,
    body: Box<[u8]>,
}

impl Caller {
    /// Describes the caller of `call`, whose identity is `credential`.
    pub(super) fn new(peer: &Peer, call: &Call<'_>, credential: OpaqueAuth<'_>) -> Caller {
        Caller {
            peer: peer.clone(),
            numbers: [call.program, call.version, call.procedure],
            flavor: credential.flavor(),
            body: credential.body().into(),
        }
    }

    /// Returns the address that the call came from; `None` over a Unix socket.
    pub fn address(&self) -> Option<SocketAddr> {
        self.peer.address
    }

    /// Returns the transport by which the call came.
    pub fn transport(&self) -> Transport {
        self.peer.transport
    }

    /// Returns the number of the program that is called.
    pub fn program(&self) -> u32 {
        self.numbers[0]
    }

    /// Returns the version that is called.
    pub fn version(&self) -> u32 {
        self.numbers[1]
    }

    /// Returns the number of the procedure that is called.
    pub fn procedure(&self) -> u32 {
        self.numbers[2]
    }

    /// Returns the flavour of the credential. A call with an AUTH_SHORT counts as a call with the AUTH_SYS
    /// credential that the AUTH_SHORT replaces.
    pub fn flavor(&self) -> Flavor {
        self.flavor
    }

    /// Returns the caller's credential. Nothing proves what an AUTH_SYS credential says: believe it only from
    /// hosts whose superusers you trust.
    pub fn credential(&self) -> Credential<'_> {
        let auth = OpaqueAuth::new(self.flavor.0, &self.body).unwrap_or(OpaqueAuth::NONE);
        // The credential was checked before the call was admitted.
        auth.credential().unwrap_or(Credential::None)
    }

    /// Returns the user at the other end of a Unix socket, as the operating system reports it. Known only on
    /// Linux.
    pub fn user(&self) -> Option<u32> {
        self.peer.user
    }

    /// Returns a client by which the server can call its caller, on the connection by which the call came.
    /// Returns `None` if the call came as a datagram. A caller that uses this library serves the programs
    /// that it passed to [`Builder::serve`](crate::Builder::serve).
    pub fn client(&self) -> Option<Client> {
        self.peer.connection.clone()?.client()
    }

    /// Returns whether the call came from a port below 1024, which only a superuser can usually bind. This is
    /// a sign, not a proof.
    pub fn is_reserved_port(&self) -> bool {
        self.address().is_some_and(|address| address.port() < 1024)
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = f.debug_struct("Caller");
        all.field("address", &self.address()).field("transport", &self.transport());
        all.field("call", &self.numbers).field("credential", &self.credential()).finish()
    }
}

/// The facts from which a [`Caller`] is made. Each thread has one such record, which is filled in place for
/// each call, without an allocation.
struct Current {
    /// Whether a call is being served.
    any: bool,
    peer: Peer,
    /// The numbers of the program, the version and the procedure.
    numbers: [u32; 3],
    /// The flavour of the credential.
    flavor: Flavor,
    /// The length of the credential's body in bytes.
    len: usize,
    /// The credential's body, followed by unused bytes.
    body: [u8; OpaqueAuth::LONGEST],
    /// Whether the reply is suppressed.
    silent: bool,
}

impl Current {
    const NOBODY: Current = Current {
        any: false,
        peer: Peer::at(Transport::Udp, None),
        numbers: [0; 3],
        flavor: Flavor::NONE,
        len: 0,
        body: [0; OpaqueAuth::LONGEST],
        silent: false,
    };

    fn caller(&self) -> Option<Caller> {
        let body = self.body.get(..self.len).unwrap_or_default().into();
        let caller = || Caller { peer: self.peer.clone(), numbers: self.numbers, flavor: self.flavor, body };
        self.any.then(caller)
    }
}

thread_local! {
    static CURRENT: RefCell<Current> = const { RefCell::new(Current::NOBODY) };
}

/// Notes that this thread serves `call` of the caller that `credential` names, until the returned guard is
/// dropped. A thread serves one call at a time.
#[inline]
pub(super) fn enter(peer: &Peer, call: &Call<'_>, credential: OpaqueAuth<'_>) -> Serving {
    let body = credential.body();
    CURRENT.with_borrow_mut(|current| {
        (current.any, current.silent) = (true, false);
        current.peer.clone_from(peer);
        current.numbers = [call.program, call.version, call.procedure];
        current.flavor = credential.flavor();
        current.len = body.len();
        // An `OpaqueAuth` is never longer than `LONGEST`.
        current.body[..body.len()].copy_from_slice(body);
    });
    Serving { _context: peer.address.map(enter_elsewhere) }
}

/// The guard that [`enter`] returns. When it is dropped, the thread no longer serves the call.
pub(super) struct Serving {
    _context: Option<EnteredElsewhere>,
}

impl Serving {
    /// Returns whether the reply is suppressed.
    #[inline]
    pub(super) fn is_silent(&self) -> bool {
        CURRENT.with_borrow(|current| current.silent)
    }
}

impl Drop for Serving {
    #[inline]
    fn drop(&mut self) {
        let connection = CURRENT.with_borrow_mut(|current| {
            current.any = false;
            current.peer.connection.take()
        });
        drop(connection);
    }
}
