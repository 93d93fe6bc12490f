//! The fuzz target for trains that a client receives. Each call must get its own result, however long the
//! result stays in the buffer in which it arrived.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use farcall::names::Memory;
use farcall::stub::Interface;
use farcall::{Pending, Runtime};
use farcall_proto::server::{CallKey, Export, Finish, Request, Server};
use farcall_proto::{Fingerprint, ServerConfig, Time};

use super::{
    Brought, HERE, LONGEST, Line, Marked, MarkedClient, Other, Outside, STRANGER, Seam, THERE, arrived, lock,
    marked, opaque,
};
use crate::acquaintance::ROOM;
use crate::script::Script;

/// The most calls that one script can make.
const MAX_CALLS: u32 = 96;
/// The most bytes that the results of one script's calls can have together.
const MAX_RESULT_BYTES: usize = 40 << 10;

/// Runs a script of calls. The server's answers to several calls arrive together.
///
/// | step | operands |
/// |---|---|
/// | first | byte: settings of the client |
/// | 0–1 the client starts calls | byte: how many; byte: the length of their results |
/// | 2 the client makes a call and waits for it | byte: the length of its result |
/// | 3 the client waits for a started call | byte: which |
/// | 4 the client gives up a started call | byte: which |
/// | 5 the server answers several calls together from now on | byte: how many |
/// | 6 one of the server's next datagrams is lost, doubled, damaged, or sent by a stranger | byte: which; byte: how |
/// | 7 time passes before the next answer | duration |
pub fn trains_to_caller(data: &[u8]) {
    let (settings, script) = data.split_first().unwrap_or((&0, &[]));
    let outside = Outside::new(settings & 2 == 0, Box::new(Callee::new()));
    let mut builder = Runtime::builder().env(Arc::new(Seam(outside.clone()))).registry(Memory::new());
    builder = builder.shared_memory(false);
    if settings & 1 != 0 {
        builder = builder.spin(Duration::ZERO);
    }
    let runtime = builder.build().expect("settings that make sense");
    let marked = runtime.import::<dyn Marked>("udp://10.0.0.2:7000/Marked/one").expect("the server answers");
    let mut world = World { marked, open: Vec::new(), calls: 0, bytes: 0 };
    let mut script = Script::new(script);
    while let Some(step) = script.step() {
        match step % 8 {
            2 => world.call(usize::from(script.byte())),
            3 => world.wait(usize::from(script.byte())),
            4 => world.give_up(usize::from(script.byte())),
            5..8 => lock(&outside.other).told(step % 8, &mut script),
            _ => world.start(script.byte(), usize::from(script.byte())),
        }
    }
    world.end();
    lock(&outside.threads).clear();
}

/// The client, and the calls that the script has made.
struct World {
    marked: MarkedClient,
    /// The started calls, each with the result that it must get.
    open: Vec<(Pending<Vec<u8>>, Vec<u8>)>,
    /// The number of calls so far.
    calls: u32,
    /// How many bytes the results of these calls have together.
    bytes: usize,
}

impl World {
    /// Returns the arguments of the next call and the result that it must get, or `None` if the script has
    /// made enough calls.
    fn next(&mut self, quarter: usize) -> Option<(Vec<u8>, Vec<u8>)> {
        let len = if quarter < 128 { quarter * 4 } else { (quarter - 127) * 256 };
        self.calls += 1;
        self.bytes += len;
        let asked = [self.calls.to_be_bytes(), (len as u32).to_be_bytes()].concat();
        (self.calls <= MAX_CALLS && self.bytes <= MAX_RESULT_BYTES).then(|| (asked, marked(self.calls, len)))
    }

    fn start(&mut self, many: u8, quarter: usize) {
        for _ in 0..1 + (many & 31) {
            let Some((asked, result)) = self.next(quarter) else { return };
            self.open.push((self.marked.start().ask(&asked), result));
        }
    }

    fn call(&mut self, quarter: usize) {
        if let Some((asked, result)) = self.next(quarter) {
            assert!(
                self.marked.ask(&asked).expect("the server answers") == result,
                "a call gets its own result"
            );
        }
    }

