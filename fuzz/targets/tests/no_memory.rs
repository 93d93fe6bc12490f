//! What a user or a peer chooses the size of fails with an error where this process has no memory for it. An
//! allocation that cannot fail would abort this test's process.

#[path = "bounded/allocator.rs"]
mod allocator;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use allocator::refusing;
use farcall::memory::{Rights, Ring, Settings};
use farcall::{CallFailed, Error, Kind, Ran, Runtime, names};
use farcall_courier::codec::{self as courier, Layout, Limits};
use farcall_courier::wire::packet::{BadPacket, Datastream, PacketReader, PacketWriter};
use farcall_idl::Interface;
use farcall_onc::wire::record::{self, RecordError, Records};
use farcall_rpc2::codec as rpc2;
use farcall_xdr::{Chain, Decode, Decoder, Encode, Encoder, ErrorKind, to_vec};

#[global_allocator]
static ALLOCATOR: allocator::Counting = allocator::Counting;

/// The largest allocation that a test grants.
const LARGEST: usize = 1 << 20;

/// As many numbers as need more memory than is granted.
const MANY: u32 = 300_000;

/// Encodes numbers one by one, as a struct or a list of structs does.
struct OneByOne;

impl Encode for OneByOne {
    fn encode(&self, e: &mut Encoder<'_>) -> Result<(), farcall_xdr::Error> {
        (0..MANY).try_for_each(|number| e.u32(number))
    }
}

#[test]
fn a_value_that_is_encoded_in_small_parts_is_an_error() {
    let mut out = Vec::new();
    let why = refusing(LARGEST, || OneByOne.encode(&mut Encoder::new(&mut out))).unwrap_err();
    assert!(matches!(why.kind(), ErrorKind::NoMemory(4)), "{why}");
    assert_eq!(out.len(), LARGEST, "what had room is there");
    let words: Vec<String> = (0..MANY).map(|_| "ab".to_owned()).collect();
    let why = refusing(LARGEST, || words.encode(&mut Encoder::new(&mut Vec::new()))).unwrap_err();
    assert!(matches!(why.kind(), ErrorKind::NoMemory(_)), "{why}");
}

#[test]
fn a_table_that_is_decoded_is_an_error() {
    let pairs: Vec<(u32, u32)> = (0..MANY).map(|number| (number, number)).collect();
    let numbers: Vec<u32> = (0..MANY).collect();
    let (pairs, numbers) = (to_vec(&pairs).unwrap(), to_vec(&numbers).unwrap());
    let map = refusing(LARGEST, || HashMap::<u32, u32>::decode(&mut Decoder::new(&pairs)).map(drop));
    let set = refusing(LARGEST, || HashSet::<u32>::decode(&mut Decoder::new(&numbers)).map(drop));
    let list = refusing(LARGEST, || Vec::<u32>::decode(&mut Decoder::new(&numbers)).map(drop));
    let chain = to_vec(&(0..MANY).collect::<Chain<u32>>()).unwrap();
    let chain = refusing(LARGEST, || Chain::<u32>::decode(&mut Decoder::new(&chain)).map(drop));
    for why in [map, set, list, chain].map(Result::unwrap_err) {
        assert!(matches!(why.kind(), ErrorKind::NoMemory(_)), "{why}");
    }
}

/// Returns an interface with a procedure that takes and returns lists.
fn interface() -> Interface {
    let mut interface = Interface::new("Lists");
    interface.procedure(1, "lists").argument::<Vec<Vec<u32>>>("lists").result::<Vec<Vec<u32>>>();
    interface
}

/// Returns the XDR bytes of its argument.
fn lists() -> Vec<u8> {
    to_vec(&vec![vec![7_u32; 60_000]; 5]).unwrap()
}

#[test]
fn a_value_of_courier_is_an_error() {
    let layout = Layout::new(&interface()).unwrap();
    let values = layout.procedure(1).unwrap().arguments();
    let (mut words, xdr) = (Vec::new(), lists());
    layout.to_words(values, &xdr, &mut words, Limits::default()).unwrap();
    let mut out = vec![9];
    let to_words = refusing(LARGEST, || layout.to_words(values, &xdr, &mut out, Limits::default()));
    let to_xdr = refusing(LARGEST, || layout.to_xdr(values, &words, &mut out, Limits::default()));
    for why in [to_words, to_xdr].map(Result::unwrap_err) {
        assert!(matches!(why.kind(), courier::ErrorKind::NoMemory(_)), "{why}");
    }
    assert_eq!(out, [9], "nothing was appended");
}

#[test]
fn a_message_of_courier_is_an_error() {
    let mut stream = Vec::new();
    PacketWriter::default().write(Datastream::Messages, &vec![0; 2 * LARGEST], true, &mut stream);
    let mut reader = PacketReader::new(4 * LARGEST);
    let why = refusing(LARGEST, || {
        for part in stream.chunks(500) {
            reader.space()[..part.len()].copy_from_slice(part);
            reader.filled(part.len());
            while reader.advance()? {}
        }
        Ok(())
    });
    assert!(matches!(why, Err(BadPacket::NoMemory(_))), "{why:?}");
}

