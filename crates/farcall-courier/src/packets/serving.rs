//! The socket of a server, and the threads that execute the calls that come there.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farcall::env::{Condition, Env, Received, Socket, Wait, thread_event};
use farcall::lock;

use super::MAX_PACKET_BYTES;
use crate::dialect::message::{CALL_HEADER_BYTES, CallHeader};
use crate::dialect::offer::{Buffers, Offer, Verdict};
use crate::dialect::report::Reporter;

/// A socket with its program.
pub(super) struct Serving {
    env: Arc<dyn Env>,
    socket: Arc<dyn Socket>,
    offer: Offer,
    reporter: Reporter,
    state: Mutex<State>,
    /// Notified when a thread stops to wait for packets.
    left: Condition,
}

#[derive(Default)]
struct State {
    is_stopped: bool,
    /// How many threads wait for packets, or are about to.
    waiting: usize,
}

impl Serving {
    /// Starts the threads.
    ///
    /// # Errors
    /// The system can start no thread.
    pub(super) fn start(
        env: Arc<dyn Env>,
        socket: Arc<dyn Socket>,
        offer: Offer,
        reporter: Reporter,
        workers: usize,
    ) -> io::Result<Arc<Serving>> {
        let (state, left) = (Mutex::new(State { waiting: workers, is_stopped: false }), Condition::default());
        let serving = Arc::new(Serving { env, socket, offer, reporter, state, left });
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

    /// Stops receiving. When this returns, no thread waits for packets.
    pub(super) fn stop(&self) {
        let mut state = lock(&self.state);
        state.is_stopped = true;
        while state.waiting > 0 && !std::thread::panicking() {
            self.socket.wake();
            state = self.left.wait(&self.env, &self.state, state, None).0;
        }
    }

    fn serve(&self) {
        // A byte more than a packet may have, so that a longer one is seen to be too long.
        let mut packet = [0; MAX_PACKET_BYTES + 1];
        let mut buffers = Buffers::default();
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
            self.answer(packet.get(..count).unwrap_or_default(), from, &mut buffers);
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
        }
        !state.is_stopped
    }

    /// Notes that this thread waits for packets again. Returns false if the server has stopped meanwhile.
    fn end_call(&self) -> bool {
        let mut state = lock(&self.state);
        if !state.is_stopped {
            state.waiting += 1;
        }
        !state.is_stopped
    }

    fn answer(&self, packet: &[u8], from: SocketAddr, buffers: &mut Buffers) {
        let trouble = |why: String| self.reporter.trouble(Some(from), || why);
        if packet.len() > MAX_PACKET_BYTES {
            return trouble(format!("a packet of more than {MAX_PACKET_BYTES} bytes"));
        }
        let Some((header, words)) = packet.split_first_chunk::<CALL_HEADER_BYTES>() else {
            return trouble(format!("a packet of {} bytes, which is no call", packet.len()));
        };
        let header = CallHeader::parse(*header);
        if header.bytes != words.len() {
            let found = words.len();
            return trouble(format!("a call that says that it has {} bytes, and has {found}", header.bytes));
        }
        self.reporter.call();
        match self.offer.answer(header.procedure, words, Some(from), buffers) {
            Verdict::Silence => {}
            Verdict::Reply if buffers.reply.len() > MAX_PACKET_BYTES => {
                let (name, bytes) = (self.offer.name(), buffers.reply.len());
                let procedure = header.procedure;
                trouble(format!(
                    "the reply of procedure {procedure} of {name} has {bytes} bytes, and a packet \
                     {MAX_PACKET_BYTES} at most; it was not sent"
                ));
            }
            // A reply that cannot be sent is lost, as any packet can be.
            Verdict::Reply => drop(self.socket.send(from, &buffers.reply)),
            Verdict::Failed(failure) => trouble(failure.why),
        }
    }
}
