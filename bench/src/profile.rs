//! The instructions of a call by parts: each part is measured alone, and the rest by subtraction.
//!
//! This is the papers' tables (Larus 1983, tables 5 to 8; Elliott & Nutt 1989, tables 4 and 5) in
//! instructions instead of time. Instructions can be counted separately, and add up.
use std::hint::black_box;
use std::net::{SocketAddr, UdpSocket};

use anyhow::{Context, Result};
use farcall::stub::Interface;
use farcall::xdr::{Decode, Decoder, Encode, Encoder};
use farcall_bench_method::counters::{Counters, Counts, What};
use farcall_bench_method::{Carry, Cell, Load, Mode, Options, Row, Setup};
use farcall_proto::client::{Call, Conversation, Event};
use farcall_proto::server::{Export, Finish, Request, Server};
use farcall_proto::{ClientConfig, ServerConfig, Time};

use crate::field::Field;
use crate::peers::farcall::{Echo, Server as EchoServer};
use crate::peers::{FARCALL, RAW};

/// The payload of `echo`, in bytes.
const BYTES: usize = 32;

/// Measures the parts of a blocking call, and shows them.
pub fn run(options: &Options) -> Result<()> {
    let mut field = Field::new(&[RAW.into(), FARCALL.into()], 2)?;
    let pin = options.pinned()[0];
    let cell =
        Cell { setup: Setup { bytes: BYTES, carry: Carry::Both, mode: Mode::Block, outstanding: 1 }, pin };
    let mut whole = Vec::new();
    for mut contender in field.contenders(&cell)? {
        let (warm, load) = (Load::Laps { calls: 200 }, Load::Laps { calls: 10_000 });
        whole.push(Part::new(contender.pair()?.count(What::Instructions, warm, load)?, load.calls())?);
        field.progress.inc(1);
    }
    let [raw, call] = whole[..] else { anyhow::bail!("raw and farcall are both needed") };
    let parts = parts(raw, call)?;
    let rows = parts.iter().map(|(name, part)| part.row(name, &cell)).collect();
    let method =
        "each part counted by itself over 20000 turns; the driver is what is left of the call".to_owned();
    field.show(rows, method, &[], options).map(drop)
}

/// Instructions per call.
#[derive(Clone, Copy, Debug, Default)]
pub struct Part {
    pub user: f64,
    pub kernel: f64,
}

impl Part {
    pub fn new(counts: Counts, calls: usize) -> Result<Part> {
        let each = |count: Option<u64>| Some(count? as f64 / calls as f64);
        let uncounted = "this machine does not count instructions";
        let user = each(counts.user_instructions).context(uncounted)?;
        Ok(Part { user, kernel: each(counts.kernel_instructions).context(uncounted)? })
    }

    pub fn less(self, other: Part) -> Part {
        Part { user: self.user - other.user, kernel: self.kernel - other.kernel }
    }

    fn row(self, name: &str, cell: &Cell) -> Row {
        Row {
            bench: "profile".into(),
            peer: FARCALL.into(),
            transport: Some("udp".into()),
            mode: Some(cell.setup.mode),
            bytes: Some(cell.setup.bytes),
            pin: Some(cell.pin.to_string()),
            part: Some(name.into()),
            user_instructions: Some(self.user.round()),
            kernel_instructions: Some(self.kernel.round()),
            ..Row::default()
        }
    }
}

fn parts(raw: Part, call: Part) -> Result<Vec<(&'static str, Part)>> {
    let user = |part: Part| Part { kernel: 0.0, ..part };
    let kernel = |part: Part| Part { user: 0.0, ..part };
    let path = kernel(path()?);
    let parts = [
        ("network path in the kernel", path),
        ("wake-up and scheduling", kernel(raw).less(path)),
        ("system calls of a bare ping-pong", user(raw)),
        ("encode arguments and result", user(encode()?)),
        ("decode arguments and result", user(decode()?)),
        ("protocol, both ends", user(protocol()?)),
        ("dispatch to the procedure", user(dispatch()?)),
    ];
    let sum = |sum: Part, part: &(_, Part)| Part {
        user: sum.user + part.1.user,
        kernel: sum.kernel + part.1.kernel,
    };
    let known = parts.iter().fold(Part::default(), sum);
    let mut parts = Vec::from(parts);
    parts.push(("driver: waiting, locks, clock, binding", call.less(known)));
    parts.push(("the whole call", call));
    Ok(parts)
}

