//! Interfaces as `.cr` files: what is read again has the same description, and what Courier cannot express is
//! refused by name.
#![allow(dead_code, reason = "the interfaces are described, not called")]

use std::path::Path;

use farcall::stub::Interface as _;
use farcall::xdr::{ByteString, Chain};
use farcall_idl::{Interface, cr, language};

/// Returns the interface of the only version in a text.
#[track_caller]
fn read(text: &str) -> Interface {
    let tree = cr::read_text(Path::new("made.cr"), text, &cr::Options::default());
    let tree = tree.unwrap_or_else(|why| panic!("{why}\n{text}"));
    language::interfaces(&tree).unwrap().remove(0).interface
}

/// Returns the interface of a file in `tests/cr`.
fn of_file(file: &str) -> Interface {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cr").join(file);
    let tree = cr::read(&path, &cr::Options::default()).unwrap_or_else(|why| panic!("{why}"));
    language::interfaces(&tree).unwrap().remove(0).interface
}

/// Asserts that a file made of an interface has the same description.
#[track_caller]
fn comes_back(interface: &Interface, program: u32, version: u32) -> String {
    let text = cr::to_cr(interface, program, version).unwrap_or_else(|why| panic!("{why}"));
    let again = read(&text);
    for (before, after) in interface.types.definitions().iter().zip(again.types.definitions()) {
        assert_eq!(before, after, "{text}");
    }
    assert_eq!(&again, interface, "{text}");
    text
}

#[test]
fn what_is_read_again_has_the_same_description() {
    let text = comes_back(&of_file("PasswordLookup.cr"), 754, 1);
    for part in [
        "-- Looks up an account by its name.\nLookupUser: PROCEDURE [user: STRING]\n\tRETURNS [result: Passwd]\n\tREPORTS [NoSuchUser, OtherError] = 1;",
        "-- nobody has this name or number\nNoSuchUser: ERROR = 0;",
        "OtherError: ERROR [errorstring: STRING] = 1;",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    comes_back(&of_file("Covering.cr"), 4000, 2);
    comes_back(&of_file("Ledger1.cr"), 4001, 1);
    comes_back(&of_file("Cooper.cr"), 0, 0);
}

#[derive(Clone, Debug, farcall::Xdr)]
#[allow(clippy::upper_case_acronyms)]
enum Colour {
    Red,
    STRING,
    Green = 9,
}

#[derive(Clone, Debug, farcall::Xdr)]
enum Shape {
    Nothing,
    Circle { radius: u16, colour: Colour },
    Line((u16, i32)),
    Names(#[xdr(max = 3)] Vec<Limited>),
    Deep(Box<Shape>),
}

#[derive(Clone, Debug, farcall::Xdr)]
struct Limited(#[xdr(max = 7)] String);

#[derive(Clone, Debug, farcall::Xdr)]
enum Refusal {
    Draw,
    Gone { since: u32 },
    Twice(u16, u16),
}

#[farcall::interface]
trait Drawing {
    /// Draws -- or not.
    #[idempotent]
    fn draw(&self, shape: &Shape, at: (i16, i16)) -> farcall::Result<DrawResults, Refusal>;
    fn odd_name(&self, grid: [[u16; 2]; 3]) -> farcall::Result<(), Refusal>;
    fn nothing(&self, nothing: ()) -> farcall::Result<Colour>;
}

#[derive(Clone, Debug, farcall::Xdr)]
struct DrawResults {
    shape: Shape,
    count: i32,
}

#[test]
fn an_interface_of_rust_comes_back_as_far_as_courier_has_words() {
    let interface = <dyn Drawing>::interface();
    let text = cr::to_cr(interface, 4000, 1).unwrap();
    for part in [
        "Drawing: PROGRAM 4000 VERSION 1 =\n",
        "-- Draws - - or not.\nDraw: PROCEDURE [shape: Shape, at: RECORD [field0: INTEGER, field1: INTEGER]]\n\tRETURNS [shape: Shape, count: LONG INTEGER]\n\tREPORTS [draw, Gone, Twice] = 1;",
        "draw: ERROR = 0;",
        "Twice: ERROR [field0: CARDINAL, field1: CARDINAL] = 2;",
        "\tred(0),\n\tsTRING(1),\n\tgreen(9) };",
        "OddName: PROCEDURE [grid: ARRAY 3 OF ARRAY 2 OF CARDINAL]",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    let again = read(&text);
    assert_eq!(again.procedures.len(), 3);
    assert_eq!(
        again.signature(&again.procedures[0]),
        "draw(shape: Shape, at: DrawAt) -> DrawResults raises DrawError"
    );
}

#[derive(Clone, Debug, farcall::Xdr)]
struct Inner {
    size: u64,
}

#[derive(Clone, Debug, farcall::Xdr)]
enum Open {
    #[xdr(tag = 1)]
    One,
    #[xdr(default)]
    Other(i32),
}

#[derive(Clone, Debug, farcall::Xdr)]
#[xdr(extensible)]
struct Grows {
    one: u16,
}

#[derive(Clone, Debug, farcall::Xdr)]
enum Large {
    Large = 65536,
}

#[derive(Clone, Debug, farcall::Xdr)]
struct NoSuchKey;

macro_rules! refusals {
    ($($why:literal: $name:ident fn($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        mod refused {
            use super::*;
            $(#[farcall::interface] pub trait $name { fn run(&self $(, $argument: $type)*) -> $result; })*
        }
        #[test]
        fn what_courier_cannot_express_is_refused_by_name() {
            $(
                let why = cr::to_cr(<dyn refused::$name>::interface(), 1, 1).unwrap_err().to_string();
                assert_eq!(why, concat!("procedure `run`", $why));
            )*
        }
    };
}

refusals! {
    ", argument `data`: Courier has no `opaque<>`": Octets fn(data: &[u8]) -> farcall::Result<()>;
    ", argument `all`: Courier has no `u64` (`Inner.size`)": Wide fn(all: &Inner) -> farcall::Result<()>;
    ", result: Courier has no `f32`": Float fn() -> farcall::Result<f32>;
    ", argument `text`: `string<>` can have more than 65535 bytes, and Courier counts in 16 bits":
        Text fn(text: &str) -> farcall::Result<()>;
    ", argument `text`: `string<>` can have more than 65535 bytes, and Courier counts in 16 bits":
        Bytes fn(text: &ByteString) -> farcall::Result<()>;
    ", argument `list`: `u16<>` can have more than 65535 elements, and Courier counts in 16 bits":
        List fn(list: &[u16]) -> farcall::Result<()>;
    ", result: `u16?` is optional or linked data, for which Courier has `CHOICE`":
        Maybe fn() -> farcall::Result<Option<u16>>;
    ", result: `u16*` is optional or linked data, for which Courier has `CHOICE`":
        Linked fn() -> farcall::Result<Chain<u16>>;
    ", argument `open`: `Open.Other` has all other numbers, which no `CHOICE` admits":
        Default fn(open: &Open) -> farcall::Result<()>;
    ", argument `grows`: `Grows` is extensible, which no record is": Extensible fn(grows: &Grows) -> farcall::Result<()>;
    ", result: `Large.Large` has the number 65536, and Courier's have 16 bits": Tag fn() -> farcall::Result<Large>;
    ", exception: `NoSuchKey` is no enum, and Courier's errors have numbers":
        Exception fn() -> farcall::Result<(), NoSuchKey>;
    ": Courier has no streams of values": Streams fn() -> farcall::Result<farcall::Stream<u16>>;
}
