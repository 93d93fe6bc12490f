//! Tests ONC RPC on the command line: `list`, `call` with an .x file, `ping`.

use std::sync::Arc;

use crate::common::Place;
use farcall::xdr::ByteString;
use farcall_onc::Server;
use farcall_onc::rpcbind::Mapper;
use serde_json::{Value, json};

const GREETER: &str = "
enum tone { FRIENDLY = 1, FORMAL = 2 };
struct guest { string name<20>; tone how; };
program GREETER {
    version GREETER_V1 { string GREET(string) = 1; } = 1;
    version GREETER_V2 { void NULL(void) = 0; string GREET(guest) = 1; string BYTES(void) = 2; } = 2;
} = 0x20000077;
";

#[derive(Clone, Copy, Debug, PartialEq, farcall::Xdr)]
enum Tone {
    Friendly = 1,
    Formal = 2,
}

#[derive(Clone, Debug, farcall::Xdr)]
struct Guest {
    name: ByteString,
    how: Tone,
}

#[farcall::interface(program = 0x2000_0077, version = 2)]
trait Greeter {
    fn greet(&self, guest: &Guest) -> farcall::Result<ByteString>;
    fn bytes(&self) -> farcall::Result<ByteString>;
}

struct Host;

impl Greeter for Host {
    fn greet(&self, guest: &Guest) -> farcall::Result<ByteString> {
        let word = if guest.how == Tone::Formal { "Good day" } else { "Hello" };
        Ok(format!("{word}, {}", guest.name).into())
    }

    fn bytes(&self) -> farcall::Result<ByteString> {
        Ok(ByteString::from(vec![0x66, 0xff]))
    }
}

struct Fixture {
    place: Place,
    server: Server,
    _mapping: Server,
    mapper: String,
}

fn fixture() -> Fixture {
    let place = Place::new();
    place.write("greeter.x", GREETER);
    let mapper = Mapper::default();
    let mapping = Server::builder().mapper(&mapper).address("127.0.0.1:0".parse().unwrap()).start().unwrap();
    let server = Server::builder().program::<dyn Greeter>(Arc::new(Host)).register_at(&mapper);
    let server = server.address("127.0.0.1:0".parse().unwrap()).start().unwrap();
    let mapper = format!("tcp://{}", mapping.tcp().unwrap());
    Fixture { place, server, _mapping: mapping, mapper }
}

#[test]
fn a_host_says_what_it_has_registered() {
    let fixture = fixture();
    let said = fixture.place.run(&["list", &fixture.mapper]).ok();
    let port = fixture.server.tcp().unwrap().to_string();
    let line = said.lines().find(|line| line.contains("0x20000077") && line.contains("tcp")).unwrap();
    assert!(line.contains(&port), "{said}");
    assert!(said.lines().any(|line| line.contains("100000") && line.contains("rpcbind")), "{said}");
    let said = fixture.place.run(&["--json", "list", &fixture.mapper]).ok();
    let rows: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ours = rows.iter().filter(|row| row["program"] == 0x2000_0077).collect::<Vec<_>>();
    assert!(
        ours.iter().any(|row| row["netid"] == "tcp" && row["address"] == port && row["version"] == 2),
        "{said}"
    );
}

