//! The fuzz target for the calling end of the protocol. Any datagrams arrive in any order, between calls,
//! cancels and the passing of time.

use std::collections::HashSet;

use farcall_proto::client::{CallId, Conversation, Event};
use farcall_proto::{MAX_DATAGRAM, Time, Trace, fuzzing};

use crate::acquaintance::{Acquaintance, CLIENT, ROOM, call};
use crate::script::Script;

/// Runs a script of datagrams with a valid seal, and of what happens between them.
///
/// | step | operands |
/// |---|---|
/// | 0–3 datagram | byte: conversation, number (two bits each); text: frames |
/// | 4 start a call | byte: 1 with a deadline, 2 with trace context; filling: its arguments |
/// | 5 time passes | duration |
/// | 6 the client sends all that it has to send | |
/// | 7 datagram without a seal | text |
/// | 8 cancel a call | byte 0; byte: which call |
/// | 8 bind | byte 1 |
/// | 8 an ICMP error | byte 2 |
/// | 8 act in an exchange | byte 3; byte: open, send, take, stop, or read all news; byte: which call; byte: which exchange; further operands |
pub fn client(data: &[u8]) {
    let Acquaintance { now, client, .. } = Acquaintance::new();
    let out = vec![0; ROOM];
    let waiting = HashSet::new();
    let mut world = World { now, client, number: 1000, token: 0, calls: Vec::new(), waiting, out };
    let mut script = Script::new(data);
    while let Some(step) = script.step() {
        match step % 9 {
            4 => world.start(&mut script),
            5 => {
                let duration = script.duration();
                world.pass(world.now + duration);
            }
            6 => world.transmit(),
            7 => world.receive(script.text()),
            8 => world.other(&mut script),
            _ => world.sealed(&mut script),
        }
    }
    world.end();
}

/// The client, and what the target knows about the client's calls.
struct World {
    now: Time,
    client: Conversation,
    /// The number of the next datagram.
    number: u64,
    /// The token of the last call or binding.
    token: u64,
    calls: Vec<CallId>,
    /// The tokens of calls and bindings that have not ended.
    waiting: HashSet<u64>,
    out: Vec<u8>,
}

impl World {
    fn start(&mut self, script: &mut Script<'_>) {
        let options = script.byte();
        self.token += 1;
        let mut call = call(self.token);
        call.deadline = (options & 1 != 0).then(|| self.now + script.duration());
        call.trace = (options & 2 != 0).then_some(Trace { trace: [1; 16], span: [2; 8] });
        if let Ok(id) = self.client.start(|| self.now, &call, &mut script.filling()) {
            self.calls.push(id);
            self.waiting.insert(self.token);
        }
    }

    fn other(&mut self, script: &mut Script<'_>) {
        match script.byte() % 4 {
            0 => {
                if let Some(id) = script.pick(&self.calls) {
                    self.client.cancel(self.now, id);
                }
            }
            // A program has no more calls and bindings under way than this.
            1 if self.waiting.len() < 256 => {
                self.token += 1;
                self.waiting.insert(self.token);
                self.client.bind(self.now, "Store", self.token);
            }
            3 => self.exchange(script),
            _ => self.client.handle_unreachable(self.now),
        }
    }

    /// Does something in an exchange of a call.
    fn exchange(&mut self, script: &mut Script<'_>) {
        let step = script.byte() % 5;
        if step == 4 {
            while self.client.next_news().is_some() {}
            return;
        }
        let Some(id) = script.pick(&self.calls) else { return };
        let exchange = u32::from(script.byte());
        let waiting = &mut self.waiting;
        let sink = &mut |event: Event<'_>| note(waiting, event);
        match step {
            0 => drop(self.client.open_exchange(id)),
            1 => {
                let (tail, bytes) = (script.tail(), script.filling());
                let sent = self.client.send_in(id, exchange, &bytes, tail);
                assert!(sent.is_none_or(|sent| sent <= bytes.len()));
            }
            2 => {
                let (mut into, most) = (Vec::new(), 16 * usize::from(script.byte()));
                self.client.take_from(id, exchange, &mut into, most, sink);
                assert!(into.len() <= most);
            }
            _ => self.client.stop_exchange(id, exchange, 7, sink),
        }
    }

    fn sealed(&mut self, script: &mut Script<'_>) {
        let choice = script.byte();
        let conversation = [CLIENT, CLIENT, 0, 0xbad][usize::from(choice & 3)];
        self.number += 1;
        let number = [self.number, self.number, self.number / 2, u64::MAX][usize::from(choice >> 2 & 3)];
        let datagram = fuzzing::seal(conversation, number, script.text());
        self.receive(&datagram);
    }

    fn receive(&mut self, datagram: &[u8]) {
        if datagram.len() <= MAX_DATAGRAM {
            let waiting = &mut self.waiting;
            self.client.receive(self.now, datagram, &mut |event| note(waiting, event));
        }
    }

    fn pass(&mut self, to: Time) {
        self.now = to;
        let waiting = &mut self.waiting;
        self.client.handle_timeout(self.now, &mut |event| note(waiting, event));
    }

    fn transmit(&mut self) {
        let mut datagrams = 0;
        while let Some(length) = self.client.transmit(self.now, &mut self.out) {
            assert!(length <= self.out.len());
            datagrams += 1;
            assert!(datagrams < 100_000, "the client never stops sending");
        }
    }

    /// Stops all exchanges. A call's result is reported only when the user has taken, or stopped, what passes
    /// inside the call.
    fn stop(&mut self) {
        /// The number of exchanges to stop in each call.
        const MAX_OPEN: u32 = 256;
        let waiting = &mut self.waiting;
        for id in &self.calls {
            for exchange in 1..=MAX_OPEN {
                self.client.stop_exchange(*id, exchange, 0, &mut |event| note(waiting, event));
            }
        }
    }

    /// Lets time pass while no server answers. In the end, every call and every binding must have ended.
    fn end(mut self) {
        self.stop();
        self.transmit();
        let mut turns = 0;
        while let Some(due) = self.client.timeout() {
            self.pass(self.now.max(due));
            self.stop();
            self.transmit();
            turns += 1;
            assert!(turns < 2000 + 50 * self.token, "the idle client's timer never ends");
        }
        assert_eq!(self.client.stats().outstanding, 0);
        assert!(self.waiting.is_empty(), "{} calls or bindings never ended", self.waiting.len());
    }
}

/// Notes that a call or a binding has ended.
fn note(waiting: &mut HashSet<u64>, event: Event<'_>) {
    let (Event::Ended { token, .. } | Event::Bound { token, .. }) = event;
    assert!(waiting.remove(&token), "the call or binding {token} ends twice");
}
