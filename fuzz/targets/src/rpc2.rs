//! The fuzz targets for RPC2: packets to a server, and packed values.

use std::sync::{Arc, LazyLock};

use farcall::idl::Interface;
use farcall_rpc2::Server;
use farcall_rpc2::codec::{Layout, Part};
use farcall_rpc2::packet::{self, Header};

/// A value of each kind that RPC2 has.
#[derive(Clone, Debug, PartialEq, farcall::Xdr)]
pub struct Everything {
    number: u32,
    small: u8,
    heavy: f64,
    text: String,
    bytes: Vec<u8>,
    key: [u8; 5],
    pairs: Vec<Pair>,
}

/// A struct in a list.
#[derive(Clone, Debug, PartialEq, farcall::Xdr)]
pub struct Pair {
    left: i32,
    right: String,
}

/// A subsystem, whose procedures give back what they get.
#[farcall::interface]
pub trait Mirror {
    /// Gives the value back.
    fn all(&self, value: &Everything) -> farcall::Result<Everything>;
    /// Gives the list back.
    fn list(&self, pairs: &[Pair], last: u32) -> farcall::Result<Vec<Pair>>;
}

struct Here;

impl Mirror for Here {
    fn all(&self, value: &Everything) -> farcall::Result<Everything> {
        Ok(value.clone())
    }

    fn list(&self, pairs: &[Pair], _: u32) -> farcall::Result<Vec<Pair>> {
        Ok(pairs.to_vec())
    }
}

/// The subsystem's number.
const SUBSYSTEM: u32 = 7;

static LAYOUT: LazyLock<Layout> = LazyLock::new(|| {
    let interface: &Interface = <dyn Mirror as farcall::stub::Interface>::interface();
    Layout::new(interface).expect("RPC2 can say it")
});

/// Unpacks the arguments of a procedure, which the first byte selects. What can be unpacked is packed again:
/// it is unpacked to the same value, and its padding is 0.
pub fn rpc2_packed(data: &[u8]) {
    let Some((first, packed)) = data.split_first() else { return };
    let Some(procedure) = LAYOUT.procedure(u32::from(first % 2) + 1) else { return };
    let (mut xdr, mut again, mut second) = (Vec::new(), Vec::new(), Vec::new());
    if LAYOUT.unpack(procedure, Part::Arguments, packed, &mut xdr).is_err() {
        assert!(xdr.is_empty());
        return;
    }
    LAYOUT.pack(procedure, Part::Arguments, &xdr, &mut again).expect("it was unpacked");
    LAYOUT.unpack(procedure, Part::Arguments, &again, &mut second).expect("it was packed");
    assert_eq!((again.len(), &second), (packed.len().next_multiple_of(4), &xdr));
}

/// Sends packets to a server: each as it is, and after a bind with the connection's handles in it. A server
/// sends at most one packet for each, and none that another server would answer.
pub fn rpc2_packets(data: &[u8]) {
    let mut packets: Vec<Vec<u8>> = Vec::new();
    let mut rest = data;
    while let Some((length, after)) = rest.split_first_chunk::<2>() {
        let length = usize::from(u16::from_be_bytes(*length)).min(after.len());
        packets.push(after[..length].to_vec());
        rest = &after[length..];
    }
    let packets: Vec<&[u8]> = packets.iter().map(Vec::as_slice).collect();
    let server = || Server::builder().subsystem::<dyn Mirror>(SUBSYSTEM, Arc::new(Here)).connections(4);
    let from = std::net::SocketAddr::from(([127, 0, 0, 1], 9));
    let sent = server().answer(&packets, from);
    assert!(sent.len() <= packets.len());
    let answers: Vec<&[u8]> = sent.iter().map(Vec::as_slice).collect();
    for answer in server().answer(&answers, from) {
        let (header, _) = Header::parse(&answer).expect("a packet");
        assert_eq!(header.opcode, packet::NAK);
    }
}
