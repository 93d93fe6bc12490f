//! One connection of a client, which one thread serves: the activation, then the calls in order.

use std::collections::HashMap;
use std::io::IoSlice;
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use farcall::Time;
use farcall::env::{Env, Stream};

use super::activation::{ACTIVATED, MAX_NAME_BYTES, TRY_AGAIN, UNKNOWN};
use super::command::Command;
use crate::dialect::message::{CALL_HEADER_BYTES, CallHeader};
use crate::dialect::offer::{Buffers, Offer, Verdict};
use crate::dialect::report::Reporter;
use crate::dialect::wire::Wire;
use crate::link::{LinkError, Patience};
use crate::server::acceptor::{Place, Serves};
use crate::silence::Silence;

/// The limits of each connection.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    /// After this time without a call the connection ends.
    pub(super) idle: Duration,
    /// How long a message may take from its first byte to its last, sent or received.
    pub(super) message_time: Duration,
}

/// The programs of a server.
pub(super) struct Programs {
    pub(super) programs: HashMap<Vec<u8>, Program>,
    pub(super) reporter: Reporter,
}

/// What serves a program.
pub(super) enum Program {
    Here(Arc<Offer>),
    Command(Arc<Command>),
}

/// What the threads of connections need.
pub(super) struct Serving {
    pub(super) env: Arc<dyn Env>,
    pub(super) programs: Arc<Programs>,
    pub(super) limits: Limits,
}

impl Serves for Serving {
    fn begin(
        &self,
        stream: &Arc<dyn Stream>,
        from: Option<SocketAddr>,
        silence: Arc<Silence>,
    ) -> Box<dyn FnOnce(Place) + Send> {
        let wire = Wire { env: self.env.clone(), stream: stream.clone() };
        let idle_from = self.env.now();
        silence.begin(idle_from);
        let (programs, limits) = (self.programs.clone(), self.limits);
        let (received, buffers) = Default::default();
        let connection = Connection { wire, programs, limits, from, silence, received, buffers };
        Box::new(move |place| connection.serve(place))
    }

    fn refuse(&self, stream: &dyn Stream) {
        let _ = stream.write(&[IoSlice::new(TRY_AGAIN)]);
    }
}

struct Connection {
    wire: Wire,
    programs: Arc<Programs>,
    limits: Limits,
    from: Option<SocketAddr>,
    silence: Arc<Silence>,
    /// Bytes that were received and not used yet.
    received: Vec<u8>,
    buffers: Buffers,
}

/// How many bytes are received at a time.
const PART_BYTES: usize = 8 << 10;
/// The memory for received bytes that is kept for the next call.
const KEPT_BYTES: usize = 64 << 10;

impl Connection {
    /// Serves the connection until it ends.
    fn serve(mut self, place: Place) {
        // An error means that the client has gone, or that it is not to be served any more. Nobody is there
        // to be told.
        let Ok(Some((offer, _place))) = self.activate(place) else { return };
        let _ = self.answer_calls(&offer);
        self.wire.stream.shutdown(Shutdown::Both);
    }

    /// Receives the program's name. Returns the program if this thread is to serve it, and the place.
    fn activate(&mut self, place: Place) -> Result<Option<(Arc<Offer>, Place)>, LinkError> {
        let until = self.wire.env.now() + self.limits.message_time;
        let name = self.receive_name(until)?;
        let Programs { programs, reporter } = &*self.programs;
        let shown = || String::from_utf8_lossy(&name).escape_debug().to_string();
        match programs.get(&name) {
            Some(Program::Here(offer)) => {
                self.wire.send(&ACTIVATED, Patience::until(until))?;
                return Ok(Some((offer.clone(), place)));
            }
            Some(Program::Command(command)) => {
                // The connection is the command's from now on, and ends with the server no more.
                drop(place);
                let Err(why) = command.start(&*self.wire.env, &*self.wire.stream) else { return Ok(None) };
                let path = command.path().display();
                reporter.trouble(self.from, || format!("{} ({path}) was not started: {why}", shown()));
                self.wire.send(TRY_AGAIN, Patience::until(until))?;
            }
            None => {
                reporter.trouble(self.from, || format!("no program has the name \"{}\"", shown()));
                self.wire.send(UNKNOWN, Patience::until(until))?;
            }
        }
        self.wire.stream.shutdown(Shutdown::Both);
        Ok(None)
    }

