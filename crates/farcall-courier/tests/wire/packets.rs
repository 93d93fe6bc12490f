//! Packets over a stream of bytes.

use farcall_courier::wire::message::Versions;
use farcall_courier::wire::packet::{
    BadPacket, Datastream, HEADER_BYTES, MAX_DATA_BYTES, PacketReader, PacketWriter, Received,
};

/// What a reader found, with its bytes.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    Versions(Versions),
    Message(Vec<u8>),
    Bulk(Vec<u8>, bool),
    Attention(u8),
    End,
}

impl From<Received<'_>> for Found {
    fn from(received: Received<'_>) -> Found {
        match received {
            Received::Versions(versions) => Found::Versions(versions),
            Received::Message(bytes) => Found::Message(bytes.to_vec()),
            Received::Bulk(bytes, ends) => Found::Bulk(bytes.to_vec(), ends),
            Received::Attention(byte) => Found::Attention(byte),
            Received::End => Found::End,
        }
    }
}

/// Passes bytes to a reader, so many at a time, and returns what it finds.
fn read(bytes: &[u8], step: usize, most: usize) -> Result<Vec<Found>, BadPacket> {
    let mut reader = PacketReader::new(most);
    let mut found = Vec::new();
    for part in bytes.chunks(step) {
        let mut part = part;
        while !part.is_empty() {
            let space = reader.space();
            let count = space.len().min(part.len());
            space[..count].copy_from_slice(&part[..count]);
            reader.filled(count);
            part = &part[count..];
            while reader.advance()? {
                found.extend(reader.received().map(Found::from));
            }
        }
    }
    Ok(found)
}

fn message(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at % 251) as u8).collect()
}

#[test]
fn messages_of_any_length_come_as_they_were_sent() {
    for length in [1, 2, 533, 534, 535, 1068, 1069, 4000, 70_000] {
        let mut out = Vec::new();
        let mut writer = PacketWriter::default();
        writer.write(Datastream::Messages, &Versions::ALL.to_bytes(), false, &mut out);
        writer.write(Datastream::Messages, &message(length), true, &mut out);
        writer.write(Datastream::Messages, &message(length), true, &mut out);
        let packets = 1 + 2 * length.div_ceil(MAX_DATA_BYTES);
        assert_eq!(out.len(), 4 + 2 * length + packets * (2 + HEADER_BYTES));
        let expected = [
            Found::Versions(Versions::ALL),
            Found::Message(message(length)),
            Found::Message(message(length)),
        ];
        for step in [1, 7, 1000, 1 << 20] {
            assert_eq!(read(&out, step, 70_000).unwrap(), expected, "{length} bytes, {step} at a time");
        }
    }
}

#[test]
fn versions_may_share_a_packet_with_the_first_message_or_end_their_own() {
    for (first, ends) in [(5, true), (0, true), (3, false)] {
        let mut out = Vec::new();
        let mut writer = PacketWriter::default();
        let shared = [&Versions::THREE.to_bytes()[..], &message(first)].concat();
        writer.write(Datastream::Messages, &shared, ends, &mut out);
        writer.write(Datastream::Messages, &[9, 9], true, &mut out);
        let mut expected = vec![Found::Versions(Versions::THREE)];
        match (first, ends) {
            (0, _) => expected.push(Found::Message(vec![9, 9])),
            (_, true) => expected.extend([Found::Message(message(first)), Found::Message(vec![9, 9])]),
            _ => expected.push(Found::Message([&message(first)[..], &[9, 9]].concat())),
        }
        for step in [1, 3, 1000] {
            assert_eq!(read(&out, step, 100).unwrap(), expected);
        }
    }
}

#[test]
fn versions_that_come_in_several_packets_are_put_together() {
    let mut out = Vec::new();
    let mut writer = PacketWriter::default();
    writer.write(Datastream::Messages, &[0, 2, 0], false, &mut out);
    writer.write(Datastream::Messages, &[3, 7, 7], true, &mut out);
    assert_eq!(read(&out, 5, 100).unwrap(), [Found::Versions(Versions::ALL), Found::Message(vec![7, 7])]);
}

#[test]
fn bulk_data_attention_and_the_end_are_told_apart() {
    let mut out = Vec::new();
    let mut writer = PacketWriter::default();
    writer.write(Datastream::Messages, &Versions::THREE.to_bytes(), false, &mut out);
    writer.write(Datastream::Bulk, &message(600), true, &mut out);
    writer.attention(Datastream::Bulk, 1, &mut out);
    // A packet of SPP itself: its data is not for the user.
    out.extend([0, 14, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 9]);
    writer.write(Datastream::End, &[], true, &mut out);
    assert_eq!(
        read(&out, 1000, 100).unwrap(),
        [
            Found::Versions(Versions::THREE),
            Found::Bulk(message(600)[..534].to_vec(), false),
            Found::Bulk(message(600)[534..].to_vec(), true),
            Found::Attention(1),
            Found::End,
        ]
    );
}

#[test]
fn a_packet_has_the_header_of_spp_and_a_length_before_it() {
    let mut out = Vec::new();
    let mut writer = PacketWriter::default();
    writer.write(Datastream::Messages, &[1, 2], true, &mut out);
    writer.write(Datastream::Bulk, &[3], false, &mut out);
    assert_eq!(out[..16], [0, 14, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2]);
    assert_eq!(out[16..], [0, 13, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 3]);
}

#[test]
fn bytes_that_are_no_packets_are_refused() {
    let packet = |length: u16, datastream| {
        let mut bytes = length.to_be_bytes().to_vec();
        bytes.extend([0x10, datastream]);
        bytes.resize(600, 0);
        bytes
    };
    for length in [0, 11, 547, 65_535] {
        assert_eq!(read(&packet(length, 0), 100, 100), Err(BadPacket::Length(length.into())));
    }
    assert_eq!(read(&packet(14, 7), 100, 100), Err(BadPacket::Datastream(7)));
    assert_eq!(read(&packet(14, 1), 100, 100), Err(BadPacket::NoVersions));
    let mut long = Vec::new();
    PacketWriter::default().write(Datastream::Messages, &message(105), true, &mut long);
    assert_eq!(read(&long, 100, 104), Err(BadPacket::TooLong(104)));
}

#[test]
fn a_reader_says_whether_it_is_within_a_message() {
    let mut out = Vec::new();
    let mut writer = PacketWriter::default();
    writer.write(Datastream::Messages, &[0, 3, 0, 3, 1], false, &mut out);
    writer.write(Datastream::Messages, &[2], true, &mut out);
    let mut reader = PacketReader::new(100);
    assert!(!reader.is_partial());
    for (at, byte) in out.iter().enumerate() {
        reader.space()[0] = *byte;
        reader.filled(1);
        while reader.advance().unwrap() {}
        let last = at + 1 == out.len();
        assert_eq!(reader.is_partial(), !last, "after {} bytes", at + 1);
    }
}
