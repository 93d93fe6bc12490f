//! Tests of `dump`: captures of each format, and input that is not a capture.

use crate::common::Place;
use etherparse::PacketBuilder;

/// Returns the BIND of the published vectors: as a line of hex digits, and as bytes.
fn vector() -> (String, Vec<u8>) {
    let vectors = include_str!("../../../../docs/vectors/datagrams.txt");
    let line = vectors.lines().find(|line| line.starts_with("01")).unwrap();
    (line.to_owned(), farcall_proto::dump::from_hex(line).unwrap())
}

const SAID: &str = "BIND \"Store/one\"";

#[test]
fn lines_of_digits_are_datagrams() {
    let place = Place::new();
    let vectors = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/vectors/datagrams.txt");
    let said = place.run(&["dump", vectors]).ok();
    assert!(said.contains(SAID) && said.contains("RESULT 0.1"), "{said}");

    let (line, _) = vector();
    let json = place.run_with(&["--json", "dump", "-"], format!("# a comment\n\n{line}\n").as_bytes()).json();
    assert!(json[0]["frames"][0].as_str().unwrap().starts_with(SAID), "{json:?}");
}

#[test]
fn captures_are_taken_apart() {
    let place = Place::new();
    let (_, datagram) = vector();
    let ip = packet(PacketBuilder::ipv4([127, 0, 0, 1], [127, 0, 0, 2], 64), &datagram);
    let ethernet = PacketBuilder::ethernet2([1; 6], [2; 6]).ipv6([0; 16], [0xff; 16], 9);
    let ethernet = packet(ethernet, &datagram);
    let loopback = [&[2, 0, 0, 0], &ip[..]].concat();
    for (name, capture) in [
        ("raw.pcap", pcap(101, &ip)),
        ("ethernet.pcap", pcap(1, &ethernet)),
        ("null.pcap", pcap(0, &loopback)),
        ("raw.pcapng", pcapng(101, &ip)),
    ] {
        place.write(name, capture);
        let json = place.run(&["--json", "dump", name]).json();
        assert!(json[0]["frames"][0].as_str().unwrap().starts_with(SAID), "{name}: {json:?}");
        assert_eq!((json[0]["at_s"].as_f64(), json.len()), (Some(0.0), 2), "{name}");
        assert_eq!(json[1]["at_s"].as_f64(), Some(1.5), "{name}");
        let to = if name.starts_with("eth") {
            "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:7001"
        } else {
            "127.0.0.2:7001"
        };
        assert_eq!(json[0]["to"], to, "{name}");
    }
}

#[test]
fn what_is_not_ours_is_counted_or_explained() {
    let place = Place::new();
    let (line, datagram) = vector();
    let mut broken = datagram.clone();
    broken[40] ^= 1;
    let hex: String = broken.iter().map(|byte| format!("{byte:02x}")).collect();
    let input = format!("{line}\n0011\n{hex}\n");
    let said = place.run_with(&["dump", "-"], input.as_bytes());
    assert_eq!((said.code, said.out.lines().filter(|line| line.contains("BIND")).count()), (0, 1));
    assert!(said.err.contains("2 other datagrams"), "{said:?}");
    let said = place.run_with(&["dump", "-", "--all"], input.as_bytes());
    assert_eq!(said.out.matches("not farcall's: ").count(), 2, "{said:?}");

    let said = place.run_with(&["dump", "-"], b"0011\n");
    assert_eq!(said.code, 1);
    let said = place.run_with(&["dump", "-"], b"hello\n");
    assert!(said.code == 1 && said.err.contains("line 1: character 1 is 'h'"), "{said:?}");
    assert_eq!(place.run(&["dump", "nothing"]).code, 1);
}

#[test]
fn a_broken_capture_does_not_crash_the_command() {
    let place = Place::new();
    let (_, datagram) = vector();
    let ip = packet(PacketBuilder::ipv4([127, 0, 0, 1], [127, 0, 0, 2], 64), &datagram);
    for capture in [pcap(101, &ip), pcapng(101, &ip)] {
        for end in (4..capture.len()).step_by(97) {
            let said = place.run_with(&["dump", "-"], &capture[..end]);
            assert!(matches!(said.code, 0 | 1), "{end}: {said:?}");
        }
        let mut huge = capture.clone();
        huge[32..36].fill(0x7f);
        assert_eq!(place.run_with(&["dump", "-"], &huge).code, 1);
    }
}

fn packet(to: etherparse::PacketBuilderStep<etherparse::IpHeaders>, payload: &[u8]) -> Vec<u8> {
    let udp = to.udp(7000, 7001);
    let mut packet = Vec::new();
    udp.write(&mut packet, payload).unwrap();
    packet
}

/// Returns a capture with the packet twice, 1.5 s apart.
fn pcap(link: u32, packet: &[u8]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut words = |words: &[u32]| words.iter().for_each(|word| file.extend(word.to_le_bytes()));
    words(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, link]);
    let length = packet.len() as u32;
    words(&[1000, 700_000, length, length]);
    file.extend(packet);
    for word in [1002, 200_000, length, length] {
        file.extend(u32::to_le_bytes(word));
    }
    file.extend(packet);
    file
}

fn pcapng(link: u32, packet: &[u8]) -> Vec<u8> {
    let padded = packet.len().next_multiple_of(4);
    let mut file = Vec::new();
    let mut words = |words: &[u32]| words.iter().for_each(|word| file.extend(word.to_le_bytes()));
    words(&[0x0a0d_0d0a, 28, 0x1a2b_3c4d, 0x0000_0001, u32::MAX, u32::MAX, 28]);
    words(&[1, 20, link, 65_535, 20]);
    let (length, block) = (packet.len() as u32, 32 + padded as u32);
    for microseconds in [7_000_000u32, 8_500_000] {
        for word in [6, block, 0, 0, microseconds, length, length] {
            file.extend(u32::to_le_bytes(word));
        }
        file.extend(packet);
        file.resize(file.len() + padded - packet.len(), 0);
        file.extend(block.to_le_bytes());
    }
    file
}
