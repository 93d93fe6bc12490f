//! The requests of other processes to a clerk, the machine's name service for segments. The clerk is a
//! protection domain of its own: it does not trust its clients (Thekkath et al. 1994, section 3.2).
//!
//! A client can have the clerk add and delete only what is true (`exporters`). A look-up at a machine that
//! does not answer keeps a thread of the clerk's waiting, so other users' processes may have few of them
//! under way. Processes of the clerk's own user are told from them if they call through shared memory.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use super::entry::Entry;
use super::{Core, Fault, How, Names};
use farcall_core::{Result, context, lock};

/// The most look-ups at other machines that a client which may be another user's has under way.
const MAX_LOOKUPS_OF_CLIENT: usize = 32;

/// The most look-ups at other machines under way for all clients that may be other users'. By default a
/// runtime has four times as many threads, so that other requests always find one.
const MAX_LOOKUPS: usize = 256;

/// Serves the requests of processes on the clerk's own machine.
pub(super) struct OwnMachine {
    core: Arc<Core>,
    /// How many look-ups at other machines each client has under way.
    under_way: Mutex<BTreeMap<SocketAddr, usize>>,
}

/// A look-up at another machine, until this is dropped.
struct UnderWay<'a> {
    clients: &'a Mutex<BTreeMap<SocketAddr, usize>>,
    client: SocketAddr,
}

impl OwnMachine {
    pub(super) fn new(core: Arc<Core>) -> OwnMachine {
        OwnMachine { core, under_way: Mutex::default() }
    }

    /// Returns the clerk if the caller is on this machine.
    fn clerk(&self) -> Result<&Core, Fault> {
        match context().caller().map(|caller| caller.ip()) {
            Some(ip) if !ip.is_loopback() && ip != self.core.address.ip() => Err(Fault::NotPermitted.into()),
            _ => Ok(&self.core),
        }
    }

    /// Counts a look-up at another machine, if the client may have one more under way.
    fn begin(&self) -> Result<Option<UnderWay<'_>>, Fault> {
        // A process of the same user could also end the clerk's, so nothing protects the clerk from it.
        let stranger = context().caller().filter(|_| !context::is_same_user());
        let Some(client) = stranger else { return Ok(None) };
        let mut clients = lock(&self.under_way);
        let (of_client, of_all) =
            (clients.get(&client).copied().unwrap_or(0), clients.values().sum::<usize>());
        if of_client >= MAX_LOOKUPS_OF_CLIENT || of_all >= MAX_LOOKUPS {
            return Err(Fault::Busy.into());
        }
        clients.insert(client, of_client + 1);
        Ok(Some(UnderWay { clients: &self.under_way, client }))
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut clients = lock(self.clients);
        match clients.get_mut(&self.client) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(clients.remove(&self.client)),
        }
    }
}

impl Names for OwnMachine {
    fn add(&self, entry: Entry) -> Result<(), Fault> {
        let _under_way = self.begin()?;
        self.clerk()?.add_verified(&entry)
    }

    fn look_up(&self, name: &str, hint: Option<SocketAddr>, how: How) -> Result<Entry, Fault> {
        let clerk = self.clerk()?;
        if let Some(known) = clerk.known_here(name, hint, how)? {
            return Ok(known.entry);
        }
        let _under_way = self.begin()?;
        Ok(clerk.know_elsewhere(name, hint, how)?.entry)
    }

    fn delete(&self, name: &str, generation: u64) -> Result<bool, Fault> {
        let _under_way = self.begin()?;
        self.clerk()?.delete_verified(name, generation)
    }
}
