//! A server's UDP socket: a datagram is a call, and so is the reply.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farcall::env::{Env, Received, Socket, SocketOptions, Time, Wait, thread_event};
use farcall::fair::{FairQueue, Waits};

use super::hosts::Key;
use super::outgoing::Outgoing;
use super::peer::{Peer, Transport};
use super::pool::{Pool, ReceivePoint, Receivers, Worker};
use super::programs::{Programs, Verdict};

/// The longest datagram.
pub(super) const LONGEST: usize = 65_507;
/// As much as the system grants of this is asked for: clients send again only after a second or more.
const BUFFER: usize = 4 << 20;

/// The socket.
pub(super) struct Datagrams {
    env: Arc<dyn Env>,
    socket: Arc<dyn Socket>,
    spin: Duration,
    list: Arc<Receivers>,
    pool: Arc<Pool>,
    programs: Arc<Programs>,
    /// Calls that are put aside because their hosts have their share of the calls that execute; and how many
    /// there are.
    aside: Mutex<FairQueue<Aside>>,
    ///
    /// SeqCst: a receiver that puts a call aside writes this and then reads how many threads execute; a thread
    /// that ends or waits writes that and then reads this. At least one of them serves the call.
    put_aside: AtomicUsize,
}

/// The most calls that are put aside, and the most bytes of them. Beyond that the newest call of the host
/// that has most is lost, as any datagram may be.
const MOST_ASIDE: usize = 1024;
const MOST_BYTES_ASIDE: usize = 4 << 20;

/// A call that was put aside.
struct Aside {
    message: Vec<u8>,
    from: SocketAddr,
}

impl Waits for Aside {
    type Payer = Key;
    type Caller = SocketAddr;
    type Key = ();

    fn key(&self) {}

    fn payer(&self) -> Key {
        Key::at(self.from.ip())
    }

    fn caller(&self) -> SocketAddr {
        self.from
    }

    fn bytes(&self) -> usize {
        self.message.len()
    }
}

impl Datagrams {
    pub(super) fn new(
        env: Arc<dyn Env>,
        socket: Arc<dyn Socket>,
        spin: Duration,
        pool: &Arc<Pool>,
        programs: &Arc<Programs>,
    ) -> Datagrams {
        let (pool, programs) = (pool.clone(), programs.clone());
        let aside = Mutex::new(FairQueue::new(MOST_ASIDE, MOST_BYTES_ASIDE));
        let (list, put_aside) = (Arc::default(), AtomicUsize::new(0));
        Datagrams { env, socket, spin, list, pool, programs, aside, put_aside }
    }

    /// Opens a socket at an address.
    pub(super) fn bind(env: &dyn Env, address: SocketAddr, spin: Duration) -> io::Result<Arc<dyn Socket>> {
        env.bind(address, &SocketOptions { spin, buffer: BUFFER, answers: true, divisible: true })
    }

    /// Waits for a datagram: its length, and who sent it.
    #[inline]
    fn receive(&self, buffer: &mut [u8]) -> Option<(usize, SocketAddr)> {
        match self.socket.receive(buffer, Wait::Forever) {
            Ok(Received::Datagrams { from, len, .. }) => Some((len, from)),
            Ok(_) => None,
            Err(_) => {
                // The system lacks memory, or the device is down: it will say so again at once.
                thread_event(&self.env).wait(Some(Duration::from_millis(10)));
                None
            }
        }
    }

    /// How many are to wait: two while calls are rare, so that one of them may execute whatever comes, and
    /// the watchdog sleep. Where calls come fast, to look after one costs less than to change between two.
    #[inline]
    fn enough(&self) -> usize {
        if self.spin.is_zero() && !self.pool.is_guarded() { 2 } else { 1 }
    }

    /// Puts a call aside if its host has its share of the calls that execute. Returns false if the call is to
    /// be served now.
    #[cold]
    fn put_aside(&self, message: &[u8], from: SocketAddr) -> bool {
        if self.pool.may_execute(Key::at(from.ip()).number()) {
            return false;
        }
        let mut aside = self.lock();
        // A call that lost its place is sent again by its client.
        drop(aside.push(Aside { message: message.to_vec(), from }, false));
        // If another call has ended meanwhile, this thread serves the call before it waits.
        self.put_aside.store(aside.len(), Ordering::SeqCst);
        true
    }

