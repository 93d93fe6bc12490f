//! The fuzz target for an ONC RPC server, which gets any messages, each in a record of a stream.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use farcall::xdr::Limits;
use farcall_onc::rpcbind::Mapper;
use farcall_onc::server::{Dispatcher, Retention, Server, Transport, say_nothing};
use farcall_onc::wire::message::{Answer, Call, Reply};
use farcall_onc::wire::record::{self, Records};

/// The program that the messages call.
#[farcall::interface(program = 0x2000_0077, version = 2)]
pub trait Served {
    /// Returns how often procedures that count their runs have run.
    #[procedure(1)]
    fn count(&self) -> farcall::Result<u32>;
    /// Returns its argument.
    #[procedure(2)]
    #[idempotent]
    fn echo(&self, data: &[u8]) -> farcall::Result<Vec<u8>>;
    /// Returns the length of the text in bytes.
    #[procedure(3)]
    fn text(&self, text: String) -> farcall::Result<u32>;
    /// Returns the number of nodes of the left subtree.
    #[procedure(4)]
    fn tree(&self, tree: Option<Box<Tree>>) -> farcall::Result<u32>;
    /// Returns for each shape whether it is a point.
    #[procedure(5)]
    fn shape(&self, shapes: Vec<Shape>) -> farcall::Result<Vec<bool>>;
    /// Suppresses its reply.
    #[procedure(6)]
    fn silent(&self, number: u64) -> farcall::Result<()>;
    /// Sends no reply if it succeeds.
    #[procedure(7)]
    fn one_way(&self, data: Vec<u8>) -> farcall::Result<()>;
    /// Returns a description of the caller.
    #[procedure(8)]
    fn who(&self) -> farcall::Result<String>;
}

/// A binary tree.
#[derive(Debug, farcall::Xdr)]
pub struct Tree {
    value: u32,
    left: Option<Box<Tree>>,
    right: Option<Box<Tree>>,
}

/// A union.
#[derive(Debug, farcall::Xdr)]
pub enum Shape {
    /// An arm without a value.
    Point,
    /// An arm with a number.
    Circle(u32),
    /// An arm with further unions.
    Several(Vec<Shape>),
}

#[derive(Default)]
struct Program {
    runs: AtomicU32,
}

impl Served for Program {
    fn count(&self) -> farcall::Result<u32> {
        Ok(self.runs.fetch_add(1, Ordering::Relaxed))
    }

    fn echo(&self, data: &[u8]) -> farcall::Result<Vec<u8>> {
        Ok(data.to_vec())
    }

    fn text(&self, text: String) -> farcall::Result<u32> {
        Ok(text.len() as u32)
    }

    fn tree(&self, tree: Option<Box<Tree>>) -> farcall::Result<u32> {
        fn nodes(tree: &Option<Box<Tree>>) -> u32 {
            tree.as_ref().map_or(0, |tree| 1 + nodes(&tree.left) + nodes(&tree.right))
        }
        Ok(tree.as_ref().map_or(0, |tree| nodes(&tree.left)))
    }

    fn shape(&self, shapes: Vec<Shape>) -> farcall::Result<Vec<bool>> {
        Ok(shapes.iter().map(|shape| matches!(shape, Shape::Point)).collect())
    }

    fn silent(&self, _: u64) -> farcall::Result<()> {
        self.runs.fetch_add(1, Ordering::Relaxed);
        say_nothing();
        Ok(())
    }

    fn one_way(&self, _: Vec<u8>) -> farcall::Result<()> {
        self.runs.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn who(&self) -> farcall::Result<String> {
        Ok(format!("{:?}", farcall_onc::server::caller()))
    }
}

/// Serves the messages of a stream. The input is a byte of settings, a byte that is the length of each read,
/// and the bytes of the stream. A reply must have its call's identifier, a message that is no call must have
/// no reply, and a call that arrives twice must run once and get the same reply twice.
pub fn onc_server(data: &[u8]) {
    let Some(([settings, step], stream)) = data.split_first_chunk() else { return };
    let program = Arc::new(Program::default());
    let dispatcher = server(*settings, &program);
    let transport = [Transport::Tcp, Transport::Udp, Transport::Unix][usize::from(settings >> 4) % 3];
    let mut records =
        Records::new(record::Limits { record: 1 << 16, fragments: 64, ..record::Limits::default() });
    for part in stream.chunks(usize::from(*step).max(1)) {
        records.space()[..part.len()].copy_from_slice(part);
        records.filled(part.len());
        while let Ok(Some(message)) = records.next() {
            answered(&dispatcher, &program, transport, &message);
        }
    }
}

fn server(settings: u8, program: &Arc<Program>) -> Dispatcher {
    let mut builder =
        Server::builder().program_one_way::<dyn Served>(program.clone(), &[7]).mapper(&Mapper::default());
    // These limits are low, so that the target's bound of memory can be low too.
    builder = builder.retention(Some(Retention { bytes: 64 << 10, ..Retention::default() }));
    builder = builder.arguments(Limits { bytes: 64 << 10, ..Limits::default() });
    if settings & 1 != 0 {
        builder = builder.lenient();
    }
    if settings & 2 != 0 {
        builder = builder.short_credentials(4);
    }
    builder.dispatcher()
}

/// Passes a message to the server twice, and checks the replies.
fn answered(dispatcher: &Dispatcher, program: &Program, transport: Transport, message: &[u8]) {
    let from: Option<SocketAddr> = (transport != Transport::Unix).then(|| ([127, 0, 0, 1], 700).into());
    let mut first = Vec::new();
    if dispatcher.answer(transport, from, message, &mut first) {
        let reply = Reply::parse(&first).expect("what a server sends is a reply");
        assert!(message.starts_with(&reply.xid.to_be_bytes()));
        if let Answer::Accepted { .. } = reply.answer {
            assert!(Call::parse(message).is_ok());
        }
    }
    let Ok((call, _)) = Call::parse(message) else { return };
    if from.is_none() || (call.program, call.version) != (0x2000_0077, 2) {
        return;
    }
    let (runs, mut second) = (program.runs.load(Ordering::Relaxed), Vec::new());
    dispatcher.answer(transport, from, message, &mut second);
    assert_eq!(first, second);
    assert_eq!(program.runs.load(Ordering::Relaxed), runs);
}