#[test]
fn hints_do_not_lead_back_to_what_was_just_tried() {
    let place = Place::new();
    // No other test has ports at this address. A port of the usual address could belong to another test.
    let taken = std::net::UdpSocket::bind("127.0.7.3:0").unwrap();
    let address = format!("tcp://{}", taken.local_addr().unwrap());
    let said = place.run(&["list", &address]);
    assert!(
        said.code == 4 && said.err.contains("rpcbind") && !said.err.contains("farcall list"),
        "{}",
        said.err
    );
    // The user has forgotten the .x file.
    let said = place.run(&["call", &address, "GREET"]);
    assert!(said.code == 2 && said.err.contains("an .x file follows the address"), "{}", said.err);
    // This protocol needs a file.
    let call = ["call", &address, "nfs4", "NFSPROC4_NULL"];
    for (words, code) in [(&["describe", "nfs4"][..], 4), (&call, 2), (&["ping", &address], 2)] {
        let said = place.run(words);
        let names_protocols = said.err.contains("mount, nfs3, rpcbind, vxi11");
        assert!(said.code == code && names_protocols && !said.err.contains("farcall ping"), "{}", said.err);
    }
    let said = place.run(&["ping", &address, "nfs4"]);
    assert!(said.code == 2 && said.err.contains("mount, nfs3, rpcbind, vxi11"), "{}", said.err);
    // No server answers at this address.
    let address = format!("udp://{}/Store", taken.local_addr().unwrap());
    drop(taken);
    let said = place.run(&["ping", &address, "--within", "5"]);
    assert!(said.code == 4 && !said.err.contains("farcall ping"), "{}", said.err);
}

#[test]
fn a_host_without_a_port_mapper_is_told_by_its_port() {
    let place = Place::new();
    for words in [&["ping", "127.0.0.9", "nfs"][..], &["call", "tcp://127.0.0.9", "nfs3", "NFSPROC3_NULL"]] {
        let said = place.run(&[words, &["--within", "5"]].concat());
        assert!(said.code == 4 && said.err.contains("farcall list 127.0.0.9"), "{}", said.err);
    }
}

#[test]
fn who_does_not_answer_is_asked_for_no_version() {
    let place = Place::new();
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = format!("udp://{}", taken.local_addr().unwrap());
    for program in ["nfs", "0x20000077"] {
        let said = place.run(&["ping", &address, program, "--within", "0.05"]);
        let spelt = if program == "nfs" { "program 100003 at" } else { "program 0x20000077 at" };
        assert!(said.code == 5 && said.err.contains(spelt) && !said.err.contains("version"), "{}", said.err);
    }
}

#[test]
fn a_server_is_called_by_an_x_file() {
    let Fixture { place, server, .. } = &fixture();
    for address in [format!("tcp://{}", server.tcp().unwrap()), format!("udp://{}", server.udp().unwrap())] {
        let guest = json!({ "guest": { "name": "Ada", "how": "Formal" } }).to_string();
        let said = place.run(&["call", &address, "greeter.x", "GREET", &guest]).ok();
        assert_eq!(said, "\"Good day, Ada\"\n");
        // An enumerator is given by the file's name or by its number.
        for how in [json!("FORMAL"), json!(2), json!("2")] {
            let guest = json!({ "name": "Ada", "how": how }).to_string();
            let said = place.run(&["call", &address, "greeter.x", "GREET", &guest]).ok();
            assert_eq!(said, "\"Good day, Ada\"\n");
        }
        // Rust's names are accepted too, and bytes that are not UTF-8 are not lost.
        assert_eq!(
            place.run(&["--json", "call", &address, "greeter.x", "bytes"]).ok(),
            "{\"hex\":\"66ff\"}\n"
        );
    }
    let address = server.tcp().unwrap().to_string();
    let said = place.run(&["call", &address, "greeter.x", "GREET", "--example"]).ok();
    let example: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(example["guest"]["how"], "FRIENDLY");
}