/// Returns the instructions of one `turn` in this thread.
fn count(mut turn: impl FnMut()) -> Result<Part> {
    const TURNS: usize = 20_000;
    (0..1_000).for_each(|_| turn());
    let mut counters = Counters::open(What::Instructions, true);
    counters.start();
    (0..TURNS).for_each(|_| turn());
    Part::new(counters.stop(), TURNS)
}

/// Sends two datagrams to a socket that receives them at once: no thread sleeps, and none is woken.
fn path() -> Result<Part> {
    let [a, b] = [UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?];
    let to = b.local_addr()?;
    a.connect(to)?;
    let back = a.local_addr()?;
    let mut buffer = [0; BYTES];
    let mut failed = None;
    let part = count(|| {
        let mut turn = || {
            a.send(&buffer)?;
            b.recv_from(&mut buffer)?;
            b.send_to(&buffer, back)?;
            a.recv(&mut buffer)
        };
        failed = turn().err().or(failed.take());
    })?;
    failed.map_or(Ok(part), |why| Err(why.into()))
}

fn encode() -> Result<Part> {
    let (data, mut out) = ([7u8; BYTES], Vec::new());
    count(|| {
        for _ in 0..2 {
            out.clear();
            let _ = black_box(&data[..]).encode(&mut Encoder::new(&mut out));
        }
        black_box(&out);
    })
}

fn decode() -> Result<Part> {
    let mut arguments = Vec::new();
    [7u8; BYTES][..].encode(&mut Encoder::new(&mut arguments))?;
    count(|| {
        drop(black_box(<&[u8]>::decode(&mut Decoder::new(black_box(&arguments)))));
        drop(black_box(<[u8; BYTES]>::decode(&mut Decoder::new(black_box(&[7u8; BYTES])))));
    })
}

/// Returns the cost of a server-stub and the procedure, without the decoding and encoding in it.
fn dispatch() -> Result<Part> {
    let mut arguments = Vec::new();
    [7u8; BYTES][..].encode(&mut Encoder::new(&mut arguments))?;
    let (server, mut reply): (Box<dyn Echo>, _) = (Box::new(EchoServer::default()), Vec::new());
    let echo = <dyn Echo as Interface>::PROCEDURES.iter().find(|procedure| procedure.name == "echo");
    let number = echo.context("the interface has no procedure `echo`")?.number;
    let whole = count(|| {
        reply.clear();
        let (mut decoder, mut encoder) = (Decoder::new(&arguments), Encoder::new(&mut reply));
        drop(black_box(server.dispatch(black_box(number), &mut decoder, &mut encoder)));
    })?;
    let half = |part: Part| Part { user: part.user / 2.0, ..part };
    Ok(whole.less(half(encode()?)).less(half(decode()?)))
}

/// Runs both ends of the protocol in one thread, as on one machine.
fn protocol() -> Result<Part> {
    let from: SocketAddr = "127.0.0.1:9".parse()?;
    let config = ClientConfig { loopback: true, ..ClientConfig::default() };
    let mut client = Conversation::new(config, 1);
    let mut server = Server::new(ServerConfig::default(), Time::default(), [1; 32]);
    server.export(Export { id: 1, type_name: "Echo".into(), instance: "one".into(), procedures: vec![] });
    let call = Call { export: 1, procedure: 1, deadline: None, trace: None, token: 0 };
    let (mut out, mut back) = (vec![0; 65_536], vec![0; 65_536]);
    let (mut turns, mut ended, mut arguments, mut payload) = (0, 0, Vec::new(), Vec::new());
    let part = count(|| {
        turns += 1;
        let now = Time::from_nanos(turns * 1_000);
        arguments.extend_from_slice(&[7; BYTES + 4]);
        let _ = client.start(|| now, &call, &mut arguments);
        while let Some(length) = client.transmit(now, &mut out) {
            let mut key = None;
            server.receive(now, from, &out[..length], &mut |request| {
                if let Request::Call(call) = request {
                    payload.extend_from_slice(&call.args[..BYTES]);
                    key = Some(call.key);
                }
            });
            let sent = match key {
                Some(key) => server.finish(now, key, Finish::Result, &mut payload, &mut back),
                None => server.transmit(now, &mut back),
            };
            if let Some(sent) = sent {
                client.receive(now, &back[..sent.len], &mut |event: Event<'_>| {
                    ended += u64::from(is_end(&event))
                });
            }
        }
    })?;
    anyhow::ensure!(ended == turns, "{ended} of {turns} calls ended");
    Ok(part)
}

fn is_end(event: &Event<'_>) -> bool {
    matches!(event, Event::Ended { .. })
}
