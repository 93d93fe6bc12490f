//! Trains that a server receives: what they bring is what their datagrams bring one by one.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farcall::names::Memory;
use farcall::{Export, Runtime};
use farcall_proto::client::{Call, Conversation, Event, Outcome};
use farcall_proto::{ClientConfig, MAX_DATAGRAM, Time, fuzzing};

use super::{
    Brought, HERE, LONGEST, Line, Marked, Other, Outside, STRANGER, Seam, THERE, arrived, lock, marked,
    opaque,
};
use crate::acquaintance::ROOM;
use crate::script::Script;

/// Bytes of arguments that a script may send, and calls.
const MOST: usize = 40 << 10;
const MOST_CALLS: u32 = 96;

/// A script of calls and datagrams, and when they arrive; the server runs it once with what arrives together
/// in trains, and once with every datagram by itself.
///
/// | step | operands |
/// |---|---|
/// | first | byte: settings of the server |
/// | 0–2 calls | byte: how many, and the procedure (highest bit); byte: arguments, as a filling |
/// | 3 all arrives that was made | |
/// | 4 datagram whose seal is right | byte: number; text: frames |
/// | 5 datagram without a seal | byte: 1 from a stranger; text |
/// | 6 time passes | duration |
/// | 7 the last datagram again | |
pub fn trains_to_server(data: &[u8]) {
    let alone = run(data, false);
    let joined = run(data, true);
    assert!(
        alone.executed == joined.executed,
        "a train is not what its datagrams are: {}",
        told(&alone, &joined)
    );
    if !joined.forged {
        for (token, got) in &joined.answered {
            assert!(*got == joined.expected[token], "the result of another call, or of none");
        }
    }
}

/// What came of a script.
struct Seen {
    /// What was executed, sorted.
    executed: Vec<(u32, Vec<u8>)>,
    /// The results that calls should have, and those that they got.
    expected: HashMap<u64, Vec<u8>>,
    answered: HashMap<u64, Vec<u8>>,
    /// Not everything was sent by the caller.
    forged: bool,
}

/// What was executed in one run only: the procedure, the length of its arguments and their beginning.
fn told(alone: &Seen, joined: &Seen) -> String {
    let only = |one: &Seen, other: &Seen| -> Vec<(u32, usize, Vec<u8>)> {
        let missing = one.executed.iter().filter(|call| !other.executed.contains(call));
        missing
            .map(|(procedure, data)| (*procedure, data.len(), data[..data.len().min(4)].to_vec()))
            .collect()
    };
    let counts = [alone, joined].map(|seen| seen.executed.len());
    format!("{counts:?} calls, alone {:?}, joined {:?}", only(alone, joined), only(joined, alone))
}

fn run(data: &[u8], joined: bool) -> Seen {
    let (settings, script) = data.split_first().unwrap_or((&0, &[]));
    let caller = Arc::new(Mutex::new(Caller::new(script)));
    let outside = Outside::new(joined, Box::new(Shared(caller.clone())));
    let executed = Arc::new(Executed::default());
    let served = serve(&outside, *settings, &executed);
    // Whoever receives when the script is over ends the server.
    *lock(&outside.over) = Some(Box::new(move || drop(served)));
    while let Some(worker) = outside.thread("farcall-worker") {
        worker();
    }
    assert!(lock(&outside.over).is_none(), "nobody receives any more");
    lock(&outside.threads).clear();
    let mut executed = std::mem::take(&mut *lock(&executed.0));
    executed.sort();
    let mut caller = lock(&caller);
    caller.read_all();
    let (expected, answered) = (std::mem::take(&mut caller.expected), std::mem::take(&mut caller.answered));
    Seen { executed, expected, answered, forged: caller.forged }
}

fn serve(outside: &Arc<Outside>, settings: u8, executed: &Arc<Executed>) -> (Export, Runtime) {
    let mut builder = Runtime::builder().env(Arc::new(Seam(outside.clone()))).registry(Memory::new());
    builder = builder.address(HERE.into()).open().shared_memory(false).describe(false);
    builder = builder.workers(1 + usize::from(settings >> 1 & 3)).threads(8);
    if settings & 1 != 0 {
        builder = builder.spin(Duration::ZERO);
    }
    let runtime = builder.build().expect("settings that make sense");
    let export = runtime.export::<dyn Marked>("Marked/one", executed.clone()).expect("an export");
    (export, runtime)
}

