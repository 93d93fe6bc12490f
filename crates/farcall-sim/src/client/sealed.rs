//! What a simulated client does and checks in runs with keys.

use farcall_proto::Ran;
use farcall_proto::secure::Opened;

use super::{ClientNode, Ended, Talk};
use crate::ground::Ground;
#[cfg(feature = "soak")]
use crate::names::NAME;
use crate::oracle::State;

impl Talk {
    /// Opens a datagram in place if it is sealed.
    ///
    /// # Errors
    /// If it does not open.
    pub(super) fn unseal(&self, datagram: &mut [u8]) -> Result<Option<Opened>, ()> {
        #[cfg(feature = "soak")]
        if farcall_proto::secure::is_sealed(datagram) {
            let cipher = self.core.cipher().ok_or(())?;
            return farcall_proto::secure::open(&cipher, datagram).map(Some).ok_or(());
        }
        let _ = datagram;
        Ok(None)
    }

    /// Returns the key of the server that the conversation is with, in a run with keys.
    pub(super) fn server_key(&self) -> Option<[u8; 32]> {
        #[cfg(feature = "soak")]
        return self.core.principal().map(|principal| principal.key);
        #[cfg(not(feature = "soak"))]
        None
    }

    /// Checks that a name was bound to a key that is granted for it, in a run with keys.
    pub(super) fn check_bound(&self, g: &mut Ground, bound: bool, name: &str) {
        #[cfg(feature = "soak")]
        if let Some(keys) = g.plan.secret.as_ref().filter(|_| bound) {
            let key = self.server_key().unwrap_or_default();
            let may = if name == NAME { keys.servers.contains(&key) } else { key == keys.interloper };
            if !may {
                let now = g.now();
                g.oracle.violate("names-are-bound-to-their-keys", now, || format!("{name}: {key:02x?}"));
            }
        }
        let _ = (g, bound, name);
    }
}

impl ClientNode {
    /// Checks, in a run with keys, that the client has learnt nothing from a datagram that was not sealed, and
    /// acts upon no sealed one twice. `digest` is of a sealed datagram that was accepted.
    pub(super) fn check_sealed(&self, g: &mut Ground, digest: Option<u64>, bytes: &[u8]) {
        if let Some(digest) = digest {
            return g.acted_upon(self.index, digest);
        }
        // An answer to a question is sealed in another way; the conversation itself opens it.
        if g.plan.scheme().is_none_or(|scheme| bytes[1] == scheme) {
            return;
        }
        let oracle = &g.oracle;
        let believed = |end: &Ended| match *end {
            Ended::Call { call, .. } => {
                matches!(oracle.calls[call].state, State::Returned | State::Failed(Ran::Yes))
            }
            Ended::Bound(export) => export.is_some(),
            Ended::BoundOther(bound) => bound,
        };
        if self.ended.iter().any(believed) {
            let now = g.now();
            g.oracle.violate("nothing-unsealed-is-believed", now, || format!("client {}", self.index));
        }
    }
}
