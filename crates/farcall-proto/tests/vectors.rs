//! Tests of the vectors of docs/protocol.md: datagrams, and their text.
//!
//! `FARCALL_WRITE_VECTORS=1 cargo test -p farcall-proto --test vectors` makes the file anew. If the file then
//! differs, the wire version has to change.

use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use farcall_proto::client::{Call, CallId, CallProgress, Conversation};
use farcall_proto::fuzzing::{kinds, seal};
use farcall_proto::server::{CallKey, Export, Finish, Request, Server};
use farcall_proto::{
    ClientConfig, Failure, Fingerprint, Kind, Ran, SameUser, ServerConfig, Time, Trace, UserSecret,
    UserSecrets, dump,
};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/vectors/datagrams.txt");

struct Script {
    now: Time,
    client: Conversation,
    server: Server,
    from: SocketAddr,
    /// The call that the server executes and has not finished.
    running: Option<CallKey>,
    out: String,
}

/// Loses no datagram.
const ALL: &[usize] = &[];

impl Script {
    fn new(from: &str) -> Script {
        Script::with(from, ServerConfig::default())
    }

    fn with(from: &str, config: ServerConfig) -> Script {
        let now = Time::from_nanos(1_000_000_000);
        let from: SocketAddr = from.parse().unwrap();
        let server = server(config, now, *b"the secret of this incarnation..");
        let config = ClientConfig { loopback: from.ip().is_loopback(), ..client_config() };
        let client = Conversation::new(config, 0xc11e_4700);
        Script { now, client, server, from, running: None, out: String::new() }
    }

    fn title(&mut self, text: &str) {
        writeln!(self.out, "\n# {text}").unwrap();
    }

    fn note(&mut self, who: &str, datagram: &[u8], lost: bool) {
        for line in
            dump::dump(datagram).expect("the datagram was made by an end of the script").to_string().lines()
        {
            writeln!(self.out, "# {who} {line}").unwrap();
        }
        if lost {
            writeln!(self.out, "# (It is lost.)").unwrap();
        }
        let hex: String = datagram.iter().map(|b| format!("{b:02x}")).collect();
        writeln!(self.out, "{hex}").unwrap();
    }

    fn call(&mut self, args: &[u8], deadline: Option<Duration>) -> CallId {
        let trace = deadline.map(|_| Trace { trace: *b"trace identifier", span: *b"the span" });
        let call = Call {
            export: 0xe4_9067,
            procedure: 2,
            deadline: deadline.map(|d| self.now + d),
            trace,
            token: 0,
        };
        self.client.start(|| self.now, &call, &mut args.to_vec()).expect("room")
    }

    /// Exchanges and notes datagrams until both ends are silent. Finishes every call by `finish`.
    fn run(&mut self, finish: &Finish, payload: &[u8]) {
        self.exchange(Some((finish, payload)), ALL);
    }

    /// Exchanges and notes datagrams until both ends are silent. `lost` are the positions of the datagrams
    /// that are lost. Without `finish` the calls are executed and do not end.
    fn exchange(&mut self, finish: Option<(&Finish, &[u8])>, lost: &[usize]) {
        let mut place = 0;
        let mut fate = move || (lost.contains(&place), place += 1).0;
        let mut buffer = vec![0; 65_536];
        loop {
            let mut silent = true;
            while let Some(n) = self.client.transmit(self.now, &mut buffer) {
                silent = false;
                let lost = fate();
                self.note("client", &buffer[..n], lost);
                if !lost {
                    self.arrive(&buffer[..n], finish, &mut fate);
                }
            }
            if silent {
                return;
            }
        }
    }

    /// Delivers a datagram to the server, and the answers to the client.
    fn arrive(&mut self, datagram: &[u8], finish: Option<(&Finish, &[u8])>, fate: &mut dyn FnMut() -> bool) {
        let running = &mut self.running;
        self.server.receive(self.now, self.from, datagram, &mut |request| {
            if let Request::Call(call) = request {
                *running = Some(call.key);
            }
        });
        if let Some((finish, payload)) = finish {
            self.finish(finish, payload, fate);
        }
        self.answers(Vec::new(), fate);
    }

