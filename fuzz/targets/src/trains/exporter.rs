//! The fuzz target for trains that a server receives. A train must have the same effect as its datagrams have
//! one by one.

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

/// The most bytes of arguments that one script can send.
const MAX_ARGUMENT_BYTES: usize = 40 << 10;
/// The most calls that one script can make.
const MAX_CALLS: u32 = 96;

/// Runs a script of calls and datagrams twice: once the server receives datagrams that arrive together in
/// trains, and once it receives each datagram by itself. The server must execute the same calls in both runs.
///
/// | step | operands |
/// |---|---|
/// | first | byte: settings of the server |
/// | 0–2 calls | byte: how many, and the procedure (highest bit); filling: arguments |
/// | 3 all calls arrive | |
/// | 4 datagram with a valid seal | byte: number; text: frames |
/// | 5 datagram without a seal | byte: 1 if from a stranger; text |
/// | 6 time passes | duration |
/// | 7 the last datagram arrives again | |
pub fn trains_to_server(data: &[u8]) {
    let alone = run(data, false);
    let joined = run(data, true);
    assert!(
        alone.executed == joined.executed,
        "the server executes different calls if datagrams arrive in trains: {}",
        told(&alone, &joined)
    );
    if !joined.forged {
        for (token, got) in &joined.answered {
            assert!(*got == joined.expected[token], "a call gets its own result");
        }
    }
}

/// The effects of one run of a script.
struct Seen {
    /// The calls that were executed, sorted: procedures and arguments.
    executed: Vec<(u32, Vec<u8>)>,
    /// The results that the calls must get, by token.
    expected: HashMap<u64, Vec<u8>>,
    /// The results that the calls got, by token.
    answered: HashMap<u64, Vec<u8>>,
    /// Whether the script has sent datagrams that the caller did not make.
    forged: bool,
}

/// Describes the calls that were executed in one run only: the procedure, the length of its arguments and
/// their beginning.
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

/// Runs a script once. `joined` says whether datagrams arrive in trains.
fn run(data: &[u8], joined: bool) -> Seen {
    let (settings, script) = data.split_first().unwrap_or((&0, &[]));
    let caller = Arc::new(Mutex::new(Caller::new(script)));
    let outside = Outside::new(joined, Box::new(Shared(caller.clone())));
    let executed = Arc::new(Executed::default());
    let served = serve(&outside, *settings, &executed);
    // The thread that receives when the script is over ends the server.
    *lock(&outside.over) = Some(Box::new(move || drop(served)));
    while let Some(worker) = outside.thread("farcall-worker") {
        worker();
    }
    assert!(lock(&outside.over).is_none(), "a thread of the server receives until the script is over");
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

/// Returns the result of a call. It is short: a call with a long result would wait until the caller has
/// fetched other long results, and this caller fetches none.
fn beginning(data: &[u8]) -> &[u8] {
    &data[..data.len().min(64)]
}

/// The exported server. It notes the procedure and the arguments of each call.
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

/// The calling end, which uses the real protocol. It handles the datagrams that it receives only after the
/// script is over, so that the datagrams that it sends do not depend on how the server received earlier ones.
struct Caller {
    talk: Conversation,
    out: Vec<u8>,
    /// The server's export, once it is bound.
    export: Option<u64>,
    /// The server's identifier of the conversation, once a call has returned.
    conversation: Option<u64>,
    /// The steps of the script that are not taken yet.
    steps: VecDeque<Step>,
    /// The datagrams that were received while the script ran.
    heard: Vec<Vec<u8>>,
    expected: HashMap<u64, Vec<u8>>,
    answered: HashMap<u64, Vec<u8>>,
    forged: bool,
    calls: u32,
    /// The number of the last forged datagram.
    number: u64,
    /// The last datagram that arrived, with its sender.
    last: Option<(SocketAddr, Vec<u8>)>,
}

/// A step of the script.
enum Step {
    Calls { procedure: u32, arguments: usize },
    Arrive,
    Sealed { choice: u8, frames: Vec<u8> },
    Unsealed { from: SocketAddr, bytes: Vec<u8> },
    Pass(Duration),
    Again,
}

/// Reads the steps of a script.
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
                    if bytes <= MAX_ARGUMENT_BYTES && calls <= MAX_CALLS {
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
        let max_outstanding = 2 * MAX_CALLS;
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

    /// Starts a call. Its result must be the beginning of its arguments, or their number.
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

    /// Sends everything that the calling end has to send. It arrives at once.
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
                // The server receives earlier datagrams before the time passes.
                Step::Pass(time) => self.steps.push_front(Step::Pass(time)),
            }
            if !line.datagrams.is_empty() {
                return Brought::Arrived;
            }
        }
        arrived(line)
    }
}

/// The calling end, which the target shares with the environment.
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

    /// Binds the export and makes one call, and then follows the script.
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

/// Returns the identifier of the conversation in the header of a datagram.
fn conversation(datagram: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(datagram.get(4..12)?.try_into().ok()?))
}
