//! The procedures of the port mapper, versions 2 to 4 (RFC 1833).

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use farcall::env::{Address, ConnectOptions, Env, Time, Wait};
use farcall::{CallFailed, Kind, Ran, System};

use super::{Mapper, SUPERUSER, reachable};
use crate::portmap::PROGRAM;
use crate::portmap::address::{from_universal, netid, to_universal};
use crate::portmap::protocol::*;
use crate::server::{Caller, Offer, Transport, caller, say_nothing};
use crate::wire::auth::{Flavor, OpaqueAuth};
use crate::wire::message::{Accepted, Answer, Call, Reply};

/// The greatest number of large answers and of forwarded calls, together, in a second, for datagrams from
/// other machines. It is bounded because a sender's address may be forged, and the host with that address
/// then gets the answers.
const ANSWERS_PER_SECOND: u32 = 20;
/// How long a program has to answer a forwarded call.
const FORWARD_TIMEOUT: Duration = Duration::from_secs(2);

/// The most calls that are forwarded at once. Each occupies a thread until it is answered.
const MAX_FORWARDING: usize = 16;

/// A mapper that serves the port mapper's programs.
pub(crate) struct Offered {
    env: Arc<dyn Env>,
    mapper: Mapper,
    bucket: Mutex<Bucket>,
    /// The identifier of the next forwarded call. Each call is sent from a new port, which may have been used
    /// before. The new identifier keeps the program from taking the call for an earlier one.
    next: AtomicU32,
    /// How many calls are being forwarded.
    passing: AtomicUsize,
}

/// How many answers are left in the current second.
struct Bucket {
    since: Time,
    left: u32,
}

impl Offered {
    pub(crate) fn new(mapper: &Mapper) -> Arc<Offered> {
        let env = System::current();
        let bucket = Bucket { since: env.now(), left: ANSWERS_PER_SECOND };
        let mut next = [0; 4];
        env.entropy(&mut next);
        Arc::new(Offered {
            env,
            mapper: mapper.clone(),
            bucket: Mutex::new(bucket),
            next: AtomicU32::new(u32::from_ne_bytes(next)),
            passing: AtomicUsize::new(0),
        })
    }

    /// Returns the programs of the three versions. Replies of CALLIT are not kept, so that a repeated call
    /// counts against the limit again and can be left unanswered.
    pub(crate) fn offers(self: Arc<Self>) -> [Offer; 3] {
        const CALL_IT: u32 = 5;
        [
            Offer::new::<dyn Portmap>(self.clone(), &[]),
            Offer::new::<dyn Rpcbind3>(self.clone(), &[]),
            Offer::new::<dyn Rpcbind4>(self, &[]),
        ]
        .map(|offer| offer.not_kept(&[CALL_IT]))
    }

    /// Takes one answer from the limit for datagrams from other machines. Returns false if there is none
    /// left; the caller then sends no reply. Other calls are not limited.
    fn is_fair(&self) -> bool {
        let from_afar =
            caller().is_some_and(|caller| caller.transport() == Transport::Udp && !is_of_this_host(&caller));
        if !from_afar {
            return true;
        }
        let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.env.now();
        if now.since(bucket.since) >= Duration::from_secs(1) {
            *bucket = Bucket { since: now, left: ANSWERS_PER_SECOND };
        }
        let fair = bucket.left > 0;
        bucket.left = bucket.left.saturating_sub(1);
        fair
    }

    fn set(&self, entry: Rpcb) -> bool {
        let Some(owner) = owner() else { return false };
        self.mapper.set(Rpcb { owner, ..entry })
    }

    fn unset(&self, entry: Rpcb) -> bool {
        let Some(owner) = owner() else { return false };
        self.mapper.unset(&Rpcb { owner, ..entry })
    }

    /// Returns the address of a program on the network by which the call came; empty if there is none.
    fn address(&self, asked: Rpcb, any_version: bool) -> String {
        let Some(caller) = caller() else { return String::new() };
        let wanted = Rpcb { netid: netid_of(&caller).into(), ..asked };
        let found = self.mapper.find(&wanted, any_version);
        found.map_or_else(String::new, |found| reachable(&found.address, &wanted.address, caller.address()))
    }

    fn dump(&self) -> Vec<Rpcb> {
        if !self.is_fair() {
            say_nothing();
            return Vec::new();
        }
        self.mapper.entries()
    }

