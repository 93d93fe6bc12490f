//! The vectors of docs/protocol.md: datagrams, and the text that they stand for.
//!
//! `FARCALL_WRITE_VECTORS=1 cargo test -p farcall-proto --test vectors` makes the file anew; a
//! difference in it is a change of the wire version.

use std::fmt::Write;
use std::net::SocketAddr;
use std::time::Duration;

use farcall_proto::client::{Call, Conversation};
use farcall_proto::server::{Export, Finish, Request, Server};
use farcall_proto::{ClientConfig, Failure, Kind, Ran, ServerConfig, Time, Trace, dump};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/vectors/datagrams.txt");

struct Script {
    now: Time,
    client: Conversation,
    server: Server,
    from: SocketAddr,
    out: String,
}

impl Script {
    fn new(from: &str) -> Script {
        let now = Time::from_nanos(1_000_000_000);
        let mut server = Server::new(ServerConfig::default(), now, *b"the secret of this incarnation..");
        let procedures = vec![(1, 0x1111_2222_3333_4444), (2, 0x5555_6666_7777_8888)];
        server.export(Export { id: 0xe4_9067, type_name: "Store".into(), instance: "one".into(), procedures });
        let from: SocketAddr = from.parse().unwrap();
        let config = ClientConfig { loopback: from.ip().is_loopback(), ..ClientConfig::default() };
        let client = Conversation::new(config, 0xc11e_4700);
        Script { now, client, server, from, out: String::new() }
    }

    fn title(&mut self, text: &str) {
        writeln!(self.out, "\n# {text}").unwrap();
    }

    fn note(&mut self, who: &str, datagram: &[u8]) {
        for line in dump::dump(datagram).expect("our own datagram").to_string().lines() {
            writeln!(self.out, "# {who} {line}").unwrap();
        }
        let hex: String = datagram.iter().map(|b| format!("{b:02x}")).collect();
        writeln!(self.out, "{hex}").unwrap();
    }

    fn call(&mut self, args: &[u8], deadline: Option<Duration>) {
        let trace = deadline.map(|_| Trace { trace: *b"trace identifier", span: *b"the span" });
        let call = Call { export: 0xe4_9067, procedure: 2, deadline: deadline.map(|d| self.now + d), trace, token: 0 };
        self.client.start(self.now, &call, args.to_vec()).expect("room");
    }

    /// Exchanges and notes datagrams until both ends are silent, every call finished by `finish`.
    fn run(&mut self, finish: &Finish, payload: &[u8], deliver: bool) {
        let mut buffer = vec![0; 65_536];
        loop {
            let mut silent = true;
            while let Some(n) = self.client.transmit(self.now, &mut buffer) {
                silent = false;
                self.note("client", &buffer[..n]);
                let mut key = None;
                self.server.handle(self.now, self.from, &buffer[..n], &mut |r| {
                    if let Request::Call(call) = r {
                        key = Some(call.key);
                    }
                });
                let mut answers = Vec::new();
                if let Some(key) = key {
                    let sent = self.server.finish(self.now, key, finish.clone(), &mut payload.to_vec(), &mut buffer);
                    answers.extend(sent.map(|t| buffer[..t.len].to_vec()));
                }
                while let Some(t) = self.server.transmit(self.now, &mut buffer) {
                    answers.push(buffer[..t.len].to_vec());
                }
                for answer in answers {
                    self.note("server", &answer);
                    if deliver {
                        self.client.handle(self.now, &answer, &mut |_| {});
                    }
                }
            }
            if silent {
                return;
            }
        }
    }
}

fn datagrams() -> String {
    let mut s = Script::new("10.0.0.1:1000");
    s.out.push_str("# Datagrams of wire version 1. A line of digits is a datagram; above it, what it says.\n");
    s.title("binding by name");
    s.client.bind(s.now, "Store/one", 1);
    s.run(&Finish::Result, &[], true);
    s.title("a first call, which shows the ticket, and its result");
    s.call(b"argument", None);
    s.run(&Finish::Result, b"result..", true);
    s.title("a simple call, with a deadline and trace context, that ends in an exception");
    s.call(b"argument", Some(Duration::from_millis(1500)));
    s.run(&Finish::Exception, b"oops", true);
    s.title("a refusal");
    s.call(&[], None);
    let refused = Failure::new(Kind::Overloaded, Ran::No).with_detail("the queue is full");
    s.run(&refused.into(), &[], true);
    s.title("a result that is lost, and the call sent again");
    s.call(b"once", None);
    s.run(&Finish::Result, b"done", false);
    s.now = s.now + Duration::from_millis(20);
    s.client.handle_timeout(s.now, &mut |_| {});
    s.run(&Finish::Result, b"done", true);
    s.title("a client that has moved");
    s.from = "10.0.0.1:2000".parse().unwrap();
    s.call(b"here", None);
    s.run(&Finish::Result, b"yes.", true);
    let out = s.out;
    s = Script::new("127.0.0.1:1000");
    s.out = out;
    s.title("two ends on one machine: binding in the open scheme, then a call in the local one");
    s.call(b"argument", None);
    s.run(&Finish::Result, b"result..", true);
    s.title("bytes of no call");
    let mut buffer = vec![0; 1_200];
    let len = s.client.post(0xe4_9067, b"not once", &mut buffer).expect("room");
    s.note("client", &buffer[..len]);
    s.out
}

#[test]
fn datagrams_are_as_they_are_written_down() {
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
fn every_vector_reads_as_its_comment_says() {
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
    assert!(read >= 14, "{read} vectors");
}