    /// Receives a STRING, and not a byte of what follows it, which may be for a command.
    fn receive_name(&self, until: Time) -> Result<Vec<u8>, LinkError> {
        let mut count = [0; 2];
        self.receive_exactly(&mut count, until)?;
        let count = usize::from(u16::from_be_bytes(count));
        if count > MAX_NAME_BYTES {
            self.programs.reporter.trouble(self.from, || format!("a program's name of {count} bytes"));
            return Err(LinkError::Ended);
        }
        let mut name = vec![0; count.next_multiple_of(2)];
        self.receive_exactly(&mut name, until)?;
        name.truncate(count);
        Ok(name)
    }

    fn receive_exactly(&self, buffer: &mut [u8], until: Time) -> Result<(), LinkError> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.wire.receive(&mut buffer[filled..], Patience::until(until))? {
                0 => return Err(LinkError::Ended),
                count => filled += count,
            }
            self.wire.stream.acknowledge();
            self.check(until)?;
        }
        Ok(())
    }

    fn answer_calls(&mut self, offer: &Offer) -> Result<(), LinkError> {
        let mut used = 0;
        loop {
            let header = self.receive_call(used)?;
            let end = CALL_HEADER_BYTES + header.bytes;
            let words = &self.received[CALL_HEADER_BYTES..end];
            self.programs.reporter.call();
            let verdict = offer.answer(header.procedure, words, self.from, &mut self.buffers);
            used = end;
            match verdict {
                Verdict::Silence => {}
                Verdict::Reply => {
                    let now = self.wire.env.now();
                    let patience = Patience::until(now + self.limits.message_time);
                    self.silence.wait_for_client(now, || self.wire.send(&self.buffers.reply, patience))?;
                }
                Verdict::Failed(failure) => {
                    let what = || match failure.is_fatal {
                        true => format!("{}; the connection was ended", failure.why),
                        false => failure.why,
                    };
                    self.programs.reporter.trouble(self.from, what);
                    if failure.is_fatal {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Removes `used` bytes that were received, and receives a whole call.
    fn receive_call(&mut self, used: usize) -> Result<CallHeader, LinkError> {
        self.received.drain(..used);
        if self.received.is_empty() {
            self.received.shrink_to(KEPT_BYTES);
            let now = self.wire.env.now();
            self.silence.begin(now);
            self.receive_some(now + self.limits.idle)?;
        }
        // This bounds the time for the whole message, however its bytes come.
        let begun = self.wire.env.now();
        let until = begun + self.limits.message_time;
        self.silence.receive(begun);
        loop {
            if let Some(header) = self.received.first_chunk() {
                let header = CallHeader::parse(*header);
                if self.received.len() >= CALL_HEADER_BYTES + header.bytes {
                    self.silence.end();
                    return Ok(header);
                }
            }
            // Cooper's own client writes a message in pieces, and the next one may wait for this.
            self.wire.stream.acknowledge();
            self.receive_some(until)?;
            self.check(until)?;
        }
    }

    /// Receives some bytes of a call. Fails as if the client had gone if the server drains.
    fn receive_some(&mut self, until: Time) -> Result<(), LinkError> {
        if self.silence.is_draining() {
            return Err(LinkError::Ended);
        }
        let former = self.received.len();
        self.received.resize(former + PART_BYTES, 0);
        let received = self.wire.receive(&mut self.received[former..], Patience::until(until));
        self.received.truncate(former + *received.as_ref().unwrap_or(&0));
        if received? == 0 { Err(LinkError::Ended) } else { Ok(()) }
    }

    /// Ends a message whose time is over, although bytes of it still come.
    fn check(&self, until: Time) -> Result<(), LinkError> {
        if self.wire.env.now() >= until { Err(LinkError::Late) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::io;
    use std::net::UdpSocket;
    use std::os::fd::AsFd as _;
    use std::sync::Mutex;

    use farcall::System;
    use farcall::env::{PeerState, Source, Wait};

    use super::*;
    use crate::link::Link;
    use crate::wire::message::Versions;
    use crate::wire::packet::{Datastream, PacketWriter, Received};

    /// A connection whose peer sends the next piece only when the last one was acknowledged.
    struct Pieces {
        unsent: Mutex<VecDeque<Vec<u8>>>,
        /// How many pieces were read, and how often they were acknowledged.
        counts: Mutex<(usize, usize)>,
        socket: UdpSocket,
    }

    impl Pieces {
        fn new(pieces: &[&[u8]]) -> Arc<Pieces> {
            let unsent = Mutex::new(pieces.iter().map(|piece| piece.to_vec()).collect());
            Arc::new(Pieces {
                unsent,
                counts: Mutex::default(),
                socket: UdpSocket::bind("127.0.0.1:0").unwrap(),
            })
        }

        fn counts(&self) -> (usize, usize) {
            *self.counts.lock().unwrap()
        }
    }

    impl Stream for Pieces {
        fn read(&self, buffer: &mut [u8], _: Wait) -> io::Result<usize> {
            let mut unsent = self.unsent.lock().unwrap();
            let piece = unsent.front_mut().unwrap();
            let (read, acknowledged) = &mut *self.counts.lock().unwrap();
            assert_eq!(read, acknowledged, "the peer waits for an acknowledgement");
            let count = piece.len().min(buffer.len());
            buffer[..count].copy_from_slice(&piece[..count]);
            piece.drain(..count);
            if piece.is_empty() {
                unsent.pop_front();
                *read += 1;
            }
            Ok(count)
        }

        fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
            Ok(parts.iter().map(|part| part.len()).sum())
        }

        fn shutdown(&self, _: Shutdown) {}

        fn take_error(&self) -> io::Result<()> {
            Ok(())
        }

        fn peer_state(&self) -> PeerState {
            PeerState::Open
        }

        fn acknowledge(&self) {
            let (read, acknowledged) = &mut *self.counts.lock().unwrap();
            *acknowledged = *read;
        }

        fn source(&self) -> Source<'_> {
            Source::Descriptor(self.socket.as_fd())
        }
    }

    fn connection(stream: Arc<Pieces>) -> Connection {
        let env = System::current();
        let programs = Programs { programs: HashMap::new(), reporter: Reporter::default() };
        let minute = Duration::from_secs(60);
        Connection {
            wire: Wire { env, stream },
            programs: Arc::new(programs),
            limits: Limits { idle: minute, message_time: minute },
            from: None,
            silence: Arc::default(),
            received: Vec::new(),
            buffers: Buffers::default(),
        }
    }

    #[test]
    fn each_piece_of_a_message_is_acknowledged_and_a_whole_one_costs_nothing() {
        let pieces = Pieces::new(&[&[0], &[4], b"ro", b"ot", &[0], &[3, 0], &[1], &[9, 9]]);
        let mut whole = connection(pieces.clone());
        let until = whole.wire.env.now() + Duration::from_secs(60);
        assert_eq!(whole.receive_name(until).unwrap(), b"root");
        let call = whole.receive_call(0).unwrap();
        assert_eq!((call.procedure, call.bytes), (3, 2));
        assert_eq!(pieces.counts(), (8, 7), "the last piece is acknowledged by the reply");
        let pieces = Pieces::new(&[&[0, 3, 0, 1, 9, 9]]);
        assert!(connection(pieces.clone()).receive_call(0).is_ok());
        assert_eq!(pieces.counts(), (1, 0));
    }

    #[test]
    fn each_piece_of_a_packet_is_acknowledged() {
        let (mut writer, mut packets) = (PacketWriter::default(), Vec::new());
        writer.write(Datastream::Messages, &Versions::THREE.to_bytes(), false, &mut packets);
        let versions = packets.len();
        writer.write(Datastream::Messages, b"message!", true, &mut packets);
        let [first, second, third] = [1, versions + 1, versions + 9];
        let pieces = [&packets[..first], &packets[first..second], &packets[second..third], &packets[third..]];
        let pieces = Pieces::new(&pieces);
        let mut link = Link::new(System::current(), pieces.clone(), 100);
        assert_eq!(link.receive(None, None).unwrap(), Received::Versions(Versions::THREE));
        assert_eq!(link.receive(None, None).unwrap(), Received::Message(b"message!"));
        assert_eq!(pieces.counts(), (4, 3));
    }
}
