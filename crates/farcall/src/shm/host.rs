//! The serving end on this machine: meets callers, answers their probes, notices that they are gone, and looks after
//! their receivers as the sentinel does after the socket's.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use farcall_shm::{Alarm, Heard, Listener, Page, Wire, wait_any};

use super::post::Post;
use super::watch::PROBE;
use crate::server::Server;

/// What a server needs to be called through memory. It ends when it is stopped.
pub(crate) struct Host(Arc<Watch>);

/// What wakes the host's thread.
pub(super) struct Watch {
    alarm: Alarm,
    stopped: AtomicBool,
}

/// Callers at most; further ones call by UDP.
const MOST_CALLERS: usize = 1024;
/// How long a receiver that was seen to execute is given.
const NAP: Duration = Duration::from_micros(100);
/// The longest time between two looks while calls keep coming.
const LONGEST_NAP: Duration = Duration::from_micros(1600);
/// After so many looks at which nothing had moved nobody looks any more.
const QUIET: u32 = 64;
/// How often a receiver is woken that does not hear that its caller is gone.
const INSIST: Duration = Duration::from_millis(50);

impl Watch {
    /// There is something to look after.
    pub(super) fn alarm(&self) {
        self.alarm.set();
    }
}

impl Host {
    /// Meets the callers of a server.
    ///
    /// # Errors
    /// What the operating system says.
    pub(crate) fn new(server: &Arc<Server>, spin: Duration) -> std::io::Result<Host> {
        let listener = Listener::bind(server.address())?;
        let watch = Arc::new(Watch { alarm: Alarm::new()?, stopped: AtomicBool::new(false) });
        let body = Keeper {
            server: server.clone(),
            watch: watch.clone(),
            listener,
            spin,
            arriving: Vec::new(),
            posts: Vec::new(),
            closing: Vec::new(),
        };
        server.env().spawn("farcall-host", Box::new(move || body.live()))?;
        Ok(Host(watch))
    }

    pub(crate) fn stop(&self) {
        self.0.stopped.store(true, Ordering::SeqCst);
        self.0.alarm();
    }
}

/// The host's thread.
struct Keeper {
    server: Arc<Server>,
    watch: Arc<Watch>,
    listener: Listener,
    spin: Duration,
    /// Those who have not said yet what they want.
    arriving: Vec<Arc<Wire>>,
    posts: Vec<Watched>,
    /// Posts whose receivers may not know yet that they are closed.
    closing: Vec<Arc<Post>>,
}

/// A post, and what was seen at the last look.
struct Watched {
    post: Arc<Post>,
    /// Its receiver is looked after.
    guarded: bool,
    progress: u64,
    alone: bool,
    quiet: u32,
    nap: Duration,
}

impl Keeper {
    fn live(mut self) {
        let mut ready = Vec::new();
        while !self.watch.stopped.load(Ordering::SeqCst) {
            let most = self.nap();
            let wires = self.arriving.iter().map(|wire| &**wire).chain(self.posts.iter().map(|seen| seen.post.wire()));
            let wires: Vec<&Wire> = wires.collect();
            let listener = (wires.len() < MOST_CALLERS).then_some(&self.listener);
            let arrived = wait_any(&self.watch.alarm, listener, &wires, most, &mut ready);
            let (arriving, posts) = ready.split_at(self.arriving.len());
            self.hear(posts);
            self.greet(arriving);
            if arrived {
                self.accept();
            }
            self.posts.iter_mut().for_each(Watched::look);
            self.closing.retain(|post| post.wake());
        }
        // What was not taken by now never runs; only then may the callers hear it.
        self.posts.iter().for_each(|seen| seen.post.close());
        let posts: Vec<Arc<Post>> = self.posts.drain(..).map(|seen| seen.post).chain(self.closing.drain(..)).collect();
        posts.iter().for_each(|post| post.wire().close());
        let rest = self.server.env().event();
        while posts.iter().filter(|post| post.wake()).count() > 0 {
            rest.wait(Some(INSIST));
        }
    }

