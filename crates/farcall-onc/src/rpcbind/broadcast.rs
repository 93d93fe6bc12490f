//! Calls a program at all hosts of a network. Each host's port mapper passes the call on (RFC 1833 sections
//! 2.2.1 and 3.2).

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use farcall::env::{Env, Interest, Received, Socket, SocketOptions, Wait, Wanted};
use farcall::multi::Next;
use farcall::stub::{Program, bad_arguments};
use farcall::xdr::{Decode, Encode, from_slice, to_vec};
use farcall::{CallFailed, Kind, Ran, System};

use crate::client::spelled;
use crate::portmap::address::from_universal;
use crate::portmap::protocol::{Passed, PassedBack, Portmap, RemoteResult, Rpcbind4};
use crate::portmap::{PORT, PROGRAM};
use crate::wire::auth::OpaqueAuth;
use crate::wire::message::{Accepted, Answer, Call, Reply};

/// The number of the procedure that passes a call on: CALLIT in version 2 of the port mapper, BCAST in
/// version 4.
const PASS_ON: u32 = 5;
/// The most hosts whose answers are delivered.
const MAX_HOSTS: usize = 1 << 16;
/// The size of the buffer into which one datagram is read, in bytes. No datagram is longer.
const MAX_DATAGRAM_BYTES: usize = 64 << 10;
/// The size to request for the socket's buffer in the system, in bytes. It is large because many hosts may
/// answer at once.
const SOCKET_BUFFER_BYTES: usize = 1 << 20;

/// A call of a program at all hosts that have it, over UDP. A host does not answer if it lacks the program,
/// or if its port mapper passes no calls on.
///
/// ```no_run
/// use farcall::multi::Next;
/// use farcall_onc::rpcbind::Broadcast;
///
/// # fn main() -> Result<(), farcall::CallFailed> {
/// // How many users are logged in, at each host (RUSERSPROC_NUM).
/// Broadcast::of(100_002, 3, 1).each::<u32>(|heard| {
///     println!("{}: {:?}", heard.server, heard.result);
///     Next::Continue
/// })
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Broadcast {
    program: u32,
    version: u32,
    procedure: u32,
    arguments: Result<Vec<u8>, CallFailed>,
    mappers: Vec<SocketAddr>,
    within: Duration,
}

/// The answer of one host.
#[derive(Debug)]
pub struct Heard<T> {
    /// The host's address with the program's own port, at which it can be called directly.
    pub server: SocketAddr,
    /// The result, or the failure to read it.
    pub result: Result<T, CallFailed>,
}

impl Broadcast {
    /// Returns a call of a procedure without arguments; [`Broadcast::arguments`] adds them.
    pub fn of(program: u32, version: u32, procedure: u32) -> Broadcast {
        let within = Duration::from_secs(8);
        Broadcast { program, version, procedure, arguments: Ok(Vec::new()), mappers: Vec::new(), within }
    }

    /// Returns a call of a procedure of an interface's program and version.
    pub fn of_interface<T: ?Sized + Program>(procedure: u32) -> Broadcast {
        Broadcast::of(T::PROGRAM, T::VERSION, procedure)
    }

    /// Sets the procedure's arguments, as a tuple if there are several.
    #[must_use]
    pub fn arguments(mut self, arguments: &impl Encode) -> Broadcast {
        self.arguments = to_vec(arguments).map_err(bad_arguments);
        self
    }

    /// Adds hosts to call: a network's broadcast address, a multicast address (`ff02::202`) or a host's own.
    /// If none is added, the call goes to 255.255.255.255, which reaches the network of the default route.
    #[must_use]
    pub fn to(self, host: IpAddr) -> Broadcast {
        self.to_mapper(SocketAddr::new(host, PORT))
    }

    /// Adds a host or a network whose port mappers have another port than 111.
    #[must_use]
    pub fn to_mapper(mut self, mapper: SocketAddr) -> Broadcast {
        self.mappers.push(mapper);
        self
    }

    /// Sets how long to wait for answers, unless the handler stops earlier; 8 seconds by default.
    #[must_use]
    pub fn within(mut self, time: Duration) -> Broadcast {
        self.within = time;
        self
    }

    /// Sends the call, and gives each host's first answer to `handler` as it arrives, until the handler
    /// returns [`Next::Stop`] or the time is over. The call is sent several times, and a host may execute
    /// each copy.
    ///
    /// # Errors
    /// If the call cannot be sent.
    pub fn each<T: for<'a> Decode<'a>>(
        mut self,
        mut handler: impl FnMut(Heard<T>) -> Next,
    ) -> Result<(), CallFailed> {
        if self.mappers.is_empty() {
            self.mappers.push(SocketAddr::new(Ipv4Addr::BROADCAST.into(), PORT));
        }
        let arguments = self.arguments.clone()?;
        let env = System::current();
        let mut ways = self.ways(&*env, &arguments).map_err(|why| {
            CallFailed::new(Kind::Local, Ran::No).because(format!("broadcasting: {why}")).caused_by(why)
        })?;
        let (start, mut heard, mut buffer) = (env.now(), HashSet::new(), vec![0; MAX_DATAGRAM_BYTES]);
        let (mut next, mut pause) = (start, Duration::from_secs(1));
        loop {
            let now = env.now();
            let left = self.within.saturating_sub(now.since(start));
            if left.is_zero() {
                return Ok(());
            }
            if next <= now {
                let sent = ways.iter().map(Way::send).max() == Some(true);
                if !sent && next == start {
                    let why = format!("broadcasting: nothing can be sent to {:?}", self.mappers);
                    return Err(CallFailed::new(Kind::Local, Ran::No).because(why));
                }
                (next, pause) = (now + pause, pause * 2);
            }
            wait(&*env, &ways, left.min(next.since(now)));
            // Only one answer per socket is read before the time is checked again. Otherwise endless answers
            // could keep this loop from ending.
            for way in &mut ways {
                let Some((from, message)) = way.receive(&mut buffer) else { continue };
                let Some((server, result)) = way.read(from, message) else { continue };
                if heard.len() >= MAX_HOSTS || !heard.insert(from) {
                    continue;
                }
                if handler(Heard { server, result: self.value(server, &result) }) == Next::Stop {
                    return Ok(());
                }
            }
        }
    }