    /// Ends the running procedure.
    fn finish(&mut self, finish: &Finish, payload: &[u8], fate: &mut dyn FnMut() -> bool) {
        let Some(key) = self.running.take() else { return };
        let mut buffer = vec![0; 65_536];
        let sent = self.server.finish(self.now, key, finish.clone(), &mut payload.to_vec(), &mut buffer);
        self.answers(sent.map(|t| buffer[..t.len].to_vec()).into_iter().collect(), fate);
    }

    fn answers(&mut self, mut answers: Vec<Vec<u8>>, fate: &mut dyn FnMut() -> bool) {
        let mut buffer = vec![0; 65_536];
        while let Some(t) = self.server.transmit(self.now, &mut buffer) {
            answers.push(buffer[..t.len].to_vec());
        }
        for answer in answers {
            let lost = fate();
            self.note("server", &answer, lost);
            if !lost {
                self.client.receive(self.now, &answer, &mut |_| {});
            }
        }
    }

    /// Lets time pass until the client's timer is due.
    fn wait(&mut self) {
        self.now = self.client.timeout().expect("a timer");
        self.client.handle_timeout(self.now, &mut |_| {});
    }
}

/// The client probes only short datagrams, so that the vectors are short.
fn client_config() -> ClientConfig {
    ClientConfig { max_datagram: 1_452, ..ClientConfig::default() }
}

fn server(config: ServerConfig, now: Time, secret: [u8; 32]) -> Server {
    let mut server = Server::new(config, now, secret);
    let procedures = vec![
        Fingerprint { number: 1, types: 0x1111_2222_3333_4444, name: 0x9999_aaaa_bbbb_cccc },
        Fingerprint { number: 2, types: 0x5555_6666_7777_8888, name: 0xdddd_eeee_ffff_0001 },
    ];
    server.export(Export { id: 0xe4_9067, type_name: "Store".into(), instance: "one".into(), procedures });
    server
}

fn datagrams() -> String {
    let mut s = Script::new("10.0.0.1:1000");
    s.out
        .push_str("# Datagrams of wire version 1. A line of digits is a datagram; above it, what it says.\n");
    s.title("binding by name");
    s.client.bind(s.now, "Store/one", 1);
    s.run(&Finish::Result, &[]);
    simple_calls(&mut s);
    s.title("a client that has moved");
    s.from = "10.0.0.1:2000".parse().unwrap();
    s.call(b"here", None);
    s.run(&Finish::Result, b"yes.");
    let mut out = s.out;
    for part in [
        local,
        running_calls,
        patience,
        cancels,
        fragments,
        forgotten,
        full,
        restarted,
        drained,
        exchanges,
        users,
        wanted,
    ] {
        out += &part();
    }
    out
}

fn simple_calls(s: &mut Script) {
    s.title("a first call, which shows the ticket, and its result");
    s.call(b"argument", None);
    s.run(&Finish::Result, b"result..");
    s.title("a simple call, with a deadline and trace context, that ends in an exception");
    s.call(b"argument", Some(Duration::from_millis(1500)));
    s.run(&Finish::Exception, b"oops");
    s.title("a refusal");
    s.call(&[], None);
    let refused = Failure::new(Kind::Overloaded, Ran::No).with_detail("the queue is full");
    s.run(&refused.into(), &[]);
    s.title("a result that is lost, and the call sent again");
    s.call(b"once", None);
    s.exchange(Some((&Finish::Result, b"done")), &[1]);
    s.wait();
    s.run(&Finish::Result, b"done");
}

fn local() -> String {
    let mut s = Script::new("127.0.0.1:1000");
    s.title("two ends on one machine: binding in the open scheme, then a call in the local one");
    s.call(b"argument", None);
    s.run(&Finish::Result, b"result..");
    s.title("bytes of no call");
    let mut buffer = vec![0; 1_200];
    let len = s.client.post(0xe4_9067, b"not once", &mut buffer).expect("room");
    s.note("client", &buffer[..len], false);
    s.out
}

