//! Sets up a connection through shared memory with one caller, at the server's end. The thread that does this
//! later receives from that caller.
//!
//! Each caller has a thread of its own for this, because the caller may have passed something else than a
//! memory file, and to examine or close it may block the thread.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};

use farcall_shm::{CHALLENGE_BYTES, CallMemory, MAX_HELLO_BYTES, Wants};

use super::proof::Threshold;
use super::session::{Means, Session};
use crate::{lock, workers};

/// A meeting with one caller.
pub(super) struct Meeting {
    /// The key of the caller's connection at the host.
    pub(super) name: u64,
    /// The address by which the caller knows the server.
    pub(super) at: SocketAddr,
    /// The challenge that was sent to the caller, if the server has keys.
    pub(super) challenge: Option<[u8; CHALLENGE_BYTES]>,
    /// Gets the outcome of the meeting.
    pub(super) met: Arc<Met>,
    pub(super) means: Means,
}

/// The outcomes of finished meetings: the key of each caller's connection, and the caller's session if there
/// is one.
#[derive(Default)]
pub(super) struct Met(Mutex<Vec<(u64, Option<Arc<Session>>)>>);

impl Met {
    pub(super) fn take(&self) -> Vec<(u64, Option<Arc<Session>>)> {
        std::mem::take(&mut *lock(&self.0))
    }

    fn add(&self, name: u64, session: Option<Arc<Session>>) {
        lock(&self.0).push((name, session));
    }
}

impl Meeting {
    /// Starts the thread of the meeting, which tells the host the outcome.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(super) fn start(self) -> std::io::Result<()> {
        let env = self.means.server.env().clone();
        env.spawn("farcall-shm", Box::new(move || self.live()))
    }

    fn live(self) {
        let session = self.hold();
        self.met.add(self.name, session.clone());
        self.means.signal.wake();
        // A host that has stopped closes no sessions any more, so this thread does.
        if self.means.signal.is_stopped()
            && let Some(session) = &session
        {
            session.close();
        }
        if let Some(session) = session {
            workers::run(&session);
        }
    }

    /// Proves to the caller that this is the server that it wants to call, and gives the caller the memory
    /// for the calls. The caller must name an export of this server, and must pass the file for its
    /// arguments. If the server has keys, the caller must prove its own first.
    fn hold(&self) -> Option<Arc<Session>> {
        let mut hello = [0; MAX_HELLO_BYTES];
        let (len, arguments) = self.means.channel.receive_file(&mut hello)?;
        let (channel, challenge) = (&*self.means.channel, self.challenge.as_ref());
        let importer =
            Threshold { channel, challenge, at: self.at }.meet(&self.means.server, &hello[..len])?;
        let hello = importer.hello;
        if hello.wants != Wants::Calls || !self.means.server.exports(hello.export) {
            return None;
        }
        let (page, file) = CallMemory::create(&arguments).ok()?;
        let mut id = [0; 8];
        self.means.server.env().entropy(&mut id);
        let (id, from) = (u64::from_ne_bytes(id), caller(hello.ticket.address));
        let session = Session::new(&self.means, (id, from, importer.known), page);
        self.means.drains.add(session.clone());
        if !self.means.channel.send(&importer.answer, Some(file.as_fd())) {
            session.close();
        }
        Some(session)
    }
}

/// Returns the address that the caller claims, if that is a loopback address. Otherwise returns a loopback
/// address, because a caller through shared memory is on this machine.
fn caller(said: SocketAddr) -> SocketAddr {
    if said.ip().is_loopback() { said } else { SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0) }
}
