//! Fuzz targets for the serving end of the protocol. Any datagrams arrive in any order, between the ends of
//! calls and the passing of time.

use std::collections::HashSet;
use std::net::SocketAddr;

use farcall_proto::server::{CallKey, Finish, Request, Server};
use farcall_proto::{Failure, Kind, MAX_DATAGRAM, Ran, Time, fuzzing};

use crate::acquaintance::{Acquaintance, EXPORT, ROOM, address};
use crate::script::Script;

/// The most bytes that the server may send to an unproven address for each byte that came from this address.
const AMPLIFICATION: usize = 3;

/// Delivers the input as one datagram, from a known caller and from a stranger.
pub fn server_bytes(data: &[u8]) {
    let mut world = World::new();
    for from in [0, 2] {
        world.receive(address(from), data);
        world.transmit();
    }
    world.end();
}

/// Runs a script of datagrams with a valid seal, and of what happens between them.
///
/// | step | operands |
/// |---|---|
/// | 0–3 datagram | byte: address, conversation, number (two bits each); text: frames |
/// | 4 finish a call | byte: which; byte: how; filling: its result |
/// | 5 time passes | duration |
/// | 6 the server sends all that it has to send | |
/// | 7 datagram without a seal | byte: address; text |
/// | 8 withdraw the export | byte 254 |
/// | 8 begin to drain | byte 255 |
/// | 8 act in an exchange | byte below 254: open, send, take, stop, or read all news; byte: which call; byte: which exchange; further operands |
pub fn server(data: &[u8]) {
    let mut world = World::new();
    let mut script = Script::new(data);
    while let Some(step) = script.step() {
        match step % 9 {
            4 => world.finish(&mut script),
            5 => world.pass(&mut script),
            6 => world.transmit(),
            7 => {
                let from = address(usize::from(script.byte()));
                world.receive(from, script.text());
            }
            8 => match script.byte() {
                255 => {
                    world.server.drain(world.now, None);
                    world.server.tell_drain(None);
                }
                254 => world.server.withdraw(EXPORT),
                step => world.exchange(step, &mut script),
            },
            _ => world.sealed(&mut script),
        }
        world.check();
    }
    world.end();
}

/// The server, and what the target knows about it.
struct World {
    now: Time,
    server: Server,
    conversation: u64,
    /// The number of the next datagram.
    number: u64,
    /// All calls that the server gave to the target to execute.
    asked: HashSet<CallKey>,
    /// The calls that the target has not finished.
    open: Vec<CallKey>,
    /// How many bytes the stranger has sent, and how many it was sent.
    stranger: (usize, usize),
    /// How many bytes the server has received. This limits what the server may hold.
    received: usize,
    /// How many bytes of results and messages the target has given to the server.
    given: usize,
    out: Vec<u8>,
}

impl World {
    fn new() -> World {
        let Acquaintance { now, server, conversation, .. } = Acquaintance::new();
        World {
            now,
            server,
            conversation,
            number: 1000,
            asked: HashSet::new(),
            open: Vec::new(),
            stranger: (0, 0),
            received: 0,
            given: 0,
            out: vec![0; ROOM],
        }
    }

    fn sealed(&mut self, script: &mut Script<'_>) {
        let choice = script.byte();
        let conversation = [self.conversation, self.conversation, 0, 0xbad][usize::from(choice >> 2 & 3)];
        self.number += 1;
        let number = [self.number, self.number, self.number / 2, u64::MAX][usize::from(choice >> 4 & 3)];
        let datagram = fuzzing::seal(conversation, number, script.text());
        self.receive(address(usize::from(choice & 3)), &datagram);
    }

    fn receive(&mut self, from: SocketAddr, datagram: &[u8]) {
        if datagram.len() > MAX_DATAGRAM {
            return;
        }
        if from == address(2) {
            self.stranger.0 += datagram.len();
        }
        self.received += datagram.len();
        let (asked, open) = (&mut self.asked, &mut self.open);
        self.server.receive(self.now, from, datagram, &mut |request| match request {
            Request::Call(call) => {
                assert!(asked.insert(call.key), "{:?} is executed twice", call.key);
                assert_eq!(call.export, EXPORT, "the server gives out only calls of its export");
                open.push(call.key);
            }
            Request::Post(export, ..) => {
                assert_eq!(export, EXPORT, "the server gives out only posts to its export")
            }
            Request::Cancel(key) => assert!(open.contains(&key), "{key:?} is cancelled, but is not running"),
        });
    }

