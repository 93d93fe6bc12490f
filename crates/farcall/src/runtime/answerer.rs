//! Who answers at an address: what a handshake has shown.

use std::net::SocketAddr;

use farcall_keys::Principal;
use farcall_proto::secure::{Level, Suite};

use super::Runtime;
use super::bind::bind_failed;
use crate::client::Questions;
use crate::{CallFailed, Kind, Ran};

/// A server with which this end has made a handshake.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Answerer {
    /// Where it was asked.
    pub address: SocketAddr,
    /// Who it is, and why this end accepts it: by which key, by which grant, until when.
    pub server: Principal,
    /// How much the seals of the conversation with it protect.
    pub level: Level,
    /// By which algorithm they do.
    pub suite: Suite,
}

impl Runtime {
    /// Makes a handshake with the server at an address, and returns who it is. The server must be one that
    /// may answer for `name`, and export it: a type, or a type and an instance as in `Store/main`. If the
    /// name is empty, it is any server that this end accepts for anything.
    ///
    /// ```no_run
    /// # fn main() -> farcall::Result<()> {
    /// let runtime = farcall::Runtime::builder().keys(farcall::Keys::open("/etc/farcall")?).build()?;
    /// let answerer = runtime.answerer("10.0.0.7:7000".parse().expect("an address"), "Store/main")?;
    /// println!("{} has the key {}", answerer.server.name, answerer.server.key);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When this runtime has no keys, nobody answers, or one end does not accept the other; the error says
    /// what was expected, what came, and what to do.
    pub fn answerer(&self, address: SocketAddr, name: &str) -> crate::Result<Answerer> {
        let inner = &self.0;
        if inner.accepted_servers.is_none() {
            let why = "this runtime has no keys, so it makes no handshakes; give it keys (FARCALL_KEYS)";
            return Err(CallFailed::new(Kind::NotPermitted, Ran::No).because(why).into());
        }
        if name.len() > farcall_names::MAX_EXPORT {
            return Err(CallFailed::new(Kind::NoSuchName, Ran::No).because("the name is too long").into());
        }
        inner.check_process()?;
        let endpoint = inner.endpoint(address)?;
        let (peer, deadline) = (endpoint.peer(address, name), inner.env.now() + inner.settings.patience);
        let mut questions = Questions::new(&inner.env)?;
        questions.ask(&endpoint, vec![(peer.clone(), name.to_owned())])?;
        let answer = questions.next(Some(deadline)).map(|answered| answered.answer);
        drop(questions);
        let silent =
            || CallFailed::new(Kind::Unreachable, Ran::No).because(format!("nobody answers at {address}"));
        if let Err(failure) = answer.ok_or_else(silent)? {
            return Err(bind_failed(address, failure).into());
        }
        // An end with keys takes no answer that is not sealed, so there is one.
        let (server, level, suite) = peer.protection(name).ok_or_else(silent)?;
        let server = crate::keys::server_shown_by(&server).ok_or_else(silent)?.clone();
        Ok(Answerer { address, server, level, suite })
    }
}
