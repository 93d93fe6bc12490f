//! A server's UDP socket. Each call is one datagram, and so is its reply.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farcall::env::{Env, Received, Socket, SocketOptions, Wait, thread_event};
use farcall::fair::{FairQueue, Waits};
use farcall::host::Host;

use super::outgoing::Outgoing;
use super::peer::{Peer, Transport};
use super::pool::{ReceivePoint, ServingThread, Workers};
use super::programs::{Programs, Verdict};

/// The longest UDP payload over IPv4, in bytes: 65,535 less the IP and UDP headers.
pub(super) const MAX_DATAGRAM_BYTES: usize = 65_507;
/// The size to request for the socket's buffers, in bytes. It is large because a client whose call is dropped
/// sends the call again only after a second or more.
const SOCKET_BUFFER_BYTES: usize = 4 << 20;

/// A UDP socket of a server.
pub(super) struct Datagrams {
    env: Arc<dyn Env>,
    socket: Arc<dyn Socket>,
    workers: Arc<Workers>,
    programs: Arc<Programs>,
    /// Calls that were put aside because their host already has its share of the executing calls.
    aside: Mutex<FairQueue<Aside>>,
    /// The length of `aside`. A receiver that puts a call aside writes this number, and then asks the pool
    /// how many threads execute. A thread that ends a call or begins to wait tells the pool, and then reads
    /// this number. The pool's lock orders these steps, so at least one of the two threads serves the call.
    put_aside: AtomicUsize,
}

/// The most calls that are put aside. When there are more, or more than `MAX_ASIDE_BYTES`, the host with most
/// calls loses its newest call. The client sends that call again.
const MAX_ASIDE_CALLS: usize = 1024;
/// The most bytes of calls that are put aside.
const MAX_ASIDE_BYTES: usize = 4 << 20;

/// A call that was put aside.
struct Aside {
    message: Vec<u8>,
    from: SocketAddr,
}

impl Waits for Aside {
    type Caller = SocketAddr;
    type Key = ();

    fn key(&self) {}

    fn payer(&self) -> Host {
        Host::at(self.from.ip())
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
        workers: &Arc<Workers>,
        programs: &Arc<Programs>,
    ) -> Datagrams {
        let (workers, programs) = (workers.clone(), programs.clone());
        let aside = Mutex::new(FairQueue::new(MAX_ASIDE_CALLS, MAX_ASIDE_BYTES));
        Datagrams { env, socket, workers, programs, aside, put_aside: AtomicUsize::new(0) }
    }

    /// Binds a UDP socket at an address.
    pub(super) fn bind(env: &dyn Env, address: SocketAddr, spin: Duration) -> io::Result<Arc<dyn Socket>> {
        env.bind(
            address,
            &SocketOptions { spin, buffer: SOCKET_BUFFER_BYTES, answers: true, divisible: true },
        )
    }

    /// Waits for a datagram. Returns its length and its sender.
    #[inline]
    fn receive(&self, buffer: &mut [u8]) -> Option<(usize, SocketAddr)> {
        match self.socket.receive(buffer, Wait::Forever) {
            Ok(Received::Datagrams { from, len, .. }) => Some((len, from)),
            Ok(_) => None,
            Err(_) => {
                // The system lacks memory, or the device is down. The next try would fail at once too, so the
                // thread waits first.
                thread_event(&self.env).wait(Some(Duration::from_millis(10)));
                None
            }
        }
    }

    /// Puts a call aside if its host has its share of the executing calls. Returns false if the call is to be
    /// served now.
    #[cold]
    fn put_aside(&self, message: &[u8], from: SocketAddr) -> bool {
        if self.workers.may_execute(Host::at(from.ip()).number()) {
            return false;
        }
        let mut aside = self.lock();
        // `push` returns a call that is dropped in favour of this one. Its client sends it again.
        drop(aside.push(Aside { message: message.to_vec(), from }, false));
        // If another call has ended meanwhile, this thread serves the call that was put aside before it
        // waits.
        self.put_aside.store(aside.len(), Ordering::Relaxed);
        true
    }

    /// Takes out a call that was put aside, if its host now has less than its share.
    #[cold]
    fn take_aside(&self) -> Option<Aside> {
        let mut aside = self.lock();
        let next = aside.pop_if(|aside| self.workers.may_execute(aside.payer().number()));
        self.put_aside.store(aside.len(), Ordering::Relaxed);
        next
    }

    /// Returns whether any calls are put aside.
    #[inline]
    fn has_aside(&self) -> bool {
        self.put_aside.load(Ordering::Relaxed) > 0
    }

    fn lock(&self) -> MutexGuard<'_, FairQueue<Aside>> {
        self.aside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves one datagram. Returns true if the thread is to rest because enough others receive.
    #[inline]
    fn serve(&self, thread: &ServingThread, message: &[u8], from: SocketAddr, reply: &mut Outgoing) -> bool {
        thread.begin(Host::at(from.ip()).number());
        let peer = Peer::at(Transport::Udp, Some(from));
        let wanted = match self.programs.examine(message, &peer, reply) {
            Verdict::Unreadable | Verdict::Drop => false,
            Verdict::Answered => true,
            Verdict::Run(admitted) => {
                if admitted.is_slow() {
                    thread.replace_receiver();
                }
                let known = admitted.known();
                let wanted = self.programs.run(admitted, &peer, None, reply);
                if thread.is_long() {
                    known.overdue();
                }
                wanted
            }
        };
        // This is done before the reply is sent, because a caller that has the reply may stop the server, and
        // `stop` waits until this thread no longer executes.
        let rests = thread.done(|| !self.has_aside());
        if wanted {
            self.send(from, reply);
        }
        reply.clear();
        self.programs.forget();
        rests
    }

    /// Sends a reply. A reply that cannot be sent is lost, as any datagram can be.
    #[inline]
    fn send(&self, to: SocketAddr, reply: &Outgoing) {
        let _ = match reply.parts() {
            [all, [], []] => self.socket.send(to, all),
            parts => self.socket.send_parts(to, parts),
        };
    }
}

impl ReceivePoint for Datagrams {
    fn watch(&self, thread: &ServingThread) -> bool {
        let mut buffer = vec![0; MAX_DATAGRAM_BYTES + 1];
        let mut reply = Outgoing::datagram(MAX_DATAGRAM_BYTES);
        while !self.workers.is_stopped() {
            let rests = if self.has_aside()
                && let Some(Aside { message, from }) = self.take_aside()
            {
                self.serve(thread, &message, from, &mut reply)
            } else {
                let received = self.receive(&mut buffer);
                if self.workers.is_stopped() {
                    break;
                }
                let Some((len, from)) = received else { continue };
                let message = buffer.get(..len).unwrap_or_default();
                if self.workers.is_busy() && !message.is_empty() && self.put_aside(message, from) {
                    continue;
                }
                self.serve(thread, message, from, &mut reply)
            };
            if rests {
                return true;
            }
        }
        self.wake();
        false
    }

    fn look_aside(&self) {
        if self.has_aside() {
            self.wake();
        }
    }

    fn wake(&self) {
        self.socket.wake();
    }
}