/// What a call is answered with. Those with long results would wait until others are fetched, which nobody
/// does here.
fn beginning(data: &[u8]) -> &[u8] {
    &data[..data.len().min(64)]
}

/// Notes what it is called with.
#[derive(Default)]
struct Executed(Mutex<Vec<(u32, Vec<u8>)>>);

impl Marked for Executed {
    fn ask(&self, data: &[u8]) -> farcall::Result<Vec<u8>> {
        lock(&self.0).push((1, data.to_vec()));
        Ok(beginning(data).to_vec())
    }

    fn count(&self, data: &[u8]) -> farcall::Result<u32> {
        lock(&self.0).push((2, data.to_vec()));
        Ok(data.len() as u32)
    }
}

/// The calling end, by the real protocol; what it hears while the script runs it takes in when that is over,
/// so that its datagrams do not depend on how others were received.
struct Caller {
    talk: Conversation,
    out: Vec<u8>,
    export: Option<u64>,
    /// The server's identifier of the conversation, once a call has returned.
    conversation: Option<u64>,
    steps: VecDeque<Step>,
    heard: Vec<Vec<u8>>,
    expected: HashMap<u64, Vec<u8>>,
    answered: HashMap<u64, Vec<u8>>,
    forged: bool,
    calls: u32,
    /// The number of the next datagram that is forged.
    number: u64,
    last: Option<(SocketAddr, Vec<u8>)>,
}

enum Step {
    Calls { procedure: u32, arguments: usize },
    Arrive,
    Sealed { choice: u8, frames: Vec<u8> },
    Unsealed { from: SocketAddr, bytes: Vec<u8> },
    Pass(Duration),
    Again,
}

fn steps(data: &[u8]) -> VecDeque<Step> {
    let (mut script, mut steps, mut bytes, mut calls) = (Script::new(data), VecDeque::new(), 0, 0);
    while let Some(step) = script.step() {
        match step % 8 {
            3 => steps.push_back(Step::Arrive),
            4 => steps.push_back(Step::Sealed { choice: script.byte(), frames: script.text().to_vec() }),
            5 => {
                let from = if script.byte() & 1 == 0 { THERE } else { STRANGER }.into();
                steps.push_back(Step::Unsealed { from, bytes: script.text().to_vec() });
            }
            6 => steps.push_back(Step::Pass(script.duration())),
            7 => steps.push_back(Step::Again),
            _ => {
                let (choice, arguments) = (script.byte(), script.filling().len());
                let procedure = 1 + u32::from(choice >> 7);
                for _ in 0..1 + (choice & 31) {
                    (bytes, calls) = (bytes + arguments, calls + 1);
                    if bytes <= MOST && calls <= MOST_CALLS {
                        steps.push_back(Step::Calls { procedure, arguments });
                    }
                }
            }
        }
    }
    steps.push_back(Step::Arrive);
    steps
}

impl Caller {
    fn new(script: &[u8]) -> Caller {
        let max_outstanding = 2 * MOST_CALLS;
        let config = ClientConfig {
            max_outstanding,
            window: 1 << 20,
            max_datagram: LONGEST,
            ..ClientConfig::default()
        };
        let mut talk = Conversation::new(config, 0xc11e);
        talk.bind(Time::from_nanos(1), "Marked/one", 0);
        Caller {
            talk,
            out: vec![0; ROOM],
            export: None,
            conversation: None,
            steps: steps(script),
            heard: Vec::new(),
            expected: HashMap::new(),
            answered: HashMap::new(),
            forged: false,
            calls: 0,
            number: 1000,
            last: None,
        }
    }