    /// Forwards a call to its program, for broadcasts. If anything is wrong, sends no reply (RFC 1833 section
    /// 2.2.2).
    fn pass(&self, call: &Passed) -> farcall::Result<(SocketAddr, Vec<u8>)> {
        // What AUTH_SYS says is dropped: the program would believe it of a caller on its own host.
        let is_nameable = |flavor| matches!(flavor, Flavor::NONE | Flavor::SYS);
        let known = caller().is_some_and(|caller| is_nameable(caller.flavor()));
        let allowed = self.mapper.forwards && known && call.program != PROGRAM && self.is_fair();
        let wanted =
            Rpcb { program: call.program, version: call.version, netid: "udp".into(), ..Rpcb::default() };
        let found = if allowed { self.mapper.find(&wanted, false) } else { None };
        let found = found.and_then(|found| from_universal(&reachable(&found.address, "127.0.0.1.0.0", None)));
        let has_room = self.passing.fetch_add(1, Ordering::Relaxed) < MAX_FORWARDING;
        let passed =
            found.filter(|_| has_room).and_then(|address| Some((address, self.ask(address, call).ok()??)));
        self.passing.fetch_sub(1, Ordering::Relaxed);
        passed.ok_or_else(|| {
            say_nothing();
            CallFailed::new(Kind::NotPermitted, Ran::No).into()
        })
    }

    /// Returns the address of a program of this host for the caller. The caller of a broadcast takes it for
    /// the host that has answered, so the host part is the address from which this host answers the caller.
    fn for_caller(&self, mut address: SocketAddr) -> SocketAddr {
        let from = caller().and_then(|caller| caller.address()).map(|from| from.ip().to_canonical());
        let own = from.filter(|from| from.is_ipv4() == address.is_ipv4());
        if let Some(own) = own.and_then(|from| self.env.source_address(from).ok()) {
            address.set_ip(own);
        }
        address
    }

    /// Makes a call with encoded arguments. Returns its encoded result, or `None` if it fails.
    fn ask(&self, address: SocketAddr, passed: &Passed) -> io::Result<Option<Vec<u8>>> {
        let socket = self.env.connect(&Address::Udp(address), &ConnectOptions::default())?;
        let (xid, until) = (self.next.fetch_add(1, Ordering::Relaxed), self.env.now() + FORWARD_TIMEOUT);
        let Passed { program, version, procedure, .. } = *passed;
        let (credential, verifier) = (OpaqueAuth::NONE, OpaqueAuth::NONE);
        let mut message = Vec::new();
        Call { xid, program, version, procedure, credential, verifier }.write(&mut message);
        message.extend_from_slice(&passed.arguments);
        socket.write(&[IoSlice::new(&message)])?;
        let mut buffer = vec![0; 1 << 16];
        loop {
            let left = until.nanos_since(self.env.now()).max(1_000_000);
            let len = match socket.read(&mut buffer, Wait::Nanos(left)) {
                // The read may end before its time-out, so it is repeated.
                Err(why) if why.kind() == io::ErrorKind::WouldBlock && self.env.now() < until => continue,
                received => received?,
            };
            match Reply::parse(buffer.get(..len).unwrap_or_default()) {
                Ok(Reply { xid: of, answer }) if of == xid => {
                    let Answer::Accepted { outcome: Accepted::Success(result), .. } = answer else {
                        return Ok(None);
                    };
                    return Ok(Some(result.to_vec()));
                }
                // The datagram answers a call of an earlier user of the port, so it is ignored.
                _ if self.env.now() < until => {}
                _ => return Ok(None),
            }
        }
    }
}

impl Portmap for Offered {
    fn set(&self, mapping: Mapping) -> farcall::Result<bool> {
        Ok(from_mapping(mapping).is_some_and(|entry| self.set(entry)))
    }

    fn unset(&self, mapping: Mapping) -> farcall::Result<bool> {
        // Removes the mappings of both protocols, whatever `mapping.protocol` says (RFC 1833 section 3.2).
        let entry = |netid: &str| Rpcb {
            program: mapping.program,
            version: mapping.version,
            netid: netid.into(),
            ..Rpcb::default()
        };
        let (udp, tcp) = (self.unset(entry("udp")), self.unset(entry("tcp")));
        Ok(udp || tcp)
    }

