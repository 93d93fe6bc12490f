//! Asks any Unix, by poll(2): slower than what each system has of its own, by a system call for each socket that is armed
//! and a look at all sockets for each event, and right everywhere.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::{descriptor, flags};
use crate::env::{Alarm as _, Interest, Poller, Source};
use crate::sockets::Bell;

/// The sockets.
pub(crate) struct Ready {
    sockets: Mutex<HashMap<u64, Socket>>,
    /// One thread asks at a time; others who wait wait for that. It has the key of the socket that was told of last.
    asking: Mutex<u64>,
    /// Wakes the one who asks: a socket was armed, or everybody is to wake.
    alarm: Bell,
    /// Everybody is.
    rung: AtomicBool,
}

struct Socket {
    /// Of our own: who closes the socket does not wait for the one who asks.
    file: Arc<OwnedFd>,
    /// Nothing: it is not armed.
    interest: Interest,
}

impl Ready {
    pub(crate) fn new() -> io::Result<Ready> {
        let (sockets, asking) = (Mutex::default(), Mutex::default());
        Ok(Ready { sockets, asking, alarm: Bell::new()?, rung: AtomicBool::new(false) })
    }

    fn armed(&self) -> Vec<(u64, Arc<OwnedFd>, PollFlags)> {
        let sockets = lock(&self.sockets);
        let armed = sockets.iter().filter(|(_, socket)| socket.interest != Interest::default());
        armed.map(|(key, socket)| (*key, socket.file.clone(), flags(socket.interest))).collect()
    }

    /// Disarms a socket of which somebody is told.
    fn take(&self, key: u64, events: PollFlags) -> Option<(u64, Interest)> {
        // It may have been removed meanwhile.
        std::mem::take(&mut lock(&self.sockets).get_mut(&key)?.interest);
        let gone = events.intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL);
        Some((
            key,
            Interest { read: gone || events.contains(PollFlags::IN), write: events.contains(PollFlags::OUT) },
        ))
    }
}

impl Poller for Ready {
    fn add(&self, source: Source<'_>, key: u64) -> io::Result<()> {
        let file = Arc::new(descriptor(&source).try_clone_to_owned()?);
        lock(&self.sockets).insert(key, Socket { file, interest: Interest::default() });
        Ok(())
    }

    fn arm(&self, _: Source<'_>, key: u64, interest: Interest) -> io::Result<()> {
        let mut sockets = lock(&self.sockets);
        sockets.get_mut(&key).ok_or(io::ErrorKind::NotFound)?.interest = interest;
        drop(sockets);
        self.alarm.ring();
        Ok(())
    }

    fn remove(&self, _: Source<'_>, key: u64) {
        lock(&self.sockets).remove(&key);
    }

    fn wait(&self) -> Option<(u64, Interest)> {
        let mut last = lock(&self.asking);
        // Before it looks: what is armed after this rings it, and so does who has everybody return.
        self.alarm.quiet();
        if self.rung.load(Ordering::SeqCst) {
            return None;
        }
        let armed = self.armed();
        let mut places = vec![PollFd::from_borrowed_fd(self.alarm.descriptor(), PollFlags::IN)];
        places.extend(armed.iter().map(|(_, file, flags)| PollFd::new(file, *flags)));
        match poll(&mut places, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => std::thread::sleep(std::time::Duration::from_millis(10)),
        }
        let told = places.iter().skip(1).zip(&armed).map(|(place, (key, ..))| (*key, place.revents()));
        let ready = told.filter(|(_, events)| !events.is_empty());
        // Each has its turn.
        let (key, events) = ready.min_by_key(|(key, _)| key.wrapping_sub(last.wrapping_add(1)))?;
        *last = key;
        self.take(key, events)
    }

    fn wake(&self) {
        self.rung.store(true, Ordering::SeqCst);
        self.alarm.ring();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