    /// How long to sleep.
    fn nap(&self) -> Option<Duration> {
        let naps = self.posts.iter().filter(|seen| seen.guarded).map(|seen| seen.nap);
        let insist = (!self.closing.is_empty()).then_some(INSIST);
        naps.chain(insist).min()
    }

    fn accept(&mut self) {
        // One at a time: whoever is slow to say what it wants holds up nobody.
        match self.listener.accept() {
            Ok(wire) => self.arriving.extend(wire.map(Arc::new)),
            // Too many files, perhaps: keep off for a while.
            Err(_) => drop(self.server.env().event().wait(Some(INSIST))),
        }
    }

    /// Those who have said what they want get their memory.
    fn greet(&mut self, ready: &[bool]) {
        let (mut ready, mut greeted) = (ready.iter(), Vec::new());
        self.arriving.retain(|wire| {
            let said = ready.next() == Some(&true);
            if said {
                greeted.push(wire.clone());
            }
            !said
        });
        for wire in greeted {
            let mut hello = [0; 128];
            let Heard::Message(len, _) = wire.receive(&mut hello) else { continue };
            let Some(post) = self.welcome(&hello[..len], &wire) else { continue };
            let (progress, alone, guarded) = post.progress();
            self.posts.push(Watched { post, guarded, progress, alone, quiet: 0, nap: NAP });
        }
    }

    /// A post for one who wants to call an export of ours.
    fn welcome(&self, hello: &[u8], wire: &Arc<Wire>) -> Option<Arc<Post>> {
        let (export, from) = hello.split_first_chunk::<8>()?;
        if !self.server.exports(u64::from_be_bytes(*export)) {
            return None;
        }
        let (page, file) = Page::create().ok()?;
        let mut id = [0; 8];
        self.server.env().entropy(&mut id);
        let (id, server, watch) = (u64::from_ne_bytes(id), self.server.clone(), self.watch.clone());
        let post = Post::new(server, id, caller(from), page, wire.clone(), self.spin, watch);
        post.spawn().ok()?;
        if !wire.send(b"!", Some(std::os::fd::AsFd::as_fd(&file))) {
            post.close();
        }
        Some(post)
    }

    /// Answers probes, and lets go of those who are gone.
    fn hear(&mut self, ready: &[bool]) {
        let mut ready = ready.iter();
        let closing = &mut self.closing;
        self.posts.retain(|seen| {
            if ready.next() != Some(&true) {
                return true;
            }
            match seen.post.wire().receive(&mut [0; 8]) {
                // A probe that cannot be answered now is one of many.
                Heard::Message(..) => drop(seen.post.wire().send(PROBE, None)),
                Heard::Nothing => {}
                Heard::Gone => {
                    seen.post.close();
                    closing.push(seen.post.clone());
                    return false;
                }
            }
            true
        });
    }
}

impl Watched {
    /// Looks whether the receiver gets on. (`server/sentinel.rs` says why so.)
    fn look(&mut self) {
        let (progress, alone, guarded) = self.post.progress();
        if !guarded {
            (self.guarded, self.quiet, self.nap) = (false, 0, NAP);
            return;
        }
        let moved = progress != self.progress;
        if self.guarded && alone && self.alone && !moved {
            self.post.relieve_if_alone();
        }
        self.quiet = if moved || alone { 0 } else { self.quiet + 1 };
        self.nap = if alone { NAP } else { (self.nap * 2).min(LONGEST_NAP) };
        (self.guarded, self.progress, self.alone) = (true, progress, alone);
        if self.quiet >= QUIET && self.post.unguard(progress) {
            self.guarded = false;
        }
    }
}

/// What the caller says is its address; one that is not of this machine's own it cannot have.
fn caller(text: &[u8]) -> SocketAddr {
    let said = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    said.filter(|address: &SocketAddr| address.ip().is_loopback())
        .unwrap_or(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0))
}
