//! A caller's meeting with the host, in the thread that receives from that caller afterwards.
//!
//! No other caller waits for that thread. The caller may pass something else than a memory file, and to look
//! at it, or to close it, may block.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};

use farcall_shm::{CallMemory, Hello, MAX_HELLO_BYTES, Wants};

use super::proof::answer;
use super::session::{Means, Session};
use crate::workers;

/// What one caller's thread needs.
pub(super) struct Meeting {
    /// By what name the host knows the caller.
    pub(super) name: u64,
    /// By which address the caller knows the server.
    pub(super) at: SocketAddr,
    /// What is told of what came of it.
    pub(super) met: Arc<Met>,
    pub(super) means: Means,
}

/// What came of meetings that are over: each caller's name, and its session if there is one.
#[derive(Default)]
pub(super) struct Met(Mutex<Vec<(u64, Option<Arc<Session>>)>>);

impl Met {
    pub(super) fn take(&self) -> Vec<(u64, Option<Arc<Session>>)> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn add(&self, name: u64, session: Option<Arc<Session>>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((name, session));
    }
}

impl Meeting {
    /// Starts the thread. The host is told of what came of it.
    ///
    /// # Errors
    /// When there can be no thread.
    pub(super) fn start(self) -> std::io::Result<()> {
        let env = self.means.server.env().clone();
        env.spawn("farcall-shm", Box::new(move || self.live()))
    }

    fn live(self) {
        let session = self.hold();
        self.met.add(self.name, session.clone());
        self.means.signal.wake();
        // A host that has stopped closes no session.
        if self.means.signal.is_stopped()
            && let Some(session) = &session
        {
            session.close();
        }
        if let Some(session) = session {
            workers::run(&session);
        }
    }

    /// Proves to the caller who this server is, and gives it its memory. The caller has to name an export of
    /// this server, and to pass the file in which its arguments will stand.
    fn hold(&self) -> Option<Arc<Session>> {
        let mut hello = [0; MAX_HELLO_BYTES];
        let (len, arguments) = self.means.wire.receive_file(&mut hello)?;
        let hello = Hello::from_bytes(&hello[..len]).filter(|hello| hello.wants == Wants::Calls)?;
        if !self.means.server.exports(hello.export) {
            return None;
        }
        let (page, file) = CallMemory::create(&arguments).ok()?;
        let mut id = [0; 8];
        self.means.server.env().entropy(&mut id);
        let session = Session::new(&self.means, u64::from_ne_bytes(id), caller(hello.ticket.address), page);
        if !self.means.wire.send(&answer(&self.means.server, &hello, self.at), Some(file.as_fd())) {
            session.close();
        }
        Some(session)
    }
}

/// What the caller says is its address; one that is not of this machine's own it cannot have.
fn caller(said: SocketAddr) -> SocketAddr {
    if said.ip().is_loopback() { said } else { SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0) }
}
