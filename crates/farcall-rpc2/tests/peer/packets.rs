//! Packets, and what a server does with those that RPC2 itself has sent once, and with wrong ones.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use farcall_rpc2::Server;
use farcall_rpc2::packet::{self, Header};

use crate::common::{Here, SUBSYSTEM};
use crate::covering::Covering;

pub fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/vectors/packets-{name}.txt"))
}

/// Returns the packets that RPC2's client or server has sent.
fn kept(name: &str) -> Vec<Vec<u8>> {
    let text = std::fs::read_to_string(file(name)).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let byte = |line: &str, at: usize| u8::from_str_radix(&line[2 * at..2 * at + 2], 16).unwrap();
    lines.map(|line| (0..line.len() / 2).map(|at| byte(line, at)).collect()).collect()
}

fn answers(packets: &[&[u8]]) -> Vec<(Header, Vec<u8>)> {
    let server = Server::builder().subsystem::<dyn Covering>(SUBSYSTEM, Arc::new(Here::default()));
    let sent = server.answer(packets, "127.0.0.1:9".parse().unwrap());
    let parsed = sent.iter().map(|packet| Header::parse(packet).expect("a packet"));
    parsed.map(|(header, body)| (header, body.to_vec())).collect()
}

#[test]
fn packets_that_rpc2_sent_are_read_and_written_again() {
    for name in ["client", "server"] {
        let packets = kept(name);
        assert!(packets.len() >= 8, "{name}");
        for packet in packets {
            let (header, body) = Header::parse(&packet).unwrap();
            let mut again = Vec::new();
            header.write(body, &mut again);
            assert_eq!(again, packet);
        }
    }
}

#[test]
fn a_kept_bind_and_its_calls_are_answered() {
    let packets = kept("client");
    let (bind, body) = Header::parse(&packets[0]).unwrap();
    assert_eq!((bind.opcode, bind.subsystem), (packet::INIT1_OPEN, SUBSYSTEM));
    // Our own bind differs only in what is drawn by lot, and in what RPC2 says of its security.
    let ours = packet::bind_body(b"guest");
    assert_eq!(packet::bind_arguments(&ours), packet::bind_arguments(body));
    let answered = answers(&[&packets[0], &packets[0]]);
    let (init2, first) = &answered[0];
    assert_eq!((answered.len(), init2.remote, init2.opcode, first.len()), (2, bind.local, packet::INIT2, 20));
    assert_eq!(answered[1], answered[0], "a bind that comes again is answered again");
    // The request was sent to a handle of its time.
    let (request, body) = Header::parse(&packets[1]).unwrap();
    assert_eq!((request.sequence, body), (0, &[0, 0, 0, 1][..]));
    let (nak, _) = &answers(&[&packets[0], &packets[1]])[1];
    assert_eq!((nak.opcode, nak.remote, nak.local), (packet::NAK, request.local, packet::NO_CONNECTION));
}

#[test]
fn wrong_packets_are_ignored_or_refused() {
    let bind = |change: &dyn Fn(&mut Header)| {
        let mut header =
            Header { local: 7, opcode: packet::INIT1_OPEN, subsystem: SUBSYSTEM, ..Header::default() };
        change(&mut header);
        let mut out = Vec::new();
        header.write(&packet::bind_body(b"me"), &mut out);
        out
    };
    let good = bind(&|_| {});
    assert_eq!(answers(&[&good]).len(), 1);
    assert_eq!(answers(&[&good[..good.len() - 1], &good[..59], b"", &[0; 60]]), []);
    let mut long = good.clone();
    long[packet::HEADER_BYTES + 16] = 255;
    assert_eq!(answers(&[&long]), [], "an identity that is longer than the packet");
    let secure = answers(&[&bind(&|header| header.opcode = -5)]);
    assert_eq!((secure[0].0.opcode, secure[0].0.return_code), (packet::INIT2, packet::NOT_AUTHENTICATED));
    assert_eq!(answers(&[&bind(&|header| header.subsystem = 1)])[0].0.return_code, packet::NOT_AUTHENTICATED);
    // A server does not answer what has no connection, so that two of them do not answer each other without
    // end.
    assert_eq!(answers(&[&bind(&|header| (header.remote, header.opcode) = (5, packet::NAK))]), []);
    assert_eq!(answers(&[&bind(&|header| (header.remote, header.opcode) = (5, 1))])[0].0.opcode, packet::NAK);
    assert_eq!(answers(&[&bind(&|header| header.opcode = packet::REPLY)]), []);
}

#[farcall::interface]
trait Large {
    fn get(&self) -> farcall::Result<[u8; packet::MAX_BODY_BYTES + 1]>;
}

struct Nothing;

impl Large for Nothing {
    fn get(&self) -> farcall::Result<[u8; packet::MAX_BODY_BYTES + 1]> {
        panic!("it is not served")
    }
}

#[test]
fn an_interface_with_a_result_that_no_packet_takes_is_not_served() {
    let server = Server::builder().subsystem::<dyn Large>(1, Arc::new(Nothing));
    let why = server.udp("127.0.0.1:0".parse().unwrap()).start().unwrap_err();
    assert!(why.to_string().contains("it has at least 4240 bytes, and a packet takes 4236"), "{why}");
}
