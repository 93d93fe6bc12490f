//! The serving end on this machine: meets callers, answers their probes, notices that they are gone, and looks after
//! their receivers as the sentinel does after the socket's.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use farcall_shm::{Alarm, Ear, Heard, Listener, Page, Wire};

use super::post::Post;
use super::watch::PROBE;
use crate::memory::{Offers, wanted};
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
/// What the host hears besides its callers.
const ALARM: u64 = 0;
const LISTENER: u64 = 1;
/// How long a receiver that was seen to execute is given.
const NAP: Duration = Duration::from_micros(100);
/// The longest time between two looks while calls keep coming.
const LONGEST_NAP: Duration = Duration::from_micros(1600);
/// After so many looks at which nothing had moved nobody looks any more.
const QUIET: u32 = 64;
/// How long nobody is met when there are too many files.
const REST: Duration = Duration::from_millis(50);

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
    pub(crate) fn new(server: &Arc<Server>, offers: &Arc<Offers>, spin: Duration) -> std::io::Result<Host> {
        let listener = Listener::bind(server.address())?;
        let watch = Arc::new(Watch { alarm: Alarm::new()?, stopped: AtomicBool::new(false) });
        let ear = Ear::new()?;
        ear.hear(&watch.alarm, ALARM)?;
        ear.hear(&listener, LISTENER)?;
        let body = Keeper {
            ear,
            next: LISTENER + 1,
            server: server.clone(),
            watch: watch.clone(),
            listener,
            spin,
            offers: offers.clone(),
            arriving: HashMap::new(),
            guests: HashMap::new(),
            posts: HashMap::new(),
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
    ear: Ear,
    /// By what name the ear knows who arrives next.
    next: u64,
    spin: Duration,
    /// Those who have not said yet what they want.
    arriving: HashMap<u64, Arc<Wire>>,
    posts: HashMap<u64, Watched>,
    /// Segments that may be mapped, and those who have mapped some.
    offers: Arc<Offers>,
    guests: HashMap<u64, Arc<Wire>>,
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
        let mut said = Vec::new();
        while !self.watch.stopped.load(Ordering::SeqCst) {
            let most = self.nap();
            self.ear.wait(most, &mut said);
            for name in said.drain(..) {
                match name {
                    ALARM => self.watch.alarm.clear(),
                    LISTENER => self.accept(),
                    _ if self.posts.contains_key(&name) => self.hear(name),
                    _ if self.guests.contains_key(&name) => self.part(name),
                    _ => self.greet(name),
                }
            }
            self.posts.values_mut().for_each(Watched::look);
        }
        self.end();
    }

    /// What was not taken by now never runs; only then may the callers hear it.
    fn end(self) {
        self.posts.values().for_each(|seen| seen.post.close());
        self.posts.values().for_each(|seen| seen.post.wire().close());
    }

    /// How long to sleep.
    fn nap(&self) -> Option<Duration> {
        self.posts.values().filter(|seen| seen.guarded).map(|seen| seen.nap).min()
    }

    fn accept(&mut self) {
        let wire = match self.listener.accept() {
            Ok(Some(wire)) => wire,
            Ok(None) => return,
            // Too many files, perhaps: keep off for a while.
            Err(_) => {
                self.server.env().event().wait(Some(REST));
                return;
            }
        };
        if self.arriving.len() + self.posts.len() + self.guests.len() < MOST_CALLERS
            && self.ear.hear(&wire, self.next).is_ok()
        {
            self.arriving.insert(self.next, Arc::new(wire));
            self.next += 1;
        }
    }

    /// One who has said what it wants gets its memory.
    fn greet(&mut self, name: u64) {
        let Some(wire) = self.arriving.remove(&name) else { return };
        let mut hello = [0; 128];
        let (hello, file) = match wire.receive(&mut hello) {
            Heard::Message(len, file) => (&hello[..len], file),
            Heard::Nothing | Heard::Gone => return self.ear.ignore(&*wire),
        };
        if let Some((export, generation)) = wanted(hello) {
            match self.offers.pass(export, generation, &wire) {
                true => drop(self.guests.insert(name, wire)),
                false => self.ear.ignore(&*wire),
            }
            return;
        }
        let post = file.and_then(|file| self.welcome(hello, &file, &wire));
        let Some(post) = post else { return self.ear.ignore(&*wire) };
        let (progress, alone, guarded) = post.progress();
        self.posts.insert(name, Watched { post, guarded, progress, alone, quiet: 0, nap: NAP });
    }

    /// Answers a probe, or lets go of one who is gone.
    fn hear(&mut self, name: u64) {
        let Some(seen) = self.posts.get(&name) else { return };
        match seen.post.wire().receive(&mut [0; 8]) {
            // A probe that cannot be answered now is one of many.
            Heard::Message(..) => drop(seen.post.wire().send(PROBE, None)),
            Heard::Nothing => {}
            Heard::Gone => {
                self.ear.ignore(seen.post.wire());
                seen.post.close();
                self.posts.remove(&name);
            }
        }
    }

    /// One who has mapped memory says nothing more: it is gone.
    fn part(&mut self, name: u64) {
        if let Some(wire) = self.guests.remove(&name) {
            self.ear.ignore(&*wire);
        }
    }

    /// A post for one who wants to call an export of ours, and gives the file in which its arguments will stand.
    fn welcome(&self, hello: &[u8], arguments: &OwnedFd, wire: &Arc<Wire>) -> Option<Arc<Post>> {
        let (export, from) = hello.split_first_chunk::<8>()?;
        if !self.server.exports(u64::from_be_bytes(*export)) {
            return None;
        }
        let (page, file) = Page::create(arguments).ok()?;
        let mut id = [0; 8];
        self.server.env().entropy(&mut id);
        let (id, server, watch) = (u64::from_ne_bytes(id), self.server.clone(), self.watch.clone());
        let post = Post::new(server, id, caller(from), page, wire.clone(), self.spin, watch);
        post.spawn().ok()?;
        if !wire.send(b"!", Some(file.as_fd())) {
            post.close();
        }
        Some(post)
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
