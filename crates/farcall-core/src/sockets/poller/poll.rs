//! The poller for every Unix, which uses poll(2). It is slower than epoll: it makes a system call whenever a
//! socket is armed, and passes all armed sockets to each poll(2).

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::{descriptor, flags};
use crate::env::{Alarm as _, Interest, Poller, Source};
use crate::lock;
use crate::sockets::SystemAlarm;

/// The sockets of a poller, and the lock by which its threads take turns.
pub(crate) struct SystemPoller {
    sockets: Mutex<HashMap<u64, Socket>>,
    /// The thread that holds this lock calls poll(2); the other waiting threads wait for the lock. The value
    /// is the key of the socket that was reported last.
    last_reported: Mutex<u64>,
    /// Wakes the thread in poll(2), because a socket was armed or all threads must return.
    alarm: SystemAlarm,
    /// Whether all threads must return.
    closed: AtomicBool,
}

struct Socket {
    /// A duplicate of the socket's descriptor, so that the owner can close the socket while poll(2) uses it.
    file: Arc<OwnedFd>,
    /// The kinds of readiness to report; none if the socket is not armed.
    interest: Interest,
}

impl SystemPoller {
    pub(crate) fn new() -> io::Result<SystemPoller> {
        let (sockets, last_reported) = (Mutex::default(), Mutex::default());
        let (alarm, closed) = (SystemAlarm::new()?, AtomicBool::new(false));
        Ok(SystemPoller { sockets, last_reported, alarm, closed })
    }

    fn armed(&self) -> Vec<(u64, Arc<OwnedFd>, PollFlags)> {
        let sockets = lock(&self.sockets);
        let armed = sockets.iter().filter(|(_, socket)| socket.interest != Interest::default());
        armed.map(|(key, socket)| (*key, socket.file.clone(), flags(socket.interest))).collect()
    }

    /// Disarms a socket, and returns its readiness. Returns `None` if the socket was removed meanwhile.
    fn take(&self, key: u64, events: PollFlags) -> Option<(u64, Interest)> {
        std::mem::take(&mut lock(&self.sockets).get_mut(&key)?.interest);
        let gone = events.intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL);
        Some((
            key,
            Interest { read: gone || events.contains(PollFlags::IN), write: events.contains(PollFlags::OUT) },
        ))
    }
}

impl Poller for SystemPoller {
    fn add(&self, source: Source<'_>, key: u64) -> io::Result<()> {
        let file = Arc::new(descriptor(&source)?.try_clone_to_owned()?);
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
        let mut last = lock(&self.last_reported);
        // The alarm is cleared before the sockets and `closed` are read, because a later change sets it
        // again.
        self.alarm.quiet();
        if self.closed.load(Ordering::Acquire) {
            return None;
        }
        let armed = self.armed();
        let mut places = vec![PollFd::from_borrowed_fd(self.alarm.descriptor(), PollFlags::IN)];
        places.extend(armed.iter().map(|(_, file, flags)| PollFd::new(file, *flags)));
        match poll(&mut places, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => std::thread::sleep(std::time::Duration::from_millis(10)),
        }
        let polled = places.iter().skip(1).zip(&armed).map(|(place, (key, ..))| (*key, place.revents()));
        let ready = polled.filter(|(_, events)| !events.is_empty());
        // The socket to report is the ready one with the next key after the last reported one, so that
        // sockets take turns.
        let (key, events) = ready.min_by_key(|(key, _)| key.wrapping_sub(last.wrapping_add(1)))?;
        *last = key;
        self.take(key, events)
    }

    fn wake(&self) {
        self.closed.store(true, Ordering::Release);
        self.alarm.ring();
    }
}