#[test]
fn a_value_of_rpc2_is_an_error() {
    let mut interface = Interface::new("Bytes");
    interface.procedure(1, "bytes").argument::<Vec<u8>>("bytes");
    let layout = rpc2::Layout::new(&interface).unwrap();
    let procedure = layout.procedure(1).unwrap();
    let (bytes, mut packed, mut out) = (to_vec(&vec![7_u8; 2 * LARGEST]).unwrap(), Vec::new(), Vec::new());
    layout.pack(procedure, rpc2::Part::Arguments, &bytes, &mut packed).unwrap();
    let pack = refusing(LARGEST, || layout.pack(procedure, rpc2::Part::Arguments, &bytes, &mut out));
    let unpack = refusing(LARGEST, || layout.unpack(procedure, rpc2::Part::Arguments, &packed, &mut out));
    for why in [pack, unpack].map(Result::unwrap_err) {
        assert!(matches!(why.kind(), rpc2::ErrorKind::NoMemory(_)), "{why}");
    }
}

#[test]
fn a_record_of_onc_rpc_is_an_error() {
    let mark = (0x8000_0000 + 2 * LARGEST as u32).to_be_bytes();
    let stream = [&mark[..], &vec![0; 2 * LARGEST]].concat();
    let mut records = Records::new(record::Limits::default());
    let why = refusing(LARGEST, || {
        for part in stream.chunks(500) {
            records.space()[..part.len()].copy_from_slice(part);
            records.filled(part.len());
            records.next()?;
        }
        Ok(())
    });
    assert!(matches!(why, Err(RecordError::NoMemory(_))), "{why:?}");
}

#[test]
fn tokens_of_a_graph_are_an_error() {
    let text = format!("graph g\nplace p tokens {MANY}\n");
    let why = refusing(LARGEST, || farcall_olympus::text::parse("g.olympus", &text)).unwrap_err();
    assert!(why.to_string().contains("no memory for"), "{why}");
    let kind = "http://www.pnml.org/version-2009/grammar";
    let document = format!(
        "<pnml xmlns='{kind}/pnml'><net id='n' type='{kind}/ptnet'><page id='g'><place id='p'><initialMarking>\
         <text>{MANY}</text></initialMarking></place></page></net></pnml>"
    );
    let why = refusing(LARGEST, || farcall_olympus::pnml::read(document.as_bytes())).unwrap_err();
    assert!(why.to_string().contains("no memory for"), "{why}");
}

#[farcall::interface]
trait Length {
    fn length(&self, bytes: &[u8]) -> farcall::Result<u32>;
}

struct Server;

impl Length for Server {
    fn length(&self, bytes: &[u8]) -> farcall::Result<u32> {
        Ok(bytes.len() as u32)
    }
}

fn runtime() -> Runtime {
    Runtime::builder().registry(names::Memory::new()).build().unwrap()
}

#[test]
fn the_arguments_of_a_started_call_through_shared_memory_are_an_error() {
    let (server, client) = (runtime(), runtime());
    let export = server.export::<dyn Length>("Length", Arc::new(Server)).unwrap();
    let length = client.import::<dyn Length>(&export.url().replace("udp:", "shm:")).unwrap();
    assert_eq!(length.length(b"bound").unwrap(), 5);
    let bytes = vec![7; 6 * LARGEST];
    let why = refusing(LARGEST, || CallFailed::from(length.start().length(&bytes).wait().unwrap_err()));
    assert_eq!((why.kind(), why.ran()), (Kind::BadArguments, Ran::No), "{why}");
    assert!(why.to_string().contains("no memory for"), "{why}");
    assert_eq!(length.start().length(&bytes).wait().unwrap(), 6 << 20, "with memory it goes well");
}

#[test]
fn a_message_of_a_ring_is_an_error_and_stays_there() {
    let runtime = runtime();
    let ring = Ring::new(0, 2, 2 * LARGEST as u32);
    let settings = Settings::new(ring.size() as usize).anyone(Rights::ALL);
    let segment = runtime.export_segment("Ring", settings).unwrap();
    assert!(ring.producer(&segment).unwrap().put(&vec![7; 2 * LARGEST]).unwrap());
    let mut consumer = ring.consumer(&segment).unwrap();
    let mut message = Vec::new();
    let taken = refusing(LARGEST, || consumer.take(&mut message));
    let Err(Error::CallFailed(why)) = taken else { panic!("{taken:?}") };
    assert_eq!((why.kind(), why.ran()), (Kind::TooLarge, Ran::No), "{why}");
    assert!(consumer.take(&mut message).unwrap() && message == vec![7; 2 * LARGEST]);
}