    fn get_port(&self, mapping: Mapping) -> farcall::Result<u32> {
        let found = from_mapping(mapping).and_then(|entry| self.mapper.find(&entry, true));
        Ok(found.and_then(|found| to_mapping(&found)).map_or(0, |found| found.port))
    }

    fn dump(&self) -> farcall::Result<Mappings> {
        Ok(Mappings { all: self.dump().iter().filter_map(to_mapping).collect() })
    }

    fn call_it(&self, call: Passed) -> farcall::Result<PassedBack> {
        let (address, result) = self.pass(&call)?;
        Ok(PassedBack { port: address.port().into(), result })
    }
}

impl Rpcbind3 for Offered {
    fn set(&self, entry: Rpcb) -> farcall::Result<bool> {
        Ok(self.set(entry))
    }

    fn unset(&self, entry: Rpcb) -> farcall::Result<bool> {
        Ok(self.unset(entry))
    }

    fn get_address(&self, entry: Rpcb) -> farcall::Result<String> {
        Ok(self.address(entry, true))
    }

    fn dump(&self) -> farcall::Result<Rpcbs> {
        Ok(Rpcbs { all: self.dump() })
    }

    fn call_it(&self, call: RemoteCall) -> farcall::Result<RemoteResult> {
        let (address, result) = self.pass(&call)?;
        Ok(RemoteResult { address: to_universal(self.for_caller(address)), result })
    }

    fn get_time(&self) -> farcall::Result<u32> {
        Ok(now())
    }
}

impl Rpcbind4 for Offered {
    fn set(&self, entry: Rpcb) -> farcall::Result<bool> {
        Ok(self.set(entry))
    }

    fn unset(&self, entry: Rpcb) -> farcall::Result<bool> {
        Ok(self.unset(entry))
    }

    fn get_address(&self, entry: Rpcb) -> farcall::Result<String> {
        Ok(self.address(entry, true))
    }

    fn dump(&self) -> farcall::Result<Rpcbs> {
        Ok(Rpcbs { all: self.dump() })
    }

    fn broadcast(&self, call: RemoteCall) -> farcall::Result<RemoteResult> {
        Rpcbind3::call_it(self, call)
    }

    fn get_time(&self) -> farcall::Result<u32> {
        Ok(now())
    }

    fn get_version_address(&self, entry: Rpcb) -> farcall::Result<String> {
        Ok(self.address(entry, false))
    }

    fn get_address_list(&self, entry: Rpcb) -> farcall::Result<AddressEntries> {
        let from = caller().and_then(|caller| caller.address());
        let mut all = self.mapper.list(entry.program, entry.version);
        all.iter_mut().for_each(|each| each.address = reachable(&each.address, &entry.address, from));
        Ok(AddressEntries { all })
    }
}

/// Returns the owner of a registration that this call makes, or `None` if it comes from another machine,
/// which is not allowed.
fn owner() -> Option<String> {
    let caller = caller()?;
    let owner = match caller.user() {
        Some(0) => SUPERUSER.into(),
        Some(user) => user.to_string(),
        None if caller.is_reserved_port() => SUPERUSER.into(),
        None => "unknown".into(),
    };
    is_of_this_host(&caller).then_some(owner)
}

fn is_of_this_host(caller: &Caller) -> bool {
    caller.address().is_none_or(|address| address.ip().to_canonical().is_loopback())
}

fn netid_of(caller: &Caller) -> &'static str {
    caller.address().map_or("local", |address| netid(caller.transport() == Transport::Tcp, address))
}

fn from_mapping(mapping: Mapping) -> Option<Rpcb> {
    let netid = match mapping.protocol {
        TCP => "tcp",
        UDP => "udp",
        _ => return None,
    };
    let address = SocketAddr::from(([0, 0, 0, 0], u16::try_from(mapping.port).ok()?));
    let address = to_universal(address);
    Some(Rpcb {
        program: mapping.program,
        version: mapping.version,
        netid: netid.into(),
        address,
        owner: String::new(),
    })
}

fn to_mapping(entry: &Rpcb) -> Option<Mapping> {
    let protocol = match entry.netid.as_str() {
        "tcp" => TCP,
        "udp" => UDP,
        _ => return None,
    };
    let port = from_universal(&entry.address)?.port().into();
    Some(Mapping { program: entry.program, version: entry.version, protocol, port })
}

fn now() -> u32 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // The protocol has 32 bits for the time; it wraps in 2106.
    now.as_secs() as u32
}
