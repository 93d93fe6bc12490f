//! Tells of single conversations of a server with keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use farcall_proto::server as proto;

use super::Server;
use crate::conversations::{Conversation, Conversations, MAX_CONVERSATIONS, Protection};
use crate::{Keys, Level};

impl Server {
    /// Returns a function that tells of the server's conversations, at whatever time it is called.
    pub(crate) fn show_conversations(
        self: &Arc<Self>,
        keys: Keys,
        level: Level,
    ) -> Box<dyn Fn() -> Conversations + Send + Sync> {
        let (server, next) = (Arc::downgrade(self), AtomicUsize::new(0));
        Box::new(move || {
            let (conversations, untold) =
                server.upgrade().map_or_else(Default::default, |server| server.busiest(&next));
            let identity = Some(keys.server_identity());
            Conversations { level: protection(level), identity, conversations, untold }
        })
    }

    /// Returns the busiest conversations, and the number of the others. `next` is where the search begins in a
    /// table that is too large to be looked at as a whole.
    fn busiest(&self, next: &AtomicUsize) -> (Vec<Conversation>, u32) {
        let mut busiest = proto::Busiest::new(MAX_CONVERSATIONS, next.load(Ordering::Relaxed));
        // The lock is given up after each step, because it protects every call.
        while self.looks_on(&mut busiest) {}
        next.store(busiest.next(), Ordering::Relaxed);
        let told: Vec<Conversation> =
            busiest.found().into_iter().filter_map(|id| self.conversation(id)).collect();
        let all = self.lock().protocol.conversations();
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
