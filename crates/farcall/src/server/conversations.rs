//! Tells of single conversations of a server with keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use farcall_proto::server as proto;

use super::Server;
use crate::builtin::ShowConversations;
use crate::conversations::{Conversation, Conversations, MAX_CONVERSATIONS, Protection};
use crate::{Keys, Level};

impl Server {
    /// Returns a function that tells of the server's conversations, at whatever time it is called: of all, or
    /// only of those of the client with a key. Who sees only their own does not learn how many others there are.
    pub(crate) fn show_conversations(self: &Arc<Self>, keys: Keys, level: Level) -> Box<ShowConversations> {
        let (server, next) = (Arc::downgrade(self), AtomicUsize::new(0));
        Box::new(move |of| {
            let (conversations, untold) =
                server.upgrade().map_or_else(Default::default, |server| server.busiest(&next, of));
            let identity = Some(keys.server_identity(of.is_none()));
            Conversations { level: protection(level), identity, conversations, untold }
        })
    }

    /// Returns the busiest conversations, of all or of the client with a key, and the number of the others. `next` is where the search begins in a
    /// table that is too large to be looked at as a whole.
    fn busiest(&self, next: &AtomicUsize, of: Option<[u8; 32]>) -> (Vec<Conversation>, u32) {
        let mut busiest = proto::Busiest::new(MAX_CONVERSATIONS, next.load(Ordering::Relaxed));
        if let Some(key) = of {
            busiest = busiest.of(key);
        }
        // The lock is given up after each step, because it protects every call.
        while self.looks_on(&mut busiest) {}
        next.store(busiest.next(), Ordering::Relaxed);
        let count = busiest.count();
        let told: Vec<Conversation> =
            busiest.found().into_iter().filter_map(|id| self.conversation(id)).collect();
        let all = if of.is_some() { count } else { self.lock().protocol.conversations() };
        let untold = all.saturating_sub(told.len()).try_into().unwrap_or(u32::MAX);
        (told, untold)
    }

    fn looks_on(&self, busiest: &mut proto::Busiest) -> bool {
        let now = self.now();
        self.lock().protocol.look_for_busiest(now, busiest)
    }

    fn conversation(&self, id: u64) -> Option<Conversation> {
        let now = self.now();
        let told = self.lock().protocol.conversation(now, id);
        told.map(show)
    }
}

fn show(told: proto::Conversation) -> Conversation {
    let proto::Conversation { client, principal, handshake, phase, running, heard, .. } = told;
    Conversation {
        client,
        level: protection(told.level),
        principal: principal.name.to_string(),
        key: principal.key,
        suite: told.suite.name().to_owned(),
        handshake,
        phase,
        running,
        heard,
    }
}

fn protection(level: Level) -> Protection {
    match level {
        Level::Authenticated => Protection::Authenticated,
        Level::Secure => Protection::Secure,
    }
}
