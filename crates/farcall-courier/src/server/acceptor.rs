//! The thread that accepts connections.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farcall::env::{
    Accepted, Alarm, Condition, Env, Interest, Listener, Stream, Wanted, is_of_one_connection,
};
use farcall::host::Host;
use farcall::lock;
use farcall::workers::{Jobs, Threads};

use super::hosts::Connections;
use crate::silence::Silence;

/// How long the thread pauses when the system has no room for more connections.
const BACK_OFF: Duration = Duration::from_millis(100);

/// Makes the job that serves a connection.
pub(crate) trait Serves: Send + Sync {
    /// Returns the job of a connection that was just accepted. It drops the place at its end.
    fn begin(
        &self,
        stream: &Arc<dyn Stream>,
        from: Option<SocketAddr>,
        silence: Arc<Silence>,
    ) -> Box<dyn FnOnce(Place) + Send>;

    /// Tells a client, without waiting, that there is no room for its connection, which ends afterwards.
    fn refuse(&self, _stream: &dyn Stream) {}
}

/// Accepts connections, and has a thread serve each of them.
pub(crate) struct Acceptor {
    env: Arc<dyn Env>,
    listeners: Vec<Arc<dyn Listener>>,
    serves: Box<dyn Serves>,
    connections: Arc<Connections>,
    /// The threads of connections.
    threads: Arc<Jobs>,
    /// Wakes the accepting thread.
    alarm: Arc<dyn Alarm>,
    is_stopped: AtomicBool,
    has_left: Mutex<bool>,
    left: Condition,
}

impl Acceptor {
    /// Starts the accepting thread.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn start(
        env: Arc<dyn Env>,
        listeners: Vec<Arc<dyn Listener>>,
        serves: Box<dyn Serves>,
        max_connections: usize,
    ) -> io::Result<Arc<Acceptor>> {
        // The table of connections bounds the threads.
        let budget = Threads::besides_waiting(usize::MAX, 0);
        let acceptor = Arc::new(Acceptor {
            threads: Jobs::new(env.clone(), "courier-connection", budget, usize::MAX),
            alarm: env.alarm()?,
            listeners,
            serves,
            connections: Arc::new(Connections::new(max_connections)),
            is_stopped: AtomicBool::new(false),
            has_left: Mutex::new(false),
            left: Condition::default(),
            env,
        });
        let thread = Leaving(acceptor.clone());
        acceptor.env.spawn("courier-acceptor", Box::new(move || thread.0.accept_all()))?;
        Ok(acceptor)
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Stops accepting, and ends all connections. Procedures that still run end by themselves.
    pub(crate) fn stop(&self) {
        self.stop_accepting();
        self.connections.end_all();
        self.threads.close();
    }

    /// Stops accepting, and ends each connection when its call is answered. Waits until all have ended, but
    /// no longer than `time`. Returns whether they have.
    pub(crate) fn drain(&self, time: Duration) -> bool {
        let until = self.env.now() + time;
        self.stop_accepting();
        self.connections.finish(&self.env, until)
    }

    fn stop_accepting(&self) {
        self.is_stopped.store(true, Ordering::SeqCst);
        self.alarm.ring();
        let mut has_left = lock(&self.has_left);
        while !*has_left && !std::thread::panicking() {
            has_left = self.left.wait(&self.env, &self.has_left, has_left, None).0;
        }
        drop(has_left);
        self.listeners.iter().for_each(|listener| listener.close());
    }

    fn accept_all(&self) {
        let mut pauses = false;
        while !self.is_stopped.load(Ordering::SeqCst) {
            let ready = self.wait(pauses);
            pauses = false;
            for (listener, _) in self.listeners.iter().zip(ready).filter(|(_, ready)| *ready) {
                pauses |= self.accept_some(&**listener);
            }
        }
    }

    /// Waits for connections, or for a short time. Returns which listeners have some.
    fn wait(&self, pauses: bool) -> Vec<bool> {
        let listeners = self.listeners.iter().filter(|_| !pauses).map(|listener| listener.source());
        let sources = [self.alarm.source()].into_iter().chain(listeners);
        let mut wanted: Vec<Wanted<'_>> = sources.map(|source| Wanted::new(source, Interest::READ)).collect();
        if self.env.wait_any(&mut wanted, pauses.then_some(BACK_OFF)).is_err() {
            return Vec::new();
        }
        match pauses {
            true => vec![true; self.listeners.len()],
            false => wanted.iter().skip(1).map(|wanted| wanted.ready.read).collect(),
        }
    }

    /// Accepts some of the connections that wait at a listener. Returns whether the system has no room for
    /// more.
    fn accept_some(&self, listener: &dyn Listener) -> bool {
        /// How many connections to accept before other listeners have their turn.
        const ACCEPTS_AT_A_TIME: usize = 64;
        for _ in 0..ACCEPTS_AT_A_TIME {
            match listener.accept() {
                Ok(accepted) => self.begin(accepted),
                Err(why) if why.kind() == ErrorKind::WouldBlock => return false,
                Err(why) if is_of_one_connection(&why) => {}
                Err(_) => {
                    self.connections.make_room(self.env.now());
                    return true;
                }
            }
        }
        false
    }

    /// Has a thread serve a connection. A connection for which there is no room ends at once.
    fn begin(&self, Accepted { stream, from, user }: Accepted) {
        let (host, silence) = (Host::of(from, user), Arc::new(Silence::default()));
        let serve = self.serves.begin(&stream, from, silence.clone());
        let Some(id) = self.connections.add(host, &stream, &silence, self.env.now()) else {
            return self.serves.refuse(&*stream);
        };
        let place = Place { connections: self.connections.clone(), id };
        // A job that is refused is dropped, with its connection.
        let _ = self.threads.submit(Box::new(move || serve(place)));
    }
}

/// The accepting thread. Its drop tells [`Acceptor::stop`] that it has left.
struct Leaving(Arc<Acceptor>);

impl Drop for Leaving {
    fn drop(&mut self) {
        *lock(&self.0.has_left) = true;
        self.0.left.notify_all();
    }
}

/// The place of a connection in the table. While it is there, the server may end the connection. The drop
/// removes it.
pub(crate) struct Place {
    connections: Arc<Connections>,
    id: u64,
}

impl Place {
    /// Returns the place of a connection that no table has.
    pub(crate) fn alone() -> Place {
        Place { connections: Arc::new(Connections::new(1)), id: 0 }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connections.remove(self.id);
    }
}