    fn read(&mut self, now: Time, datagram: &[u8]) {
        let (export, answered) = (&mut self.export, &mut self.answered);
        self.talk.receive(now, datagram, &mut |event| match event {
            Event::Bound { answer, .. } => *export = Some(answer.expect("the name is exported").export),
            Event::Ended { token, outcome: Outcome::Result(result), .. } => {
                drop(answered.insert(token, result.to_vec()))
            }
            Event::Ended { .. } => {}
        });
    }

    fn read_all(&mut self) {
        for datagram in std::mem::take(&mut self.heard) {
            self.read(Time::from_nanos(2_000_000_000), &datagram);
        }
    }

    /// One call more, which is to have the beginning of its arguments or their number.
    fn call(&mut self, now: Time, procedure: u32, arguments: usize) {
        let Some(export) = self.export else { return };
        self.calls += 1;
        let token = u64::from(self.calls);
        let data = marked(self.calls, arguments);
        let mut arguments = opaque(&data);
        let count = (data.len() as u32).to_be_bytes();
        let result = if procedure == 1 { opaque(beginning(&data)) } else { count.to_vec() };
        let call = Call { export, procedure, deadline: None, trace: None, token };
        if self.talk.start(|| now, &call, &mut arguments).is_ok() {
            self.expected.insert(token, result);
        }
    }

    /// All that the calling end has to say arrives.
    fn transmit(&mut self, now: Time, line: &mut Line) {
        while let Some(len) = self.talk.transmit(now, &mut self.out) {
            self.arrive(line, THERE.into(), self.out[..len].to_vec());
        }
    }

    fn arrive(&mut self, line: &mut Line, from: SocketAddr, datagram: Vec<u8>) {
        if datagram.len() <= MAX_DATAGRAM {
            self.last = Some((from, datagram.clone()));
            line.datagrams.push_back((from, datagram));
        }
    }

    /// Takes steps until something arrives.
    fn play(&mut self, now: Time, line: &mut Line) -> Brought {
        while let Some(step) = self.steps.pop_front() {
            match step {
                Step::Calls { procedure, arguments } => self.call(now, procedure, arguments),
                Step::Arrive => self.transmit(now, line),
                Step::Sealed { choice, frames } => {
                    self.forged = true;
                    self.number += 1;
                    let number =
                        [self.number, self.number, self.number / 2, u64::MAX][usize::from(choice & 3)];
                    let datagram = fuzzing::seal(self.conversation.unwrap_or(0), number, &frames);
                    self.transmit(now, line);
                    self.arrive(line, THERE.into(), datagram);
                    continue;
                }
                Step::Unsealed { from, bytes } => {
                    self.forged = true;
                    self.arrive(line, from, bytes);
                    continue;
                }
                Step::Again => {
                    self.transmit(now, line);
                    line.datagrams.extend(self.last.clone());
                    continue;
                }
                Step::Pass(time) if line.datagrams.is_empty() => return Brought::Passed(time),
                // What came before is received before.
                Step::Pass(time) => self.steps.push_front(Step::Pass(time)),
            }
            if !line.datagrams.is_empty() {
                return Brought::Arrived;
            }
        }
        arrived(line)
    }
}

struct Shared(Arc<Mutex<Caller>>);

impl Other for Shared {
    fn hear(&mut self, now: Time, datagram: &[u8]) {
        let mut caller = lock(&self.0);
        if caller.conversation.is_none() {
            caller.read(now, datagram);
        } else {
            caller.heard.push(datagram.to_vec());
        }
    }

    /// Binds and calls once, and then follows the script.
    fn bring(&mut self, now: Time, line: &mut Line) -> Brought {
        let mut caller = lock(&self.0);
        if caller.conversation.is_some() {
            return caller.play(now, line);
        }
        if caller.export.is_some() && caller.calls == 0 {
            caller.call(now, 1, 4);
        }
        if !caller.answered.is_empty() {
            caller.conversation = conversation(&caller.out);
            return caller.play(now, line);
        }
        caller.transmit(now, line);
        arrived(line)
    }
}

/// The identifier of the conversation that stands in a datagram.
fn conversation(datagram: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(datagram.get(4..12)?.try_into().ok()?))
}
