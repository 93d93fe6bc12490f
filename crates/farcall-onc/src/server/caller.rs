//! Who calls, as the procedure that serves the call may ask.

use std::cell::RefCell;
use std::fmt;
use std::net::SocketAddr;

use farcall::context::{EnteredElsewhere, enter_elsewhere};

use super::peer::{Peer, Transport};
use crate::Client;
use crate::wire::auth::{Credential, Flavor, OpaqueAuth};
use crate::wire::message::Call;

/// The call that this thread is serving, if it serves one of ONC RPC.
///
/// [`farcall::context`] says who calls too, whatever the protocol.
pub fn caller() -> Option<Caller> {
    CURRENT.with_borrow(Current::caller)
}

/// The call that this thread is serving gets no reply, whatever its procedure gives: so some protocols say
/// that there is nothing to say, where many may answer.
pub fn say_nothing() {
    CURRENT.with_borrow_mut(|current| current.silent = true);
}

/// Who calls, by which way, and what.
#[derive(Clone)]
pub struct Caller {
    peer: Peer,
    /// Program, version, procedure.
    numbers: [u32; 3],
    flavor: Flavor,
    body: Box<[u8]>,
}

impl Caller {
    /// Whoever makes this call, by this credential.
    pub(super) fn new(peer: &Peer, call: &Call<'_>, credential: OpaqueAuth<'_>) -> Caller {
        Caller {
            peer: peer.clone(),
            numbers: [call.program, call.version, call.procedure],
            flavor: credential.flavor(),
            body: credential.body().into(),
        }
    }

    /// The address that the call came from; none over a Unix socket.
    pub fn address(&self) -> Option<SocketAddr> {
        self.peer.address
    }

    /// How the call came.
    pub fn transport(&self) -> Transport {
        self.peer.transport
    }

    /// The program that is called.
    pub fn program(&self) -> u32 {
        self.numbers[0]
    }

    /// The version that is called.
    pub fn version(&self) -> u32 {
        self.numbers[1]
    }

    /// The procedure that is called.
    pub fn procedure(&self) -> u32 {
        self.numbers[2]
    }

    /// The flavour of the credential; of what authenticated for it (AUTH_SHORT), that of what it authenticated for.
    pub fn flavor(&self) -> Flavor {
        self.flavor
    }

    /// Who calls. What AUTH_SYS says is the caller's own word: believe it of hosts whose superusers you
    /// trust.
    pub fn credential(&self) -> Credential<'_> {
        let auth = OpaqueAuth::new(self.flavor.0, &self.body).unwrap_or(OpaqueAuth::NONE);
        // It was looked at before the call was admitted.
        auth.credential().unwrap_or(Credential::None)
    }

    /// The user at the other end of a Unix socket, by the word of the system; known on Linux alone.
    pub fn user(&self) -> Option<u32> {
        self.peer.user
    }

    /// Who calls the caller, on the connection that the call came by, which the server's own procedures may
    /// do too; none of one that came otherwise. It serves what it was told to by
    /// [`Builder::serve`](crate::Builder::serve), if it is one of ours.
    pub fn client(&self) -> Option<Client> {
        self.peer.connection.clone()?.client()
    }

    /// Whether the call came from a port that only a superuser may have: a sign, not a proof.
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

/// What a [`Caller`] is made of, once for each thread: it is filled for each call, in place, and allocates
/// nothing.
struct Current {
    /// A call is being served.
    any: bool,
    peer: Peer,
    numbers: [u32; 3],
    flavor: Flavor,
    len: usize,
    body: [u8; OpaqueAuth::LONGEST],
    /// It gets no reply.
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

/// Says that this thread serves `call` of whom the credential names, until what it returns is dropped. Nobody
/// serves two at a time.
#[inline]
pub(super) fn enter(peer: &Peer, call: &Call<'_>, credential: OpaqueAuth<'_>) -> Serving {
    let body = credential.body();
    CURRENT.with_borrow_mut(|current| {
        (current.any, current.silent) = (true, false);
        current.peer.clone_from(peer);
        current.numbers = [call.program, call.version, call.procedure];
        current.flavor = credential.flavor();
        current.len = body.len();
        // No longer than `LONGEST`, or it would not be.
        current.body[..body.len()].copy_from_slice(body);
    });
    Serving { _context: peer.address.map(enter_elsewhere) }
}

/// A call is being served.
pub(super) struct Serving {
    _context: Option<EnteredElsewhere>,
}

impl Serving {
    /// Whether the call gets no reply.
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
