//! A port mapper within this process: the registrations of a host, and who can change them.

mod offered;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(super) use offered::Offered;

use crate::portmap::address::{from_universal, netid, to_universal};
use crate::portmap::protocol::{AddressEntry, Rpcb};

/// The most registrations. There is a limit because every user of the machine can register.
const MAX_ENTRIES: usize = 4096;

/// The registrations of a port mapper. Clones share them.
///
/// This process registers its programs by [`Mapper::register`] or
/// [`ServerBuilder::register_at`](crate::server::ServerBuilder::register_at). Other processes of the host
/// register theirs by the protocol, over a Unix socket or from a loopback address. A registration made from a
/// port below 1024 can be removed only from such a port, or by the superuser over a Unix socket.
#[derive(Clone, Debug, Default)]
pub struct Mapper {
    entries: Arc<Mutex<Vec<Rpcb>>>,
    forwards: bool,
}

impl Mapper {
    /// Allows CALLIT, by which a mapper forwards broadcast calls to the programs of its host. It is off by
    /// default, because the program sees the mapper as its caller, and because an attacker with a forged
    /// address can make the host send answers that are larger than the attacker's packets.
    ///
    /// A call is forwarded without its caller's name: calls without credentials, and those with AUTH_SYS, as
    /// `clnt_broadcast` of C makes them, reach the program without any. Calls with other credentials are not
    /// forwarded, and none goes to the mapper itself. At most 16 are forwarded at once, and at most 20 a
    /// second for other machines.
    #[must_use]
    pub fn forwarding(mut self) -> Mapper {
        self.forwards = true;
        self
    }

    /// Registers the address of a program version; `stream` says whether it is a TCP address. Returns false
    /// if the version has another address on that network already, or if there are too many registrations.
    pub fn register(&self, program: u32, version: u32, stream: bool, address: SocketAddr) -> bool {
        let netid = netid(stream, address).into();
        self.set(Rpcb { program, version, netid, address: to_universal(address), owner: SUPERUSER.into() })
    }

    /// Removes the registration of an address. Returns false if there is none.
    pub fn unregister(&self, program: u32, version: u32, stream: bool, address: SocketAddr) -> bool {
        let netid = netid(stream, address).into();
        let entry = Rpcb { program, version, netid, address: to_universal(address), owner: SUPERUSER.into() };
        self.remove(|other| is_same(other, &entry) && other.address == entry.address, SUPERUSER)
    }

    /// Returns all registrations.
    pub fn entries(&self) -> Vec<Rpcb> {
        self.lock().clone()
    }

    /// Adds a registration. Returns false if the version has another address on that network already, or if
    /// there are too many registrations.
    fn set(&self, entry: Rpcb) -> bool {
        let mut entries = self.lock();
        if let Some(former) = entries.iter().find(|former| is_same(former, &entry)) {
            return former.address == entry.address;
        }
        let has_room = entries.len() < MAX_ENTRIES;
        if has_room {
            entries.push(entry);
        }
        has_room
    }

    /// Removes the registrations that `entry` names and that its owner can remove. Returns false if there are
    /// none.
    fn unset(&self, entry: &Rpcb) -> bool {
        let any = entry.netid.is_empty();
        let same = |other: &Rpcb| if any { is_of(other, entry) } else { is_same(other, entry) };
        self.remove(same, &entry.owner)
    }

    /// Finds the registration of a program on a network. If its version is not registered there and
    /// `any_version` is true, finds another version.
    fn find(&self, entry: &Rpcb, any_version: bool) -> Option<Rpcb> {
        let entries = self.lock();
        let other =
            || entries.iter().find(|other| other.program == entry.program && other.netid == entry.netid);
        let exact = entries.iter().find(|other| is_same(other, entry));
        exact.or_else(|| if any_version { other() } else { None }).cloned()
    }

    /// Returns all addresses of a program's version.
    fn list(&self, program: u32, version: u32) -> Vec<AddressEntry> {
        let entries = self.lock();
        let matching = entries.iter().filter(|entry| entry.program == program && entry.version == version);
        matching.map(describe).collect()
    }