    fn finish(&mut self, script: &mut Script<'_>) {
        let picked = script.pick(&self.open);
        let how = match script.byte() % 4 {
            0 | 1 => Finish::Result,
            2 => Finish::Exception,
            _ => Failure::new(Kind::Overloaded, Ran::No).with_detail("enough").into(),
        };
        let mut payload = script.filling();
        let Some(key) = picked else { return };
        self.open.retain(|open| *open != key);
        self.given += payload.len();
        if let Some(sent) = self.server.finish(self.now, key, how, &mut payload, &mut self.out) {
            self.sent(sent.to, sent.len);
        }
    }

    /// Does something in an exchange of a call.
    fn exchange(&mut self, step: u8, script: &mut Script<'_>) {
        if step % 5 == 4 {
            while self.server.next_news().is_some() {}
            return;
        }
        let Some(key) = script.pick(&self.open) else { return };
        let exchange = u32::from(script.byte());
        match step % 5 {
            0 => drop(self.server.open_exchange(key)),
            1 => {
                let (tail, bytes) = (script.tail(), script.filling());
                let sent = self.server.send_in(key, exchange, &bytes, tail).unwrap_or(0);
                assert!(sent <= bytes.len());
                self.given += sent;
            }
            2 => {
                let (mut into, most) = (Vec::new(), 16 * usize::from(script.byte()));
                self.server.take_from(key, exchange, &mut into, most);
                assert!(
                    into.len() <= most.min(self.received),
                    "the server gives out no more than it received"
                );
            }
            _ => self.server.stop_exchange(key, exchange, 7),
        }
    }

    fn pass(&mut self, script: &mut Script<'_>) {
        self.now = self.now + script.duration();
        self.server.handle_timeout(self.now);
    }

    fn transmit(&mut self) {
        let mut datagrams = 0;
        while let Some(sent) = self.server.transmit(self.now, &mut self.out) {
            self.sent(sent.to, sent.len);
            datagrams += 1;
            assert!(datagrams < 100_000, "the server never stops sending");
        }
    }

    fn sent(&mut self, to: SocketAddr, length: usize) {
        assert!(length <= self.out.len());
        if to == address(2) {
            self.stranger.1 += length;
            let (sent, heard) = self.stranger;
            assert!(heard <= AMPLIFICATION * sent, "a stranger sent {sent} bytes and was sent {heard}");
        }
    }

    fn check(&self) {
        assert_eq!(self.server.unfinished(), self.open.len());
        // The server holds refusals too: a few hundred bytes for each refused datagram.
        let justified = 16 * self.received + self.given;
        assert!(
            self.server.held_bytes() <= justified,
            "the server holds {} bytes, too many for what it got",
            self.server.held_bytes()
        );
        // Each frame can begin a call, be a fragment, or name a new activity. For any of these the server
        // keeps no more than a few times the frame's bytes.
        for which in 0..3 {
            let kept = self.server.kept_for(address(which).ip());
            assert!(
                kept.arguments + kept.activities <= 16 * self.received,
                "the server keeps {kept:?} after {} bytes were received",
                self.received
            );
        }
        self.server.audit();
    }

    /// Finishes all calls, and lets time pass while no caller answers. In the end, the server must hold
    /// nothing.
    fn end(mut self) {
        for key in std::mem::take(&mut self.open) {
            let sent = self.server.finish(self.now, key, Finish::Result, &mut Vec::new(), &mut self.out);
            if let Some(sent) = sent {
                self.sent(sent.to, sent.len);
            }
        }
        self.transmit();
        let mut turns = 0;
        while let Some(due) = self.server.timeout() {
            self.now = self.now.max(due);
            self.server.handle_timeout(self.now);
            self.transmit();
            turns += 1;
            // While the server holds a call's result, it sends what the call's exchanges have once a second.
            assert!(turns < 100 + 64 * self.asked.len(), "the idle server's timer never ends");
        }
        assert_eq!(self.server.held_bytes(), 0, "the server holds bytes for callers that are gone");
        assert!(
            (0..3).all(|which| self.server.kept_for(address(which).ip()).exchanges == 0),
            "the server holds no exchanges"
        );
        assert_eq!(self.server.unfinished(), 0);
    }
}
