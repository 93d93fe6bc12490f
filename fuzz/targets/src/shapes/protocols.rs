//! Shapes of what Courier and RPC2 receive: streams, packets and values.

use farcall_courier::wire::message::{Call, Courier, Message, Versions};
use farcall_courier::wire::packet::{Datastream, PacketWriter};
use farcall_rpc2::packet::{self, Header};

use super::Shape;

pub(super) const SHAPES: &[Shape] = &[
    // The first byte says how many bytes are received at once.
    Shape {
        target: "courier_stream",
        name: "messages",
        make: |n| stream(200, n, 1, Datastream::Messages, 20),
    },
    Shape {
        target: "courier_stream",
        name: "messages byte by byte",
        make: |n| stream(1, n, 1, Datastream::Messages, 20),
    },
    Shape {
        target: "courier_stream",
        name: "packets of a message",
        make: |n| stream(200, 1, n, Datastream::Messages, 40),
    },
    Shape {
        target: "courier_stream",
        name: "empty packets",
        make: |n| stream(200, 1, n, Datastream::Messages, 0),
    },
    Shape { target: "courier_stream", name: "bulk data", make: |n| stream(200, n, 1, Datastream::Bulk, 500) },
    // The first byte says which value it is.
    Shape {
        target: "courier_words",
        name: "a sequence of choices",
        make: |n| [&[0, 0, 7][..], &word(n), &[0; 2].repeat(n)].concat(),
    },
    Shape {
        target: "courier_words",
        name: "choices in one another",
        make: |n| [&[0][..], &[1, 44].repeat(n), &[0, 0]].concat(),
    },
    Shape {
        target: "courier_words",
        name: "sequences in a sequence",
        make: |n| [&[0, 0, 7][..], &word(n), &[0, 7, 0, 2, 0, 0, 0, 0].repeat(n)].concat(),
    },
    Shape {
        target: "courier_words",
        name: "booleans",
        make: |n| everything([&word(8 * n), &[0, 1].repeat(8 * n)[..]].concat(), Vec::new()),
    },
    Shape {
        target: "courier_words",
        name: "booleans that are none",
        make: |n| everything([&word(8 * n), &[0, 1].repeat(8 * n - 1)[..], &[0, 2]].concat(), Vec::new()),
    },
    Shape {
        target: "courier_words",
        name: "strings",
        make: |n| everything(vec![0; 2], [&word(n), &[0, 3, b'a', b'b', b'c', 0].repeat(n)[..]].concat()),
    },
    Shape {
        target: "courier_words",
        name: "one string",
        make: |n| everything(vec![0; 2], [&[0, 1], &word(32 * n)[..], &b"x".repeat(32 * n)].concat()),
    },
    // The first byte says which procedure it is.
    Shape { target: "rpc2_packed", name: "elements", make: |n| list(n, b"ab\0\0") },
    Shape {
        target: "rpc2_packed",
        name: "elements with long strings",
        make: |n| list(n, &[&[b'x'; 127][..], b"\0"].concat()),
    },
    Shape {
        target: "rpc2_packed",
        name: "too many elements",
        make: |n| [&[1][..], &(8 * n as u32).to_be_bytes(), &[0; 4].repeat(8 * n)].concat(),
    },
    Shape {
        target: "rpc2_packed",
        name: "bytes",
        make: |n| {
            let bytes = 4 * n as u32;
            let head = [&[0; 4], &[7, 0, 0, 0], &[0; 8][..], &[0; 4], &[0; 4]].concat();
            [&[0][..], &head, &bytes.to_be_bytes(), &vec![9; 4 * n], &[1; 8], &[0; 4]].concat()
        },
    },
    Shape { target: "rpc2_packets", name: "binds", make: |n| packets(n, |at| bind(at as u32)) },
    Shape { target: "rpc2_packets", name: "one bind again and again", make: |n| packets(n, |_| bind(7)) },
    Shape {
        target: "rpc2_packets",
        name: "requests without a connection",
        make: |n| packets(n, |at| request(at as u32 + 9)),
    },
];

fn word(number: usize) -> [u8; 2] {
    (number as u16).to_be_bytes()
}

/// Makes a stream of `messages`, each of so many packets with so many bytes.
fn stream(step: u8, messages: usize, packets: usize, of: Datastream, bytes: usize) -> Vec<u8> {
    let (mut writer, mut stream) = (PacketWriter::default(), vec![step]);
    writer.write(Datastream::Messages, &Versions::THREE.to_bytes(), false, &mut stream);
    let mut message = Vec::new();
    let arguments = vec![0; bytes];
    let call = Call { id: 1, program: 754, version: 1, procedure: 1, arguments: &arguments };
    Message::Call(call).write(Courier::Three, &mut message);
    for _ in 0..messages {
        for number in 0..packets {
            let data = if number == 0 && bytes > 0 { &message[..] } else { &arguments[..] };
            writer.write(of, data, number + 1 == packets, &mut stream);
        }
    }
    stream
}

/// Makes the arguments that the first byte selects, with these booleans and these strings.
fn everything(booleans: Vec<u8>, strings: Vec<u8>) -> Vec<u8> {
    let strings = if strings.is_empty() { vec![0; 2] } else { strings };
    // Numbers, two empty sequences, strings, two empty sequences, and a leaf.
    [
        vec![4],
        booleans,
        vec![0; 2 + 2 + 4 + 4],
        vec![0; 2],
        vec![0; 2],
        strings,
        vec![0; 2],
        vec![0; 2],
        vec![0; 2],
    ]
    .concat()
}

/// Makes the packed arguments of a list of pairs, each with these bytes of a string.
fn list(n: usize, text: &[u8]) -> Vec<u8> {
    let length = text.iter().position(|byte| *byte == 0).unwrap_or(0) as u32;
    let pair = [&[0, 0, 0, 9], &length.to_be_bytes(), text].concat();
    [&[1][..], &(n as u32).to_be_bytes(), &pair.repeat(n), &[0; 4]].concat()
}

/// Puts the length of each packet in front of it.
fn packets(n: usize, packet: impl Fn(usize) -> Vec<u8>) -> Vec<u8> {
    let with_length = |packet: Vec<u8>| [&word(packet.len()), &packet[..]].concat();
    (0..n).flat_map(|at| with_length(packet(at))).collect()
}

fn bind(uniquefier: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    let header = Header {
        local: uniquefier,
        opcode: packet::INIT1_OPEN,
        subsystem: 7,
        uniquefier,
        ..Header::default()
    };
    header.write(&packet::bind_body(b"me"), &mut bytes);
    bytes
}

fn request(remote: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    Header { remote, local: 7, opcode: 1, ..Header::default() }.write(&[0; 64], &mut bytes);
    bytes
}
