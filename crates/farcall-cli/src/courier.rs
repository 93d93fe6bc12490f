//! Servers of Courier on the command line.

use std::error::Error as _;

use farcall::dynamic::Dynamic;
use farcall::{CallFailed, Kind};
use farcall_courier::bulk::NotAttached;
use farcall_courier::client::UndeclaredError;
use farcall_courier::{Builder, cooper};
use farcall_idl::x::Version;

use crate::failure::{Failure, Outcome};
use crate::remote::Deadline;

/// Returns a binding to the server at an address, `tcp://HOST:PORT` or `unix:PATH`, for the program that a
/// `.cr` file describes. A program without numbers is in Cooper's form, and called in his dialect.
pub fn bind(address: &str, version: &Version, deadline: &Deadline) -> Outcome<Dynamic> {
    let left = deadline.left();
    let bound = if is_coopers(version) {
        let builder = cooper::Builder::default().program(&version.spelled.name);
        let builder = match left {
            Some(left) => builder.connect_within(left),
            None => builder,
        };
        builder.bind(&version.interface, address)
    } else {
        let builder = match left {
            Some(left) => Builder::default().connect_within(left),
            None => Builder::default(),
        };
        builder.bind(&version.interface, version.program, version.version, address)
    };
    let bound = bound.map_err(|why| failed(why, version))?;
    Ok(Dynamic::described(bound, version.spelled.clone()))
}

fn is_coopers(version: &Version) -> bool {
    (version.program, version.version) == (0, 0)
}

/// Returns the failure of a call by Courier, with a hint that applies to it.
pub fn failed(why: impl Into<CallFailed>, version: &Version) -> Failure {
    let why = why.into();
    let source = why.source();
    if source.is_some_and(|source| source.is::<NotAttached>()) {
        return Failure::from(why)
            .in_place_of_hint("the command passes no bulk data: give the descriptor null");
    }
    if source.is_some_and(|source| source.is::<UndeclaredError>()) {
        return Failure::from(why).in_place_of_hint("the server may have been made of another .cr file");
    }
    let hint = match why.kind() {
        Kind::NoSuchName => "an address is tcp://HOST:PORT or unix:PATH",
        Kind::NotExported if is_coopers(version) => {
            "a server of Cooper's dialect finds a program by its name, which the .cr file gives"
        }
        Kind::BadResult | Kind::Unreachable if is_coopers(version) => {
            "the .cr file has no numbers, so the call was made in Cooper's dialect: does the server speak it?"
        }
        Kind::NotExported => "the server speaks Courier, but does not serve the program of the .cr file",
        Kind::Mismatch => "is there a .cr file of a version that the server has?",
        Kind::NoSuchProcedure => "the server has fewer procedures than the .cr file",
        Kind::BadArguments => "is the .cr file the one that the server was made of?",
        Kind::BadResult => {
            "does what answers at that address speak Courier, in the framing of docs/courier-wire.md?"
        }
        Kind::Other => "the procedure failed there",
        Kind::Deadline => "--within SECONDS gives it more time",
        _ => "does it run there?",
    };
    Failure::from(why).in_place_of_hint(hint)
}