#[test]
fn a_single_argument_may_stand_alone_and_bytes_in_a_file() {
    let Fixture { place, server, .. } = &fixture();
    let address = server.tcp().unwrap().to_string();
    let said = place.run(&["call", &address, "greeter.x", "GREET", r#"{"name":"Ada","how":"Formal"}"#]).ok();
    assert_eq!(said, "\"Good day, Ada\"\n");
    place.write(
        "bytes.x",
        "program P { version V { string GREET(opaque name<20>) = 9; } = 2; } = 0x20000077;",
    );
    place.write("name", "Ada");
    let said = place.run(&["call", &address, "bytes.x", "GREET", r#""@name""#]);
    // The arguments are valid, but the server does not have the procedure.
    assert!(said.code == 4 && said.err.contains("GREET") && said.err.contains(&address), "{}", said.err);
    let said = place.run(&["call", &address, "bytes.x", "GREET", r#""@nowhere""#]);
    assert!(said.code == 2 && said.err.contains("at $: nowhere: "), "{}", said.err);
}

#[test]
fn standard_protocols_are_described_by_their_names() {
    let place = Place::new();
    let said = place.run(&["describe", "nfs3"]).ok();
    assert!(said.contains("interface NfsV3"), "{said}");
    assert_eq!(place.run(&["describe", "mount", "--json"]).json()[0]["program"]["number"], 100_005);
}

#[test]
fn hosts_have_addresses_of_both_families() {
    let place = Place::new();
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        return;
    }
    let server = Server::builder().program::<dyn Greeter>(Arc::new(Host)).address("[::1]:0".parse().unwrap());
    let server = server.start().unwrap();
    let address = server.tcp().unwrap().to_string();
    let said = place.run(&["--json", "ping", &address, "0x20000077", "-c", "1"]).json();
    assert_eq!(said[0]["address"], format!("tcp://{address}"));
    // `::1` has no port here, so its port mapper is asked. It is not there, or does not know the program.
    let said = place.run(&["ping", "::1", "0x20000077", "--within", "5"]);
    assert!(said.code == 4 && said.err.contains("::1"), "{}", said.err);
}

#[test]
fn a_silent_server_costs_no_more_time_than_was_given() {
    let place = Place::new();
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = format!("udp://{}", silent.local_addr().unwrap());
    for words in
        [&["ping", &address, "nfs"][..], &["call", &address, "mount", "MOUNTPROC3_DUMP"], &["list", &address]]
    {
        let said = place.run(&[words, &["--within", "0.05"]].concat());
        assert!(said.code == 5 && said.err.contains(&address) && said.err.contains("hint: "), "{}", said.err);
    }
}

/// Starts a UDP server that answers one call with these words after the call's identifier. Returns its
/// address.
fn says(reply: &[u32]) -> String {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = format!("udp://{}", socket.local_addr().unwrap());
    let reply: Vec<u8> = reply.iter().flat_map(|word| word.to_be_bytes()).collect();
    std::thread::spawn(move || {
        let mut call = [0; 1000];
        let (_, from) = socket.recv_from(&mut call).unwrap();
        socket.send_to(&[&call[..4], &reply].concat(), from).unwrap();
    });
    address
}

#[test]
fn what_is_called_with_and_given_has_the_names_of_the_file() {
    let place = Place::new();
    place.write(
        "names.x",
        "enum colour { RED_ONE = 1, DEEP_BLUE = 7 };
        union shade switch (colour baseColour) { case RED_ONE: hyper redPart; case DEEP_BLUE: void; };
        struct nothing {}; union number switch (int n) { case 3: colour c; default: nothing n; };
        struct both { colour firstColour; shade theShade; number aNumber; opaque fixed[3]; };
        program P { version V { both SWAP(both oldOnes) = 1; } = 1; } = 0x20000055;",
    );
    let result = [1, 0, 0, 0, 0, 7, 1, 0, 9, 4, 0x0102_0300];
    let expected = json!({
        "firstColour": "DEEP_BLUE", "theShade": { "RED_ONE": "9" }, "aNumber": { "default": [4, "nothing"] },
        "fixed": "AQID",
    });
    let rust = json!({
        "first_colour": "DeepBlue", "the_shade": { "RedOne": 9 }, "a_number": { "Default": [4, "Nothing"] },
        "fixed": "AQID",
    });
    let numbers = json!({
        "firstColour": 7, "theShade": { "1": "9" }, "aNumber": { "default": ["4", {}] }, "fixed": { "hex": "010203" },
    });
    for arguments in [&expected, &rust, &numbers] {
        for arguments in [
            arguments.clone(),
            json!([arguments]),
            json!({ "oldOnes": arguments }),
            json!({ "old_ones": arguments }),
        ] {
            let address = says(&result);
            let said =
                place.run(&["--json", "call", &address, "names.x", "SWAP", &arguments.to_string()]).json();
            assert_eq!(said, std::slice::from_ref(&expected), "{arguments}");
        }
    }
    let said = place.run(&["--json", "call", "127.0.0.1:1", "names.x", "SWAP", "--example"]).json();
    let example = json!({
        "firstColour": "RED_ONE", "theShade": { "RED_ONE": "0" }, "aNumber": { "3": "RED_ONE" }, "fixed": "AAAA",
    });
    assert_eq!(said, [json!({ "oldOnes": example })]);
    let twice = r#"{"firstColour": 1, "first_colour": 1}"#;
    let said = place.run(&["call", "127.0.0.1:1", "names.x", "SWAP", twice]);
    assert!(
        said.code == 2 && said.err.contains("firstColour and first_colour name the same field"),
        "{}",
        said.err
    );
}

#[test]
fn a_result_is_judged_by_its_parts() {
    let place = Place::new();
    let arguments = r#"[{"object":{"data":""}}]"#;
    let stale = || says(&[1, 0, 0, 0, 0, 70]);
    let call = |more: &[&str]| {
        place.run(&[&["call", &stale(), "nfs3", "NFSPROC3_GETATTR", arguments], more].concat()).code
    };
    for (more, code) in [
        (["--fail", "status=NFS3ERR_STALE"], 6),
        (["--fail", "$.status=Nfs3errStale"], 6),
        (["--fail", "status=70"], 6),
        (["--fail", "$=NFS3ERR_STALE"], 6),
        (["--fail", "default[0]=NFS3ERR_STALE"], 6),
        (["--fail", "status=NFS3_OK"], 0),
        (["--fail", "default[1]=NFS3ERR_STALE"], 0),
        (["--expect", "status=NFS3ERR_STALE"], 0),
        (["--expect", "status=NFS3_OK"], 6),
        (["--expect", "statsu=NFS3ERR_STALE"], 6),
        (["--fail", "status"], 2),
    ] {
        assert_eq!(call(&more), code, "{more:?}");
    }
}

#[test]
fn a_batch_is_lines_in_and_lines_out() {
    let Fixture { place, server, .. } = &fixture();
    let address = server.tcp().unwrap().to_string();
    let lines = "{\"name\":\"Ada\",\"how\":\"FORMAL\"}\n\n{\"name\":\"Eve\",\"how\":\"RUDE\"}\nnonsense\n[{\"name\":\"Bob\",\"how\":1}]";
    let call = ["call", &address, "greeter.x", "GREET", "--batch", "--fail", "$=Hello, Bob"];
    let said = place.run_with(&call, lines.as_bytes());
    let out: Vec<Value> = said.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((out.len(), said.code, said.err.as_str()), (4, 6, ""), "{said:?}");
    assert_eq!(out[0], json!({ "result": "Good day, Ada" }));
    assert_eq!((&out[1]["error"]["exit"], &out[2]["error"]["exit"]), (&json!(2), &json!(2)));
    assert!(
        out[1]["error"]["message"].as_str().unwrap().contains("$[0]") || out[1].to_string().contains("$.how"),
        "{out:?}"
    );
    assert_eq!(out[3], json!({ "result": "Hello, Bob", "failed": "--fail $=Hello, Bob" }));
    assert_eq!(place.run_with(&["call", &address, "greeter.x", "GREET", "{}", "--batch"], b"").code, 2);
}

/// Each element is a node of its own with a name. As values in memory they once took eighty times their
/// bytes.
#[test]
fn a_long_reply_takes_no_more_memory_than_its_bytes() {
    let place = Place::new();
    place.write("many.x", "struct one { int a; int b; }; typedef one all<>; program P { version V { all F(void) = 1; } = 1; } = 0x20000055;");
    const COUNT: u32 = 1 << 20;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tcp://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut peer, _) = listener.accept().unwrap();
        let mut call = [0; 8];
        peer.read_exact(&mut call).unwrap();
        let words = [[1, 0, 0, 0, 0, COUNT].to_vec(), vec![7; 2 * COUNT as usize]].concat();
        let body: Vec<u8> =
            call[4..].iter().copied().chain(words.iter().flat_map(|word| word.to_be_bytes())).collect();
        let mark = (body.len() as u32 | 1 << 31).to_be_bytes();
        let _ = peer.write_all(&[&mark[..], &body].concat());
        let _ = peer.read_to_end(&mut Vec::new());
    });
    // The address space suffices for eight megabytes of reply and the program, but not for a million objects.
    let limited = "ulimit -v 600000; exec \"$0\" \"$@\"";
    let mut command = std::process::Command::new("sh");
    command.args(["-c", limited, env!("CARGO_BIN_EXE_farcall"), "--json", "call", &address, "many.x", "F"]);
    let mut child = command
        .current_dir(place.path(""))
        .env("FARCALL_REGISTRY", place.registry())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = String::new();
    std::io::Read::read_to_string(&mut child.stdout.take().unwrap(), &mut out).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(out.matches("{\"a\":7,\"b\":7}").count(), COUNT as usize);
}

#[test]
fn the_reason_of_a_default_arm_is_named() {
    let place = Place::new();
    let arguments = r#"[{"object":{"data":""}}]"#;
    // The status NFS3ERR_STALE.
    let address = says(&[1, 0, 0, 0, 0, 70]);
    let said = place.run(&["--json", "call", &address, "nfs3", "NFSPROC3_GETATTR", arguments]).json();
    assert_eq!(said, [json!({ "default": ["NFS3ERR_STALE"] })]);
    let address = says(&[1, 0, 0, 0, 0, 70, 0]);
    let said = place
        .run(&["--json", "call", &address, "nfs3", "NFSPROC3_FSSTAT", r#"[{"fsroot":{"data":""}}]"#])
        .json();
    assert_eq!(said, [json!({ "default": ["NFS3ERR_STALE", { "obj_attributes": null }] })]);
}

#[test]
fn what_a_server_says_is_told_with_its_place_and_what_may_help() {
    let place = Place::new();
    place.write(
        "deep.x",
        "struct inner { bool yes; }; struct outer { inner all<>; };
        program P { version V { outer F(void) = 1; } = 1; } = 0x20000055;",
    );
    // The status AUTH_TOOWEAK (RFC 5531 section 9).
    let address = says(&[1, 1, 1, 5]);
    let said = place.run(&["call", &address, "deep.x", "F"]);
    assert!(said.code == 4 && said.err.contains(&address) && said.err.contains("--auth"), "{}", said.err);
    // The reply contains the boolean 2, deep in the result.
    let address = says(&[1, 0, 0, 0, 0, 3, 1, 0, 2]);
    let said = place.run(&["--json", "call", &address, "deep.x", "F"]);
    let error: Value = serde_json::from_str(&said.err).unwrap();
    let message = error["error"]["message"].as_str().unwrap();
    assert!(said.code == 5 && message.contains(&address) && message.contains("$.all[2].yes"), "{}", said.err);
    assert!(error["error"]["hint"].as_str().unwrap().contains("is the file the one"), "{}", said.err);
    // The reply is SYSTEM_ERR: a server runs there.
    let said = place.run(&["call", &says(&[1, 0, 0, 0, 5]), "deep.x", "F"]);
    assert!(
        said.code == 5 && said.err.contains("its own log") && !said.err.contains("does it run"),
        "{}",
        said.err
    );
    // The server does not speak RPC, so the error does not mention the file.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let http = format!("tcp://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut peer, _) = listener.accept().unwrap();
        peer.read_exact(&mut [0; 4]).unwrap();
        peer.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        let _ = peer.read_to_end(&mut Vec::new());
    });
    let said = place.run(&["call", &http, "deep.x", "F"]);
    assert!(
        said.code == 5 && said.err.contains("another service") && !said.err.contains("is the file the one"),
        "{}",
        said.err
    );
    let said = place.run(&["call", &address, "deep.x", "F", "--program-version", "7"]);
    assert!(said.code == 2 && said.err.contains("it has 1 of P"), "{}", said.err);
}

#[test]
fn mistakes_are_told_where_they_are() {
    let Fixture { place, server, .. } = &fixture();
    let address = server.tcp().unwrap().to_string();
    let said =
        place.run(&["call", &address, "greeter.x", "GREET", r#"{"guest":{"name":"Ada","how":"Rude"}}"#]);
    assert_eq!(said.code, 2);
    assert!(said.err.contains("$.guest.how") && said.err.contains("FRIENDLY"), "{}", said.err);
    let said = place.run(&["call", &address, "greeter.x", "SHOUT"]);
    assert!(said.code == 2 && said.err.contains("GREET, BYTES"), "{}", said.err);
    // The server does not have version 1, and reports which versions it has.
    let said = place.run(&["call", &address, "greeter.x", "GREET", "\"Ada\"", "--program-version", "1"]);
    assert_eq!(said.code, 4);
    assert!(
        said.err.contains("version 2") || said.err.contains("2 to 2") || said.err.contains("2-2"),
        "{}",
        said.err
    );
    let said = place.run(&["call", &address, "nfs3", "NFSPROC3_NULL"]);
    assert!(said.code == 4 && said.err.contains("100003"), "{}", said.err);
    let said = place.run(&["call", &address, "greeter.x"]);
    assert!(said.code == 2 && said.err.contains("GREET, BYTES"), "{}", said.err);
}

#[test]
fn what_the_file_does_not_declare_cannot_be_called_with() {
    let Fixture { place, server, .. } = &fixture();
    place.write(
        "elsewhere.x",
        "program P { version V { void F(stranger) = 1; stranger G(void) = 2; } = 2; } = 0x20000077;",
    );
    let address = format!("tcp://{}", server.tcp().unwrap());
    let said = place.run(&["call", &address, "elsewhere.x", "F", "[null]", "--external", "stranger"]);
    assert!(
        said.code == 2 && said.err.contains("$[0]") && said.err.contains("declared elsewhere"),
        "{}",
        said.err
    );
    let said = place.run(&["call", &address, "elsewhere.x", "G", "--external", "stranger"]);
    assert!(
        said.code == 5 && said.err.contains("G of tcp://") && said.err.contains("declared elsewhere"),
        "{}",
        said.err
    );
}

#[test]
fn a_program_is_pinged_by_its_null_procedure() {
    let Fixture { place, server, .. } = &fixture();
    let address = format!("udp://{}", server.udp().unwrap());
    let said = place.run(&["--json", "ping", &address, "greeter.x", "-c", "3"]).ok();
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(
        (&said["program"], &said["version"], &said["count"]),
        (&json!(0x2000_0077), &json!(2), &json!(3))
    );
    assert_eq!(place.run(&["ping", &address, "nobody"]).code, 2);
    // The server itself reports which versions it has.
    let said = place.run(&["--json", "ping", &address, "0x20000077", "-c", "1"]).json();
    assert_eq!((&said[0]["program"], &said[0]["version"]), (&json!(0x2000_0077), &json!(2)));
    let said = place.run(&["ping", &address, "nfs"]);
    assert!(
        said.code == 4 && said.err.contains("100003") && said.err.contains("farcall list"),
        "{}",
        said.err
    );
}
