//! A server without sockets and threads, for messages from a transport of the user's own.

use std::fmt;
use std::net::SocketAddr;

use farcall::room;

use super::ServerBuilder;
use super::datagrams::MAX_DATAGRAM_BYTES;
use super::duplicates::Duplicates;
use super::outgoing::Outgoing;
use super::peer::{Peer, Transport};
use super::programs::Programs;

/// A server without sockets. [`Dispatcher::answer`] answers messages from a transport of the user's own, or
/// from a test.
///
/// ```
/// # use std::sync::Arc;
/// # #[farcall::interface(program = 0x2000_0001, version = 1)]
/// # pub trait Echo {
/// #     #[procedure(1)]
/// #     fn twice(&self, number: u32) -> farcall::Result<u32>;
/// # }
/// # struct Twice;
/// # impl Echo for Twice {
/// #     fn twice(&self, number: u32) -> farcall::Result<u32> {
/// #         Ok(number.wrapping_mul(2))
/// #     }
/// # }
/// use farcall_onc::server::{Server, Transport};
/// use farcall_onc::wire::auth::OpaqueAuth;
/// use farcall_onc::wire::message::Call;
///
/// let dispatcher = Server::builder().program::<dyn Echo>(Arc::new(Twice)).dispatcher();
/// let mut message = Vec::new();
/// let (credential, verifier) = (OpaqueAuth::NONE, OpaqueAuth::NONE);
/// Call { xid: 7, program: 0x2000_0001, version: 1, procedure: 1, credential, verifier }.write(&mut message);
/// message.extend(21u32.to_be_bytes());
///
/// let mut reply = Vec::new();
/// assert!(dispatcher.answer(Transport::Tcp, None, &message, &mut reply));
/// assert_eq!(reply[24..], 42u32.to_be_bytes());
/// ```
pub struct Dispatcher {
    programs: Programs,
}

impl ServerBuilder {
    /// Makes a dispatcher instead of a server. The dispatcher ignores addresses, registrations, and the
    /// options for threads and connections.
    pub fn dispatcher(mut self) -> Dispatcher {
        self.programs.duplicates = self.retention.map(Duplicates::new);
        Dispatcher { programs: self.programs }
    }
}

impl Dispatcher {
    /// Answers a message that came from `address`. Runs the procedure in this thread and appends its reply to
    /// `reply`. Returns false if there is no reply: the message is no call, the call is a repetition of a
    /// call that is being served, the procedure sends no reply, or this process has no memory for it.
    ///
    /// A call counts as sent again if an equal call came from the same address and port; over TCP the port
    /// does not matter.
    pub fn answer(
        &self,
        transport: Transport,
        address: Option<SocketAddr>,
        message: &[u8],
        reply: &mut Vec<u8>,
    ) -> bool {
        let peer = Peer::at(transport, address);
        let mut out = match transport {
            Transport::Udp => Outgoing::datagram(MAX_DATAGRAM_BYTES),
            Transport::Tcp | Transport::Unix => Outgoing::default(),
        };
        let wanted = self.programs.answer(message, &peer, &mut out);
        if wanted && room::reserve(reply, out.len()).is_ok() {
            out.parts().iter().for_each(|part| reply.extend_from_slice(part));
            return true;
        }
        false
    }
}

impl fmt::Debug for Dispatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = f.debug_struct("Dispatcher");
        all.field("programs", &self.programs.numbers().collect::<Vec<_>>()).finish_non_exhaustive()
    }
}
