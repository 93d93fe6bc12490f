//! The capacity of UDP: batches of segments, which the kernel takes and returns in one system call (GSO,
//! GRO).
use std::io::IoSliceMut;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use anyhow::Result;
use farcall_bench_method::{
    Calling, Cannot, Carry, Gate, Gated, Laps, Mode, Peer, Serving, Setup, cannot, enlarge,
};
use quinn_udp::{RecvMeta, Transmit, UdpSocketState};

/// The bytes of a segment of a large result, which fits an Ethernet frame.
const SEGMENT: usize = 1400;
/// The most bytes of a batch, and of one receive.
const TRAIN: usize = 65_000;
/// A large result is requested in pieces, at most this many at a time. Nothing else prevents the server from
/// sending more than the client's buffer holds.
const PIECE: usize = 1 << 20;
const PIECES: usize = 4;
/// The time after which a segment counts as lost. Nothing is retransmitted.
const LOST: Duration = Duration::from_secs(2);

pub struct RawGso;

impl Peer for RawGso {
    fn transport(&self) -> &'static str {
        "udp, gso"
    }

    fn serve(&self, setup: &Setup) -> Result<Box<dyn Serving>> {
        if setup.carry == Carry::Both && setup.bytes > TRAIN {
            return cannot("a call is one segment");
        }
        if setup.mode == Mode::Spin {
            return cannot("it does not spin");
        }
        let mut side = Side::new(None)?;
        let address = side.socket.local_addr()?.to_string();
        let (gate, setup) = (Gate::new(setup), *setup);
        let serve = move || -> Result<()> {
            let (piece, mut received) = (setup.bytes.clamp(1, PIECE), 0);
            loop {
                let Some((length, segment, from)) = side.receive()? else { continue };
                match setup.carry {
                    Carry::Both => side.send(from, length, segment)?,
                    // Each byte is a request for a piece.
                    Carry::Result => (0..length).try_for_each(|_| side.send_all(from, piece))?,
                    // Returns a byte for each received piece.
                    Carry::Argument => {
                        received += length;
                        (0..received / piece).try_for_each(|_| side.send(from, 1, 1))?;
                        received %= piece;
                    }
                }
            }
        };
        Ok(Box::new(Gated { address, gate, thread: std::thread::spawn(serve).thread().clone() }))
    }

    fn connect(&self, setup: &Setup, address: &str) -> Result<Box<dyn Calling>> {
        let mut side = Side::new(Some(LOST))?;
        side.buffer[..TRAIN].fill(7);
        Ok(Box::new(Client { side, server: address.parse()?, setup: *setup }))
    }
}

struct Client {
    side: Side,
    server: SocketAddr,
    setup: Setup,
}

impl Client {
    fn receive(&mut self) -> Result<(usize, usize)> {
        let lost =
            || Cannot("a segment was lost: its buffer must be larger than this user may make it".into());
        let (length, segment, _) = self.side.receive()?.ok_or_else(lost)?;
        Ok((length, segment))
    }

    /// Sends as many segments as may be outstanding, in as few batches as possible.
    fn segments(&mut self, outstanding: usize, calls: usize) -> Result<()> {
        let segment = self.setup.bytes.max(1);
        let most = (TRAIN / segment).min(self.side.state.max_gso_segments());
        let (mut sent, mut received) = (0, 0);
        while received < calls {
            let ready = (received + outstanding).min(calls) - sent;
            if ready > 0 {
                let train = ready.min(most);
                self.side.send(self.server, train * segment, segment)?;
                sent += train;
                continue;
            }
            let (length, segment) = self.receive()?;
            received += length.div_ceil(segment);
        }
        Ok(())
    }

    fn pieces(&mut self, outstanding: usize, calls: usize) -> Result<()> {
        let piece = self.setup.bytes.min(PIECE);
        let of_each = self.setup.bytes.div_ceil(piece);
        let (all, at_once) = (calls * of_each, PIECES.min(outstanding * of_each));
        // The acknowledgements of pieces.
        let answer = if self.setup.carry == Carry::Argument { 1 } else { piece };
        let (mut asked, mut received) = (0, 0);
        while received < all * answer {
            let ask = (received / answer + at_once).min(all) - asked;
            match self.setup.carry {
                Carry::Argument => (0..ask).try_for_each(|_| self.side.send_all(self.server, piece))?,
                _ if ask > 0 => self.side.send(self.server, ask, ask)?,
                _ => {}
            }
            asked += ask;
            received += self.receive()?.0;
        }
        Ok(())
    }
}

impl Calling for Client {
    fn run(&mut self, laps: &mut Laps) -> Result<()> {
        while laps.next() {
            self.window(1, 1)?;
        }
        Ok(())
    }

    fn window(&mut self, outstanding: usize, calls: usize) -> Result<()> {
        match self.setup.carry {
            Carry::Both => self.segments(outstanding, calls),
            Carry::Result | Carry::Argument => self.pieces(outstanding, calls),
        }
    }
}

/// One side's socket, and its buffer.
struct Side {
    socket: UdpSocket,
    state: UdpSocketState,
    buffer: Vec<u8>,
}

impl Side {
    fn new(patience: Option<Duration>) -> Result<Side> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        let state = UdpSocketState::new((&socket).into())?;
        socket.set_nonblocking(false)?;
        socket.set_read_timeout(patience)?;
        enlarge(&socket);
        Ok(Side { socket, state, buffer: vec![7; 1 << 16] })
    }

    /// Receives a batch: its length, the length of its segments, and its sender. Returns `None` if none came
    /// in time.
    fn receive(&mut self) -> Result<Option<(usize, usize, SocketAddr)>> {
        let mut metas = [RecvMeta::default()];
        let mut buffers = [IoSliceMut::new(&mut self.buffer)];
        match self.state.recv((&self.socket).into(), &mut buffers, &mut metas) {
            Ok(_) => Ok(Some((metas[0].len, metas[0].stride.max(1), metas[0].addr))),
            Err(why) if why.kind() == std::io::ErrorKind::WouldBlock => Ok(None),
            Err(why) => Err(why.into()),
        }
    }

    /// Sends the first `length` bytes of the buffer, in segments of `segment` bytes.
    fn send(&self, to: SocketAddr, length: usize, segment: usize) -> Result<()> {
        let segment_size = (segment < length).then_some(segment);
        let contents = &self.buffer[..length];
        let transmit = Transmit { destination: to, ecn: None, contents, segment_size, src_ip: None };
        Ok(self.state.try_send((&self.socket).into(), &transmit)?)
    }

    fn send_all(&self, to: SocketAddr, mut length: usize) -> Result<()> {
        let train = SEGMENT * (TRAIN / SEGMENT).min(self.state.max_gso_segments());
        while length > 0 {
            let some = length.min(train);
            self.send(to, some, SEGMENT)?;
            length -= some;
        }
        Ok(())
    }
}