/// Makes calls of two activities, so that the client sends an ACK. The server answers about a call that it is
/// executing, and about a call that is gone.
fn running_calls() -> String {
    let mut s = Script::with(
        "10.0.0.1:1000",
        ServerConfig { hold: Duration::from_millis(1), ..ServerConfig::default() },
    );
    s.title("a call that takes long: it is sent again, then asked for");
    s.call(b"slow", None);
    s.exchange(None, ALL);
    for _ in 0..2 {
        s.wait();
        s.exchange(None, ALL);
    }
    s.title("a second call meanwhile, of another activity, and another, with an ACK");
    let slow = s.running.take();
    for _ in 0..2 {
        s.call(b"fast", None);
        s.run(&Finish::Result, b"done");
    }
    s.title("the result of the first is lost, is no longer held, and is asked for");
    s.running = slow;
    s.finish(&Finish::Result, b"late", &mut || true);
    s.now = s.now + Duration::from_secs(1);
    s.server.handle_timeout(s.now);
    for _ in 0..2 {
        s.wait();
        s.exchange(None, ALL);
    }
    s.title("a question that overtakes its call, which was lost");
    s.call(&[7; 4_000], None);
    s.exchange(None, &[0, 1, 2, 3]);
    s.wait();
    s.exchange(Some((&Finish::Result, b"done")), ALL);
    s.out
}

/// Makes a call of a client with a patience of its own, which reports that it waits. The call goes on after
/// its caller has detached it.
fn patience() -> String {
    let mut s = Script::new("10.0.0.1:1000");
    s.client =
        Conversation::new(ClientConfig { patience: Duration::from_secs(1), ..client_config() }, 0xc11e_4700);
    s.title("a call of a client whose patience is 1 s; its probes and keep-alives");
    let id = s.call(b"slow", None);
    s.exchange(None, ALL);
    let began = s.now;
    while s.now.since(began) < Duration::from_secs(1) {
        s.wait();
        s.exchange(None, ALL);
    }
    s.title("its caller detaches it");
    s.client.detach(id, false);
    s.exchange(None, ALL);
    s.out
}

fn cancels() -> String {
    let mut s = Script::new("10.0.0.1:1000");
    s.title("a call that is cancelled while it is executed");
    let id = s.call(b"slow", None);
    s.exchange(None, ALL);
    s.client.cancel(s.now, id);
    s.exchange(None, ALL);
    s.title("a call that is lost; its cancel arrives and consumes the number");
    let id = s.call(b"lost", None);
    s.exchange(None, &[0]);
    s.client.cancel(s.now, id);
    s.exchange(None, ALL);
    s.out
}

fn fragments() -> String {
    let mut s = Script::new("10.0.0.1:1000");
    s.title("a lossy exchange: long arguments whose second fragment is lost, and a long result whose last ones are");
    s.call(&pattern(5_000), None);
    s.exchange(None, &[3]);
    s.wait();
    s.exchange(None, ALL);
    let result = pattern(5_000);
    let mut place = 0;
    s.finish(&Finish::Result, &result, &mut || (place > 1, place += 1).0);
    s.wait();
    s.exchange(None, ALL);
    s.out
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8).collect()
}

fn forgotten() -> String {
    let mut s =
        Script::with("10.0.0.1:1000", ServerConfig { max_conversations: 1, ..ServerConfig::default() });
    s.title(
        "a conversation that is forgotten, since the server has room for one; the client may not come back",
    );
    s.call(b"here", None);
    s.run(&Finish::Result, b"yes.");
    let other = Conversation::new(client_config(), 0xc11e_4701);
    let first = std::mem::replace(&mut s.client, other);
    s.call(b"here", None);
    s.run(&Finish::Result, b"yes.");
    s.client = first;
    s.now = s.now + Duration::from_secs(1);
    s.call(b"late", None);
    s.run(&Finish::Result, b"yes.");
    s.out
}