    fn wait(&mut self, which: usize) {
        let Some(which) = which.checked_rem(self.open.len()) else { return };
        let (pending, result) = self.open.remove(which);
        assert!(pending.wait().expect("the server answers") == result, "a call gets its own result");
    }

    fn give_up(&mut self, which: usize) {
        if let Some(which) = which.checked_rem(self.open.len()) {
            drop(self.open.remove(which));
        }
    }

    fn end(mut self) {
        while !self.open.is_empty() {
            self.wait(0);
        }
    }
}

/// The serving end, which uses the real protocol.
struct Callee {
    server: Server,
    out: Vec<u8>,
    /// The calls that have arrived and are not answered, with their arguments.
    open: VecDeque<(CallKey, Vec<u8>)>,
    /// How many calls are answered together.
    together: usize,
    /// The number of datagrams that were sent.
    sent: usize,
    /// What happens to some of the datagrams, by their numbers.
    faults: HashMap<usize, u8>,
    /// The time that passes before the next answer.
    pause: Option<Duration>,
}

impl Callee {
    fn new() -> Callee {
        let config = ServerConfig { max_datagram: LONGEST, ..ServerConfig::default() };
        let mut server = Server::new(config, Time::from_nanos(1), [7; 32]);
        let procedures = <dyn Marked as Interface>::interface().fingerprints();
        let procedures = procedures.iter().map(|known| Fingerprint {
            number: known.number,
            types: known.types,
            name: known.name,
        });
        let (type_name, instance) = ("Marked".into(), "one".into());
        server.export(Export { id: 77, type_name, instance, procedures: procedures.collect() });
        Callee {
            server,
            out: vec![0; ROOM],
            open: VecDeque::new(),
            together: 1,
            sent: 0,
            faults: HashMap::new(),
            pause: None,
        }
    }

    /// Answers the oldest call.
    fn answer(&mut self, now: Time, line: &mut Line) {
        let Some((key, arguments)) = self.open.pop_front() else { return };
        let word = |at: usize| arguments[at..at + 4].try_into().map_or(0, u32::from_be_bytes);
        let mut result = opaque(&marked(word(4), word(8) as usize));
        if let Some(sent) = self.server.finish(now, key, Finish::Result, &mut result, &mut self.out) {
            self.send(line, sent.len);
        }
    }

    /// Sends a datagram, with the fault that the script has set for it.
    fn send(&mut self, line: &mut Line, len: usize) {
        let (mut from, mut datagram) = (THERE.into(), self.out[..len].to_vec());
        self.sent += 1;
        match self.faults.remove(&self.sent).map(|how| (how % 4, how)) {
            Some((0, _)) => return,
            Some((1, _)) => line.datagrams.push_back((from, datagram.clone())),
            Some((2, how)) => datagram[usize::from(how) % len] ^= 1 << (how >> 5),
            Some(_) => from = STRANGER.into(),
            None => {}
        }
        line.datagrams.push_back((from, datagram));
    }

    fn transmit(&mut self, now: Time, line: &mut Line) {
        while let Some(sent) = self.server.transmit(now, &mut self.out) {
            self.send(line, sent.len);
        }
    }
}

impl Other for Callee {
    fn hear(&mut self, now: Time, datagram: &[u8]) {
        let open = &mut self.open;
        self.server.receive(now, HERE.into(), datagram, &mut |request| match request {
            Request::Call(call) => open.push_back((call.key, call.args.to_vec())),
            // A call that was given up is answered too. The client must ignore the answer.
            Request::Cancel(_) | Request::Post(..) => {}
        });
    }

    fn bring(&mut self, now: Time, line: &mut Line) -> Brought {
        if let Some(pause) = self.pause.take() {
            return Brought::Passed(pause);
        }
        self.server.handle_timeout(now);
        self.transmit(now, line);
        // At most 256 calls are answered together, which fill a few receives.
        for _ in 0..self.together {
            self.answer(now, line);
            self.transmit(now, line);
        }
        arrived(line)
    }

    fn told(&mut self, step: u8, script: &mut Script<'_>) {
        match step {
            5 => self.together = 1 + usize::from(script.byte()),
            6 => drop(self.faults.insert(self.sent + 1 + usize::from(script.byte()), script.byte())),
            _ => self.pause = Some(script.duration().min(Duration::from_secs(1))),
        }
    }
}