    /// Serves calls that were put aside, as many as their hosts' shares allow.
    #[cold]
    fn serve_aside(&self, worker: &Worker, reply: &mut Outgoing) {
        let next = || {
            let mut aside = self.lock();
            let next = aside.pop_if(|aside| self.pool.may_execute(aside.payer().number()));
            self.put_aside.store(aside.len(), Ordering::SeqCst);
            next
        };
        while !self.pool.is_stopped()
            && let Some(Aside { message, from }) = next()
        {
            self.pool.guard();
            self.serve(worker, &message, from, reply);
        }
    }

    fn lock(&self) -> MutexGuard<'_, FairQueue<Aside>> {
        self.aside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves one datagram.
    #[inline]
    fn serve(&self, worker: &Worker, message: &[u8], from: SocketAddr, reply: &mut Outgoing) {
        let peer = Peer::at(Transport::Udp, Some(from));
        let wanted = match self.programs.examine(message, &peer, reply) {
            Verdict::Unreadable | Verdict::Drop => false,
            Verdict::Answered => true,
            Verdict::Run(admitted) => {
                if admitted.is_slow() {
                    self.pool.replace_receiver(&self.list);
                }
                let pace = admitted.pace();
                let run = || self.programs.run(admitted, &peer, None, reply);
                let host = Key::at(from.ip()).number();
                let (wanted, relieved) = self.list.execute(|| worker.run_for(host, run));
                if relieved {
                    pace.overdue();
                }
                wanted
            }
        };
        if wanted {
            self.send(from, reply);
        }
        reply.clear();
        self.programs.forget();
    }

    /// Sends a reply. What cannot be sent is lost, as datagrams are.
    #[inline]
    fn send(&self, to: SocketAddr, reply: &Outgoing) {
        let _ = match reply.parts() {
            [all, [], []] => self.socket.send(to, all),
            parts => self.socket.send_parts(to, parts),
        };
    }
}

/// Counts what comes to one of two who wait: whether that is worth a watchdog.
#[derive(Default)]
struct Brisk {
    calls: u32,
    since: Option<Time>,
}

impl Brisk {
    fn one_more(&mut self, now: impl FnOnce() -> Time) -> bool {
        /// So many within that time are.
        const ENOUGH: (u32, Duration) = (16, Duration::from_micros(1600));
        self.calls += 1;
        if self.calls < ENOUGH.0 {
            return false;
        }
        let now = now();
        self.calls = 0;
        self.since.replace(now).is_some_and(|since| now.since(since) < ENOUGH.1)
    }
}

impl ReceivePoint for Datagrams {
    fn watch(&self, worker: &Arc<Worker>) {
        let mut buffer = vec![0; LONGEST + 1];
        let mut reply = Outgoing::datagram(LONGEST);
        let mut brisk = Brisk::default();
        loop {
            if self.put_aside.load(Ordering::SeqCst) > 0 {
                self.list.come();
                self.serve_aside(worker, &mut reply);
            }
            if !self.list.arrive(self.enough()) {
                return;
            }
            let received = if self.pool.is_stopped() { None } else { self.receive(&mut buffer) };
            let deserted = self.list.leave();
            if self.pool.is_stopped() {
                return self.wake();
            }
            let Some((len, from)) = received else { continue };
            if deserted || (!self.pool.is_guarded() && brisk.one_more(|| self.env.now())) {
                self.pool.guard();
            }
            let message = buffer.get(..len).unwrap_or_default();
            if self.pool.is_busy() && !message.is_empty() && self.put_aside(message, from) {
                continue;
            }
            self.serve(worker, message, from, &mut reply);
        }
    }

    fn receivers(&self) -> &Arc<Receivers> {
        &self.list
    }

    fn look_aside(&self) {
        if self.put_aside.load(Ordering::SeqCst) > 0 {
            self.wake();
        }
    }

    fn wake(&self) {
        self.socket.wake();
    }
}