fn full() -> String {
    let mut s =
        Script::with("10.0.0.1:1000", ServerConfig { max_conversations: 1, ..ServerConfig::default() });
    s.title("a server with room for one conversation, which is busy");
    s.call(b"slow", None);
    s.exchange(None, ALL);
    s.client = Conversation::new(client_config(), 0xc11e_4701);
    s.call(b"next", None);
    s.exchange(None, ALL);
    s.out
}

fn restarted() -> String {
    let mut s = Script::new("10.0.0.1:1000");
    s.title("a server that is another incarnation");
    s.call(b"here", None);
    s.run(&Finish::Result, b"yes.");
    s.now = s.now + Duration::from_secs(60);
    s.server = server(ServerConfig::default(), s.now, *b"the secret of another one.......");
    s.now = s.now + Duration::from_secs(10);
    s.call(b"late", None);
    s.exchange(Some((&Finish::Result, b"yes.")), ALL);
    s.out
}

fn drained() -> String {
    let mut s = Script::new("10.0.0.1:1000");
    s.title("a server that drains, and a call that it has not received");
    s.call(b"here", None);
    s.run(&Finish::Result, b"yes.");
    s.call(b"late", None);
    s.exchange(None, &[0]);
    s.server.drain(s.now, None);
    s.server.tell_drain(None);
    let mut buffer = vec![0; 65_536];
    let sent = s.server.transmit(s.now, &mut buffer).expect("a word to the client");
    s.answers(vec![sent.gather(&buffer)], &mut || false);
    s.out
}

/// Asks a client about a call that it has given up, and makes a call of a client that asks for a long
/// silence.
fn wanted() -> String {
    let mut s = Script::new("10.0.0.1:1000");
    s.title("a call that is cancelled while it is executed; its CANCEL is lost, and later the server asks");
    let id = s.call(b"slow", None);
    s.exchange(None, ALL);
    s.client.cancel(s.now, id);
    while s.client.progress(id) != CallProgress::Ended {
        s.exchange(None, &[0]);
        s.wait();
    }
    s.running = None;
    let words = [id.activity, 0, 0, id.sequence as u32].map(u32::to_be_bytes);
    let question = [&[kinds::WANTED, 0, 0, 16][..], words.as_flattened()].concat();
    s.answers(vec![seal(s.client.id(), 1 << 20, &question)], &mut || false);
    s.exchange(None, ALL);
    s.title("a call of a client that may be silent for ten minutes");
    let silent = ClientConfig { server_patience: Some(Duration::from_secs(600)), ..client_config() };
    s.client = Conversation::new(silent, 0xc11e_4701);
    s.call(b"here", None);
    s.run(&Finish::Result, b"yes.");
    s.out
}

/// Writes the frames of exchanges.
fn exchanges() -> String {
    let mut s = Script::new("10.0.0.1:1000");
    s.title("frames of exchanges");
    let frame = |kind: u8, flags: u8, words: &[u32]| {
        let len = (4 * words.len() as u16).to_be_bytes();
        let body = words.iter().flat_map(|word| word.to_be_bytes());
        [kind, flags, len[0], len[1]].into_iter().chain(body).collect::<Vec<u8>>()
    };
    let about = |kind: u8, flags: u8, more: &[u32]| frame(kind, flags, &[&[0, 2, 0, 1], more].concat());
    let question = about(kinds::DATA, 1, &[0, 0, 7]);
    let answer = about(kinds::DATA, 3, &[0, 0, 0]);
    let credit = about(kinds::CREDIT, 0, &[0, 8, 0, 12_000, 0, 3, 4, 8]);
    let enough = about(kinds::CREDIT, 2, &[0, 8, 0, 12_000, 0, 3]);
    let result = frame(kinds::RESULT, 8, &[0, 0, 0, 1, 0, 1]);
    for (number, (who, frames)) in
        [("server", question), ("client", answer), ("client", credit), ("server", enough), ("server", result)]
            .into_iter()
            .chain([("client", about(kinds::STOP, 0, &[5])), ("server", about(kinds::DATA, 5, &[0, 8]))])
            .enumerate()
    {
        s.note(who, &seal(0xc11e_4700, number as u64 + 1, &frames), false);
    }
    s.out
}

