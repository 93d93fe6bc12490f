//! The fuzz targets for Courier: packets with messages, as a server or a client receives them, and the words
//! of values.

use std::sync::OnceLock;

use farcall_courier::codec::{Booleans, Layout, Limits, Values};
use farcall_courier::wire::message::{Courier, Message};
use farcall_courier::wire::packet::{PacketReader, Received};
use farcall_courier::wire::reply::Reply;
use farcall_idl::Interface;

/// A value with one of everything that Courier can say.
#[derive(Debug, farcall::Xdr)]
#[allow(dead_code)]
pub struct Everything {
    flags: Vec<bool>,
    numbers: (u16, i16, u32, i32),
    words: Vec<i16>,
    long: Vec<u32>,
    text: Vec<String>,
    #[xdr(max = 3)]
    short: Vec<[u16; 2]>,
    empty: Vec<()>,
    tree: Tree,
}

/// A choice that contains itself.
#[derive(Debug, farcall::Xdr)]
#[allow(dead_code)]
pub enum Tree {
    /// Without a value.
    #[xdr(tag = 0)]
    Leaf,
    /// With others.
    #[xdr(tag = 7)]
    Node(Vec<Tree>),
    /// With one other.
    #[xdr(tag = 300)]
    Next(Box<Tree>),
}

/// Returns the layouts of an interface with one procedure, number 1, for each encoding of BOOLEAN.
fn layouts() -> &'static [Layout; 2] {
    static LAYOUTS: OnceLock<[Layout; 2]> = OnceLock::new();
    LAYOUTS.get_or_init(|| {
        let mut interface = Interface::new("Fuzzed");
        interface.procedure(1, "call").argument::<Everything>("a").result::<Tree>().exception::<Tree>();
        [Booleans::Words, Booleans::HighBytes]
            .map(|booleans| Layout::with(&interface, booleans).expect("Courier can say the interface"))
    })
}

/// Receives packets of a stream. The input is a byte, the length of each read, and the bytes of the stream.
/// The messages have no more bytes than the stream, and a message that was parsed is written and parsed again
/// as the same message.
pub fn courier_stream(data: &[u8]) {
    let Some((step, stream)) = data.split_first() else { return };
    let (mut reader, mut taken) = (PacketReader::new(1 << 16), 0);
    for part in stream.chunks(usize::from(*step).max(1)) {
        reader.space()[..part.len()].copy_from_slice(part);
        reader.filled(part.len());
        loop {
            match reader.advance() {
                Ok(true) => {}
                Ok(false) => break,
                Err(why) => return assert!(!why.to_string().is_empty()),
            }
            match reader.received() {
                Some(Received::Message(bytes)) => {
                    taken += bytes.len();
                    message(bytes);
                }
                Some(Received::Bulk(bytes, _)) => taken += bytes.len(),
                received => assert!(received.is_some()),
            }
        }
    }
    assert!(taken <= stream.len());
}

/// Parses a message in both versions of Courier, and as a reply.
fn message(bytes: &[u8]) {
    for courier in [Courier::Two, Courier::Three] {
        match Message::parse(bytes, courier) {
            Ok(parsed) => {
                let mut again = Vec::new();
                parsed.write(courier, &mut again);
                assert_eq!(Message::parse(&again, courier), Ok(parsed));
                if let Message::Call(call) = parsed {
                    words(&layouts()[0], arguments(0), call.arguments);
                }
            }
            Err(why) => assert!(!why.to_string().is_empty()),
        }
        if let Err(why) = Reply::parse(bytes, courier, 0x100, Some(0xff)) {
            assert!(!why.to_string().is_empty());
        }
    }
}

fn arguments(layout: usize) -> Values {
    layouts()[layout].procedure(1).expect("it is declared").arguments()
}

/// Transcodes words. The input is a byte, which value is meant and how booleans are encoded, and the words.
/// Words that are a value become XDR bytes, which become words of the same value.
pub fn courier_words(data: &[u8]) {
    let Some((settings, bytes)) = data.split_first() else { return };
    let layout = &layouts()[usize::from(settings & 1)];
    let procedure = layout.procedure(1).expect("it is declared");
    let values = match settings >> 1 & 3 {
        0 => procedure.result(),
        1 => procedure.errors().expect("they are declared"),
        _ => procedure.arguments(),
    };
    words(layout, values, bytes);
    let mut out = Vec::new();
    match layout.to_words(values, bytes, &mut out, Limits::default()) {
        Ok(()) => assert!(out.len() <= bytes.len()),
        Err(why) => assert!(!why.to_string().is_empty() && out.is_empty()),
    }
}

fn words(layout: &Layout, values: Values, words: &[u8]) {
    let (mut xdr, mut again, mut twice) = (Vec::new(), Vec::new(), Vec::new());
    let limits = Limits::default();
    if let Err(why) = layout.to_xdr(values, words, &mut xdr, limits) {
        return assert!(!why.to_string().is_empty() && xdr.is_empty());
    }
    assert!(xdr.len() <= 2 * words.len());
    layout.to_words(values, &xdr, &mut again, limits).expect("it is a value");
    assert_eq!(again.len(), words.len());
    layout.to_xdr(values, &again, &mut twice, limits).expect("it is a value");
    assert_eq!(xdr, twice);
}
