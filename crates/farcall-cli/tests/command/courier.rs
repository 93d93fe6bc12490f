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
