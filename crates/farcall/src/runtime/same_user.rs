//! Who may call a server without keys: everybody if it is open, otherwise the processes of its own user.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use farcall_proto::{SameUser, UserSecret, UserSecrets};

use super::Inner;
use crate::env::Env;
use crate::{CallFailed, Kind, Ran};

/// The secrets that the processes of this process's user share, in the user's own folders.
struct UserFolders(Arc<dyn Env>);

impl UserSecrets for UserFolders {
    fn secrets(&self) -> Result<Vec<UserSecret>, String> {
        let found = farcall_names::user_secrets(|secret| self.0.entropy(secret));
        found.map(|all| all.into_iter().map(UserSecret::new).collect()).map_err(|why| why.to_string())
    }
}

impl fmt::Debug for UserFolders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UserFolders")
    }
}

impl Inner {
    /// Returns the address at which exports listen.
    ///
    /// # Errors
    /// Other machines can reach the address, and no setting says who may call.
    pub(super) fn exporting_address(&self) -> Result<SocketAddr, CallFailed> {
        let address = self.settings.address;
        if address.ip().is_loopback() || self.settings.open || self.settings.has_keys() {
            return Ok(address);
        }
        let why = format!(
            "{address} can be reached from other machines: to let them call, use keys (FARCALL_KEYS), or \
             let everybody call in clear text by the builder's `open()` or FARCALL_OPEN=1"
        );
        Err(CallFailed::new(Kind::NotPermitted, Ran::No).because(why))
    }

    /// Returns how the conversations of a socket prove that this is a process of their servers' user. Only a
    /// socket that calls loopback addresses has such servers. Each conversation puts in its server's address.
    pub(super) fn proves_user(&self, socket: SocketAddr) -> Option<SameUser> {
        let needed = socket.ip().is_loopback() && !self.settings.has_keys();
        needed.then(|| SameUser::new(Arc::new(UserFolders(self.env.clone())), socket))
    }

    /// Returns what a server at this address demands of clients: that they prove that they are processes of
    /// its user, if it has no keys and is not open. Makes the user's secret if there is none yet, so that
    /// clients find it.
    pub(super) fn same_user(&self, server: SocketAddr) -> Result<Option<SameUser>, CallFailed> {
        if self.settings.open || self.settings.has_keys() || !server.ip().is_loopback() {
            return Ok(None);
        }
        let secrets = Arc::new(UserFolders(self.env.clone()));
        match secrets.secrets() {
            Ok(_) => Ok(Some(SameUser::new(secrets, server))),
            Err(why) => {
                let why = format!(
                    "the secret by which processes of this user know one another cannot be made: {why}. Let \
                     XDG_RUNTIME_DIR name a folder that only this user can enter, or use keys (FARCALL_KEYS), \
                     or let every user of this machine call by the builder's `open()` or FARCALL_OPEN=1"
                );
                Err(CallFailed::new(Kind::Local, Ran::No).because(why))
            }
        }
    }
}