/// The secret of a user: `0f` sixteen times.
#[derive(Debug)]
struct Secret;

impl UserSecrets for Secret {
    fn secrets(&self) -> Result<Vec<UserSecret>, String> {
        Ok(vec![UserSecret::new([0x0f; 16])])
    }
}

/// Binds at a server that lets in processes of its own user only. It knows the secret `0f` sixteen times, and
/// is at 127.0.0.1:7000.
fn users() -> String {
    let same_user = Some(SameUser::new(Arc::new(Secret), "127.0.0.1:7000".parse().unwrap()));
    let config = ServerConfig { same_user: same_user.clone(), ..ServerConfig::default() };
    let mut s = Script::with("127.0.0.1:1000", config);
    let config = ClientConfig { same_user, loopback: true, ..client_config() };
    s.client = Conversation::new(config, 0xc11e_4700);
    s.title(
        "a server at 127.0.0.1:7000 for processes of one user, whose secret is 0f0f...0f: challenge, proof",
    );
    s.client.bind(s.now, "Store/one", 1);
    s.run(&Finish::Result, &[]);
    s.title("a further question shows the ticket as proof");
    s.client.bind(s.now, "Store", 2);
    s.run(&Finish::Result, &[]);
    s.out
}

/// Checks that every type of frame is in the vectors.
#[test]
fn the_vectors_have_every_frame() {
    let made = datagrams();
    for word in [
        "BIND",
        "WELCOME",
        "CHALLENGE",
        "STALE",
        "Incarnation",
        "Horizon",
        "Address",
        "Full",
        "TICKET",
        "CALL",
        "RESULT",
        "SELECT",
        "CANCEL",
        "PROBE",
        "Unknown",
        "Running",
        "Gone",
        "MTU-PROBE",
        "MTU-ECHO",
        "POST",
        "DATA",
        "CREDIT",
        "STOP",
        "ACK",
        "USER-PROOF",
        "DRAIN",
        "WANTED",
    ] {
        assert!(made.contains(word), "{word} is not in the vectors");
    }
}

#[test]
fn datagrams_equal_the_vectors_of_the_document() {
    let made = datagrams();
    if std::env::var_os("FARCALL_WRITE_VECTORS").is_some() {
        std::fs::create_dir_all(std::path::Path::new(FILE).parent().unwrap()).unwrap();
        std::fs::write(FILE, &made).unwrap();
    }
    let Ok(written) = std::fs::read_to_string(FILE) else {
        println!("skipped: {FILE} is not here (the crate stands alone)");
        return;
    };
    for (i, (made, written)) in made.lines().zip(written.lines()).enumerate() {
        assert_eq!(made, written, "line {} of docs/vectors/datagrams.txt", i + 1);
    }
    assert_eq!(made.lines().count(), written.lines().count());
}

#[test]
fn every_vector_is_shown_as_its_comment_says() {
    let Ok(written) = std::fs::read_to_string(FILE) else { return };
    let mut said = Vec::new();
    let mut read = 0;
    for line in written.lines() {
        if let Some(text) = line.strip_prefix("# client ").or(line.strip_prefix("# server ")) {
            said.push(text);
            continue;
        }
        if line.starts_with('#') || line.is_empty() {
            continue;
        }
        let text = dump::dump(&dump::from_hex(line).unwrap()).unwrap().to_string();
        assert_eq!(text.lines().collect::<Vec<_>>(), std::mem::take(&mut said));
        read += 1;
    }
    assert!(read >= 14, "only {read} vectors were read");
}