    fn remove(&self, which: impl Fn(&Rpcb) -> bool, owner: &str) -> bool {
        let mut entries = self.lock();
        let before = entries.len();
        entries.retain(|entry| !which(entry) || (entry.owner != owner && owner != SUPERUSER));
        entries.len() < before
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Rpcb>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The owner that can remove every registration.
const SUPERUSER: &str = "superuser";

fn is_of(a: &Rpcb, b: &Rpcb) -> bool {
    a.program == b.program && a.version == b.version
}

fn is_same(a: &Rpcb, b: &Rpcb) -> bool {
    is_of(a, b) && a.netid == b.netid
}

fn describe(entry: &Rpcb) -> AddressEntry {
    let (semantics, family, protocol) = match entry.netid.as_str() {
        "udp" => (1, "inet", "udp"),
        "tcp" => (3, "inet", "tcp"),
        "udp6" => (1, "inet6", "udp"),
        "tcp6" => (3, "inet6", "tcp"),
        _ => (3, "loopback", "-"),
    };
    AddressEntry {
        address: entry.address.clone(),
        netid: entry.netid.clone(),
        semantics,
        family: family.into(),
        protocol: protocol.into(),
    }
}

/// Returns a registered address in a form in which the asking program can reach it. If the address is the
/// unspecified one (0.0.0.0 or ::), replaces its host part by the address at which the asking program reached
/// the mapper, if that is known.
fn reachable(address: &str, asked: &str, from: Option<SocketAddr>) -> String {
    let Some(mut found) = from_universal(address).filter(|address| address.ip().is_unspecified()) else {
        return address.into();
    };
    let asked = from_universal(asked).map(|asked| asked.ip()).filter(|asked| !asked.is_unspecified());
    let host = asked.or_else(|| from.map(|from| from.ip()).filter(|from| from.is_loopback()));
    if let Some(host) = host.filter(|host| host.is_ipv4() == found.is_ipv4()) {
        found.set_ip(host);
    }
    to_universal(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(version: u32, netid: &str, address: &str, owner: &str) -> Rpcb {
        Rpcb { program: 9, version, netid: netid.into(), address: address.into(), owner: owner.into() }
    }

    #[test]
    fn a_registration_is_found_until_its_owner_removes_it() {
        let mapper = Mapper::default();
        let port = "127.0.0.1:700".parse().unwrap();
        assert!(mapper.register(9, 1, false, port) && mapper.register(9, 1, false, port));
        assert!(!mapper.register(9, 1, false, "127.0.0.1:701".parse().unwrap()));
        assert!(mapper.set(entry(1, "tcp", "127.0.0.1.2.189", "unknown")));
        assert_eq!(mapper.find(&entry(1, "udp", "", ""), false).unwrap().address, "127.0.0.1.2.188");
        assert_eq!(mapper.find(&entry(7, "udp", "", ""), true).unwrap().version, 1);
        assert_eq!(mapper.find(&entry(7, "udp", "", ""), false), None);
        assert_eq!(mapper.list(9, 1).len(), 2);
        assert!(mapper.unset(&entry(1, "", "", "unknown")) && !mapper.unset(&entry(1, "", "", "unknown")));
        assert_eq!(mapper.entries().len(), 1);
        assert!(mapper.unset(&entry(1, "", "", SUPERUSER)) && mapper.entries().is_empty());
    }

    #[test]
    fn a_mapper_refuses_registrations_beyond_its_limit() {
        let mapper = Mapper::default();
        let set = (0..2 * MAX_ENTRIES as u32)
            .filter(|version| mapper.set(entry(*version, "udp", "127.0.0.1.0.9", "unknown")));
        assert_eq!(set.count(), MAX_ENTRIES);
    }

    #[test]
    fn an_unspecified_address_is_replaced_by_the_address_that_the_caller_reached() {
        let local = Some("127.0.0.1:9".parse().unwrap());
        assert_eq!(reachable("0.0.0.0.8.1", "10.0.0.7.0.111", local), "10.0.0.7.8.1");
        assert_eq!(reachable("0.0.0.0.8.1", "", local), "127.0.0.1.8.1");
        assert_eq!(reachable("0.0.0.0.8.1", "", Some("10.0.0.9:9".parse().unwrap())), "0.0.0.0.8.1");
        assert_eq!(reachable("::.8.1", "10.0.0.7.0.111", None), "::.8.1");
        assert_eq!(reachable("10.0.0.3.8.1", "10.0.0.7.0.111", local), "10.0.0.3.8.1");
        assert_eq!(reachable("/run/x.sock", "", None), "/run/x.sock");
    }
}
