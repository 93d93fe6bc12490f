//! A UDP socket of a server, and the threads that answer the packets that come there.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farcall::env::{Condition, Env, Received, Socket, SocketOptions, Wait, thread_event};
use farcall::lock;

/// The size to request for the socket's buffers, in bytes. Calls wait there.
const SOCKET_BUFFER_BYTES: usize = 1 << 20;

/// Answers packets.
pub(crate) trait Answers: Send + Sync + 'static {
    /// Buffers of one thread.
    type Buffers: Default;

    /// Returns the most bytes that a packet may have. Of a longer one, a byte more is passed to
    /// [`Answers::answer`].
    fn max_packet_bytes(&self) -> usize;

    /// Answers a packet.
    fn answer(&self, packet: &[u8], from: SocketAddr, socket: &dyn Socket, buffers: &mut Self::Buffers);

    /// Answers these packets in their order.
    fn answer_all(&self, packets: &[&[u8]], from: SocketAddr, socket: &dyn Socket) {
        let mut buffers = Self::Buffers::default();
        packets.iter().for_each(|packet| self.answer(packet, from, socket, &mut buffers));
    }
}

/// A socket, and who answers what comes there.
pub(crate) struct Datagrams<A> {
    env: Arc<dyn Env>,
    socket: Arc<dyn Socket>,
    answers: A,
    state: Mutex<State>,
    /// Notified when a thread stops to wait for packets.
    left: Condition,
}

#[derive(Default)]
struct State {
    is_stopped: bool,
    /// How many threads wait for packets, or are about to.
    waiting: usize,
    /// How many threads answer packets.
    answering: usize,
}

impl<A: Answers> Datagrams<A> {
    /// Binds the socket, and starts the threads.
    ///
    /// # Errors
    /// The system refuses the address, or can start no thread.
    pub(crate) fn start(
        env: Arc<dyn Env>,
        place: SocketAddr,
        answers: A,
        workers: usize,
    ) -> io::Result<Arc<Datagrams<A>>> {
        let options = SocketOptions {
            buffer: SOCKET_BUFFER_BYTES,
            answers: true,
            divisible: true,
            ..SocketOptions::default()
        };
        let socket = env
            .bind(place, &options)
            .map_err(|why| io::Error::new(why.kind(), format!("udp://{place}: {why}")))?;
        let (state, left) =
            (Mutex::new(State { waiting: workers, ..State::default() }), Condition::default());
        let serving = Arc::new(Datagrams { env, socket, answers, state, left });
        for started in 0..workers {
            let thread = serving.clone();
            if let Err(why) = serving.env.spawn("courier-packets", Box::new(move || thread.serve())) {
                lock(&serving.state).waiting -= workers - started;
                serving.stop();
                return Err(why);
            }
        }
        Ok(serving)
    }

    /// Returns the address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.socket.local_address()
    }

    /// Stops receiving. When this returns, no thread waits for packets.
    pub(crate) fn stop(&self) {
        let mut state = lock(&self.state);
        state.is_stopped = true;
        while state.waiting > 0 && !std::thread::panicking() {
            self.socket.wake();
            state = self.left.wait(&self.env, &self.state, state, None).0;
        }
    }

    /// Stops receiving, and waits until the packets that came are answered, but no longer than `time`.
    /// Returns whether they are.
    pub(crate) fn drain(&self, time: Duration) -> bool {
        let until = self.env.now() + time;
        self.stop();
        let mut state = lock(&self.state);
        while state.answering > 0 && self.env.now() < until {
            let rest = until.since(self.env.now());
            state = self.left.wait(&self.env, &self.state, state, Some(rest)).0;
        }
        state.answering == 0
    }

    fn serve(&self) {
        // A byte more than a packet may have, so that a longer one is seen to be too long.
        let mut packet = vec![0; self.answers.max_packet_bytes().saturating_add(1)];
        let mut buffers = A::Buffers::default();
        while !lock(&self.state).is_stopped {
            let received = self.socket.receive(&mut packet, Wait::Forever);
            let (from, count) = match received {
                Ok(Received::Datagrams { from, len, .. }) => (from, len),
                Ok(_) => continue,
                Err(_) => {
                    // The system lacks memory, or the device is down. The next try would fail at once too.
                    thread_event(&self.env).wait(Some(Duration::from_millis(10)));
                    continue;
                }
            };
            if !self.begin_call() {
                break;
            }
            let packet = packet.get(..count).unwrap_or_default();
            self.answers.answer(packet, from, &*self.socket, &mut buffers);
            if !self.end_call() {
                return;
            }
        }
        lock(&self.state).waiting -= 1;
        self.left.notify_all();
    }

    /// Notes that this thread does not wait for packets. Returns false if the server has stopped.
    fn begin_call(&self) -> bool {
        let mut state = lock(&self.state);
        if !state.is_stopped {
            state.waiting -= 1;
            state.answering += 1;
        }
        !state.is_stopped
    }

    /// Notes that this thread waits for packets again. Returns false if the server has stopped meanwhile.
    fn end_call(&self) -> bool {
        let mut state = lock(&self.state);
        state.answering -= 1;
        match state.is_stopped {
            true => self.left.notify_all(),
            false => state.waiting += 1,
        }
        !state.is_stopped
    }
}
