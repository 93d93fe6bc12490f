//! A caller's meeting with the host, in the thread that receives from that caller afterwards.
//!
//! No other caller waits for that thread. The caller may pass something else than a memory file, and to look
//! at it, or to close it, may block.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use farcall_shm::{Hello, MAX_HELLO, Page, Wants, Wire};

use super::budget::Share;
use super::host::Watch;
use super::post::Post;
use super::proof::answer;
use crate::server::Server;

/// What one caller's thread needs.
pub(super) struct Meeting {
    /// By what name the host knows the caller.
    pub(super) name: u64,
    /// By which address the caller knows the server.
    pub(super) at: SocketAddr,
    pub(super) wire: Arc<Wire>,
    pub(super) server: Arc<Server>,
    pub(super) watch: Arc<Watch>,
    pub(super) spin: Duration,
    /// What the caller can make us hold.
    pub(super) bytes: Share,
    /// The threads that it can make us have.
    pub(super) threads: Share,
}

impl Meeting {
    /// Starts the thread. The host is told of what came of it.
    ///
    /// # Errors
    /// When there can be no thread.
    pub(super) fn start(self) -> std::io::Result<()> {
        let env = self.server.env().clone();
        env.spawn("farcall-shm", Box::new(move || self.live()))
    }

    fn live(self) {
        let post = self.hold();
        // (Who was told of nothing has nobody to close what it made.)
        if !self.watch.met(self.name, post.clone())
            && let Some(post) = &post
        {
            post.close();
        }
        if let Some(post) = post {
            post.live();
        }
    }

    /// Proves to the caller who this server is, and gives it its memory. The caller has to name an export of
    /// this server, and to pass the file in which its arguments will stand.
    fn hold(&self) -> Option<Arc<Post>> {
        let mut hello = [0; MAX_HELLO];
        let (len, arguments) = self.wire.receive_file(&mut hello)?;
        let hello = Hello::from_bytes(&hello[..len]).filter(|hello| hello.wants == Wants::Calls)?;
        if !self.server.exports(hello.export) {
            return None;
        }
        let (page, file) = Page::create(&arguments).ok()?;
        let mut id = [0; 8];
        self.server.env().entropy(&mut id);
        let post = Post::new(self, u64::from_ne_bytes(id), caller(hello.ticket.address), page);
        if !self.wire.send(&answer(&self.server, &hello, self.at), Some(file.as_fd())) {
            post.close();
        }
        Some(post)
    }
}

/// What the caller says is its address; one that is not of this machine's own it cannot have.
fn caller(said: SocketAddr) -> SocketAddr {
    if said.ip().is_loopback() { said } else { SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0) }
}