    /// Sends the call, and returns all answers that arrive before the time is over.
    ///
    /// # Errors
    /// The errors of [`Broadcast::each`].
    pub fn all<T: for<'a> Decode<'a>>(self) -> Result<Vec<Heard<T>>, CallFailed> {
        let mut all = Vec::new();
        self.each(|heard| {
            all.push(heard);
            Next::Continue
        })?;
        Ok(all)
    }

    fn value<T: for<'a> Decode<'a>>(&self, server: SocketAddr, result: &[u8]) -> Result<T, CallFailed> {
        from_slice(result).map_err(|why| {
            let Broadcast { program, version, procedure, .. } = self;
            let text = format!("procedure {procedure} of {} at {server}: {why}", spelled(*program, *version));
            CallFailed::new(Kind::BadResult, Ran::Yes).because(text).caused_by(why)
        })
    }

    /// Opens a socket for each family of addresses.
    fn ways(&self, env: &dyn Env, arguments: &[u8]) -> io::Result<Vec<Way>> {
        let mut xid = [0; 4];
        env.entropy(&mut xid);
        let xid = u32::from_ne_bytes(xid);
        let families: [(bool, IpAddr); 2] =
            [(true, Ipv4Addr::UNSPECIFIED.into()), (false, Ipv6Addr::UNSPECIFIED.into())];
        let mut ways = Vec::new();
        for (v4, any) in families {
            let to: Vec<SocketAddr> =
                self.mappers.iter().copied().filter(|mapper| mapper.is_ipv4() == v4).collect();
            if to.is_empty() {
                continue;
            }
            let options =
                SocketOptions { buffer: SOCKET_BUFFER_BYTES, divisible: true, ..SocketOptions::default() };
            let socket = env.bind(SocketAddr::new(any, 0), &options)?;
            // All port mappers speak version 2, which has no IPv6.
            let version = if v4 { <dyn Portmap>::VERSION } else { <dyn Rpcbind4>::VERSION };
            ways.push(Way { socket, to, message: self.message(xid, version, arguments), xid, v4 });
        }
        Ok(ways)
    }

    fn message(&self, xid: u32, version: u32, arguments: &[u8]) -> Vec<u8> {
        let (credential, verifier) = (OpaqueAuth::NONE, OpaqueAuth::NONE);
        let mut message = Vec::new();
        Call { xid, program: PROGRAM, version, procedure: PASS_ON, credential, verifier }.write(&mut message);
        let Broadcast { program, version, procedure, .. } = *self;
        let passed = Passed { program, version, procedure, arguments: arguments.to_vec() };
        // Encoding does not fail, because no field has a bound. The system bounds the datagram.
        message.extend(to_vec(&passed).unwrap_or_default());
        message
    }
}

/// A socket for hosts of one family of addresses. It is not connected, because answers may come from other
/// ports than 111.
struct Way {
    socket: Arc<dyn Socket>,
    to: Vec<SocketAddr>,
    message: Vec<u8>,
    xid: u32,
    v4: bool,
}

impl Way {
    /// Sends the call. Returns whether it was sent to at least one address.
    fn send(&self) -> bool {
        self.to.iter().filter(|to| self.socket.send(**to, &self.message).is_ok()).count() > 0
    }

    fn receive<'a>(&self, buffer: &'a mut [u8]) -> Option<(SocketAddr, &'a [u8])> {
        match self.socket.receive(buffer, Wait::No) {
            Ok(Received::Datagrams { from, len, .. }) => Some((from, buffer.get(..len)?)),
            Ok(_) | Err(_) => None,
        }
    }

    /// Returns the program's address and its result, or `None` if the message is no answer to this call.
    fn read(&self, from: SocketAddr, message: &[u8]) -> Option<(SocketAddr, Vec<u8>)> {
        let reply = Reply::parse(message).ok().filter(|reply| reply.xid == self.xid)?;
        let Answer::Accepted { outcome: Accepted::Success(body), .. } = reply.answer else { return None };
        if self.v4 {
            let PassedBack { port, result } = from_slice(body).ok()?;
            return Some((at(from, u16::try_from(port).ok()?), result));
        }
        let RemoteResult { address, result } = from_slice(body).ok()?;
        Some((at(from, from_universal(&address)?.port()), result))
    }
}

/// Returns the address with another port. It keeps the IPv6 scope, which names the network interface.
fn at(mut host: SocketAddr, port: u16) -> SocketAddr {
    host.set_port(port);
    host
}

/// Sleeps until a datagram has arrived, or the time is over.
fn wait(env: &dyn Env, ways: &[Way], time: Duration) {
    let mut wanted: Vec<Wanted<'_>> =
        ways.iter().filter_map(|way| Some(Wanted::new(way.socket.source()?, Interest::READ))).collect();
    let _ = env.wait_any(&mut wanted, Some(time));
}
