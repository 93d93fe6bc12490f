//! Tests `call` with a `.cr` file, of a server of Courier.

use std::sync::Arc;

use farcall::xdr::ByteString;
use farcall_courier::Server;
use serde_json::json;

use crate::common::Place;

const LOOKUP: &str = "
Lookup: PROGRAM 31416 VERSION 2 =
BEGIN
    Kind: TYPE = {desk(0), mobile(9)};
    Unknown: ERROR [name: STRING] = 4;
    Find: PROCEDURE [name: STRING] RETURNS [number: LONG CARDINAL, kind: Kind] REPORTS [Unknown] = 1;
    Move: PROCEDURE [name: STRING] = 2;
END.
";

#[derive(Debug, farcall::Xdr)]
enum Kind {
    #[allow(dead_code)]
    Desk = 0,
    Mobile = 9,
}

#[derive(Debug, farcall::Xdr)]
struct FindResults {
    number: u32,
    kind: Kind,
}

#[derive(Debug, farcall::Xdr)]
enum FindError {
    #[xdr(tag = 4)]
    Unknown { name: ByteString },
}

/// The server has no `Move`.
#[farcall::interface(program = 31416, version = 2)]
trait Lookup {
    #[procedure(1)]
    fn find(&self, #[xdr(max = 65535)] name: &ByteString) -> farcall::Result<FindResults, FindError>;
}

struct Here;

impl Lookup for Here {
    fn find(&self, name: &ByteString) -> farcall::Result<FindResults, FindError> {
        match &name[..] {
            b"ada" => Ok(FindResults { number: 1815, kind: Kind::Mobile }),
            _ => Err(FindError::Unknown { name: name.clone() }.into()),
        }
    }
}

#[test]
fn a_server_of_courier_is_called_by_its_file() {
    let place = Place::new();
    place.write("Lookup.cr", LOOKUP);
    let server = Server::builder().program::<dyn Lookup>(Arc::new(Here));
    let server = server.tcp("127.0.0.1:0".parse().unwrap()).start().unwrap();
    let address = format!("tcp://{}", server.addresses()[0]);
    let call =
        |arguments: &[&str]| place.run(&[&["--json", "call", &address, "Lookup.cr"], arguments].concat());

    assert_eq!(call(&["Find", r#""ada""#]).json(), [json!({"number": 1815, "kind": "mobile"})]);
    assert_eq!(call(&["find", r#"{"name": "ada"}"#]).json(), [json!({"number": 1815, "kind": "mobile"})]);
    let said = call(&["Find", r#""bob""#]);
    assert_eq!(
        (said.code, said.out.trim_end()),
        (3, r#"{"exception":{"Unknown":{"name":"bob"}}}"#),
        "{said:?}"
    );
    let said = call(&["Move", r#""ada""#]);
    assert!(said.code != 0 && said.err.contains("NoSuchProcedure"), "{said:?}");
    assert!(said.err.contains("fewer procedures than the .cr file"), "{said:?}");

    place.write("Lookup.cr", LOOKUP.replace("VERSION 2", "VERSION 3"));
    let said = call(&["Find", r#""ada""#]);
    assert!(said.code != 0 && said.err.contains("the server has version 2"), "{said:?}");
    let said = place.run(&["call", "nowhere:at:all", "Lookup.cr", "Find", r#""ada""#]);
    assert!(said.code != 0 && said.err.contains("an address is tcp://HOST:PORT or unix:PATH"), "{said:?}");
}

/// A program of which the server has a newer version: it reports an error that the file lacks.
#[farcall::interface(program = 31417, version = 1)]
trait Newer {
    #[procedure(1)]
    fn find(&self, #[xdr(max = 65535)] name: &ByteString) -> farcall::Result<FindResults, FindError>;
}

impl Newer for Here {
    fn find(&self, name: &ByteString) -> farcall::Result<FindResults, FindError> {
        Lookup::find(self, name)
    }
}

#[test]
fn an_error_that_the_file_does_not_declare_is_told_from_bytes_that_are_no_reply() {
    let place = Place::new();
    let older = "
Newer: PROGRAM 31417 VERSION 1 =
BEGIN
    Find: PROCEDURE [name: STRING] RETURNS [number: LONG CARDINAL, kind: CARDINAL] = 1;
END.
";
    place.write("Newer.cr", older);
    let server = Server::builder().program::<dyn Newer>(Arc::new(Here));
    let server = server.tcp("127.0.0.1:0".parse().unwrap()).start().unwrap();
    let address = format!("tcp://{}", server.addresses()[0]);
    let said = place.run(&["call", &address, "Newer.cr", "Find", r#""bob""#]);
    assert!(said.code != 0 && said.err.contains("error 4"), "{said:?}");
    assert!(said.err.contains("the server may have been made of another .cr file"), "{said:?}");
    assert!(!said.err.contains("framing"), "the server speaks Courier well: {said:?}");
}

#[test]
fn a_call_with_bulk_data_is_refused_by_its_descriptor_and_made_without() {
    #[derive(Debug, farcall::Xdr)]
    enum Source {
        #[xdr(tag = 0)]
        Null,
        #[xdr(tag = 1)]
        #[allow(dead_code)]
        Immediate,
    }
    #[farcall::interface(program = 31418, version = 1)]
    trait Files {
        #[procedure(1)]
        fn store(&self, source: Source) -> farcall::Result<u16>;
    }
    impl Files for Here {
        fn store(&self, source: Source) -> farcall::Result<u16> {
            Ok(match source {
                Source::Null => 7,
                Source::Immediate => 8,
            })
        }
    }
    let place = Place::new();
    let file = "
Files: PROGRAM 31418 VERSION 1 =
BEGIN
    Source: TYPE = CHOICE OF {null(0) => RECORD [], immediate(1) => RECORD []};
    Store: PROCEDURE [source: Source] RETURNS [stored: CARDINAL] = 1;
END.
";
    place.write("Files.cr", file);
    let server = Server::builder().program::<dyn Files>(Arc::new(Here));
    let server = server.tcp("127.0.0.1:0".parse().unwrap()).start().unwrap();
    let address = format!("tcp://{}", server.addresses()[0]);
    let said = place.run(&["--json", "call", &address, "Files.cr", "Store", r#"{"source": "null"}"#]);
    assert_eq!(said.json(), [json!(7)]);
    let said = place.run(&["call", &address, "Files.cr", "Store", r#"{"source": "immediate"}"#]);
    assert!(said.code != 0 && said.err.contains("the command passes no bulk data"), "{said:?}");
    assert!(!said.err.contains("does it run there"), "{said:?}");
}

/// A file without numbers is of Cooper's form, and so are the servers of its programs.
#[test]
fn a_program_in_coopers_form_is_called_in_his_dialect() {
    #[farcall::interface]
    trait Twice {
        #[procedure(1)]
        fn twice(&self, number: u16) -> farcall::Result<u16>;
    }
    impl Twice for Here {
        fn twice(&self, number: u16) -> farcall::Result<u16> {
            Ok(number * 2)
        }
    }
    let place = Place::new();
    place.write(
        "Twice.cr",
        "Twice: PROGRAM = BEGIN Double: PROCEDURE [n: CARDINAL] RETURNS [m: CARDINAL] = 1; END.",
    );
    let server = farcall_courier::cooper::Server::builder().program::<dyn Twice>(Arc::new(Here));
    let server = server.tcp("127.0.0.1:0".parse().unwrap()).start().unwrap();
    let address = format!("tcp://{}", server.addresses()[0]);
    let said = place.run(&["--json", "call", &address, "Twice.cr", "Double", "21"]);
    assert_eq!(said.json(), [json!(42)]);
    place.write(
        "Thrice.cr",
        "Thrice: PROGRAM = BEGIN Triple: PROCEDURE [n: CARDINAL] RETURNS [m: CARDINAL] = 1; END.",
    );
    let said = place.run(&["call", &address, "Thrice.cr", "Triple", "21"]);
    assert!(said.code != 0 && said.err.contains("Unknown Courier program"), "{said:?}");
    assert!(said.err.contains("by its name, which the .cr file gives"), "{said:?}");
    // A server of the standard takes the activation for something else.
    let standard = Server::builder().program::<dyn Lookup>(Arc::new(Here));
    let standard = standard.tcp("127.0.0.1:0".parse().unwrap()).start().unwrap();
    let address = format!("tcp://{}", standard.addresses()[0]);
    let said = place.run(&["call", &address, "Twice.cr", "Double", "21"]);
    assert!(said.code != 0 && said.err.contains("Cooper's dialect"), "{said:?}");
}
