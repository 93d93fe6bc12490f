//! The serving end of the protocol: any datagrams, in any order, between finishing calls and time passing.

use std::collections::HashSet;
use std::net::SocketAddr;

use farcall_proto::server::{CallKey, Finish, Request, Server};
use farcall_proto::{Failure, Kind, MAX_DATAGRAM, Ran, Time, fuzzing};

use crate::acquaintance::{Acquaintance, EXPORT, ROOM, address};
use crate::script::Script;

/// The most bytes that an address hears for each that it sent before it has proven that it is there.
const AMPLIFICATION: usize = 3;

/// One datagram of these very bytes, from a caller that is known and from a stranger.
pub fn server_bytes(data: &[u8]) {
    let mut world = World::new();
    for from in [0, 2] {
        world.receive(address(from), data);
        world.transmit();
    }
    world.end();
}

/// A script of datagrams whose seal is right, and of what happens in between.
///
/// | step | operands |
/// |---|---|
/// | 0–3 datagram | byte: address, conversation, number (two bits each); text: frames |
/// | 4 finish a call | byte: which; byte: how; filling: its result |
/// | 5 time passes | duration |
/// | 6 all is sent | |
/// | 7 datagram without a seal | byte: address; text |
/// | 8 other | byte: the export goes (254), draining begins (255), or of an exchange: open, send, take, stop, or the news (and which call; byte: which exchange) |
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
                255 => world.server.drain(),
                254 => world.server.withdraw(EXPORT),
                step => world.exchange(step, &mut script),
            },
            _ => world.sealed(&mut script),
        }
        world.check();
    }
    world.end();
}

/// The server, and what an honest witness knows of it.
struct World {
    now: Time,
    server: Server,
    conversation: u64,
    /// The number of the next datagram.
    number: u64,
    /// Calls that were given to us to execute.
    asked: HashSet<CallKey>,
    /// Those that we have not finished.
    open: Vec<CallKey>,
    /// What the stranger sent, and heard.
    stranger: (usize, usize),
    /// All that came in: what the server may hold.
    received: usize,
    /// Results that we gave.
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
                assert_eq!(call.export, EXPORT, "an export that does not exist");
                open.push(call.key);
            }
            Request::Post(export, _) => assert_eq!(export, EXPORT, "an export that does not exist"),
            Request::Cancel(key) => assert!(open.contains(&key), "{key:?} is cancelled, and is not running"),
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
                assert!(into.len() <= most.min(self.received), "more than came");
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
            assert!(datagrams < 100_000, "it sends without end");
        }
    }

    fn sent(&mut self, to: SocketAddr, length: usize) {
        assert!(length <= self.out.len());
        if to == address(2) {
            self.stranger.1 += length;
            let (sent, heard) = self.stranger;
            assert!(heard <= AMPLIFICATION * sent, "a stranger sent {sent} bytes and heard {heard}");
        }
    }

    fn check(&self) {
        assert_eq!(self.server.unfinished(), self.open.len());
        // A refusal is held too: a few hundred bytes for a datagram.
        let justified = 16 * self.received + self.given;
        assert!(self.server.held_bytes() <= justified, "{} bytes held", self.server.held_bytes());
        // Each frame may begin a call, be a piece of its own, or name an activity; that costs no more than a
        // few times its bytes.
        for which in 0..3 {
            let kept = self.server.kept_for(address(which).ip());
            assert!(
                kept.arguments + kept.activities <= 16 * self.received,
                "{kept:?} for {} bytes",
                self.received
            );
        }
        self.server.audit();
    }

    /// Everything is finished, nobody answers any more: in the end nothing is held.
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
            // What exchanges send to nobody is sent each second, as long as their results are held.
            assert!(turns < 100 + 64 * self.asked.len(), "idle, and its timer goes on");
        }
        assert_eq!(self.server.held_bytes(), 0, "held for nobody");
        assert!((0..3).all(|which| self.server.kept_for(address(which).ip()).exchanges == 0), "exchanges");
        assert_eq!(self.server.unfinished(), 0);
    }
}
