//! Servers of Courier on the command line.

use farcall::dynamic::Dynamic;
use farcall::{CallFailed, Kind};
use farcall_courier::Builder;
use farcall_idl::x::Version;

use crate::failure::{Failure, Outcome};
use crate::remote::Deadline;

/// Returns a binding to the server at an address, `tcp://HOST:PORT` or `unix:PATH`, for the program that a
/// `.cr` file describes.
pub fn bind(address: &str, version: &Version, deadline: &Deadline) -> Outcome<Dynamic> {
    let builder = match deadline.left() {
        Some(left) => Builder::default().connect_within(left),
        None => Builder::default(),
    };
    let bound = builder.bind(&version.interface, version.program, version.version, address);
    Ok(Dynamic::described(bound.map_err(failed)?, version.spelled.clone()))
}

/// Returns the failure of a call by Courier, with a hint that applies to it.
pub fn failed(why: impl Into<CallFailed>) -> Failure {
    let why = why.into();
    let hint = match why.kind() {
        Kind::NoSuchName => "an address is tcp://HOST:PORT or unix:PATH",
        Kind::NotExported => "the server speaks Courier, but does not serve the program of the .cr file",
        Kind::Mismatch => "is there a .cr file of a version that the server has?",
        Kind::NoSuchProcedure => "the server has fewer procedures than the .cr file",
        Kind::BadArguments => "is the .cr file the one that the server was made of?",
        Kind::BadResult => {
            "does what answers at that address speak Courier, in the framing of docs/courier-wire.md?"
        }
        Kind::Other => "the procedure failed there, or reported an error that the .cr file does not declare",
        Kind::Deadline => "--within SECONDS gives it more time",
        _ => "does it run there?",
    };
    Failure::from(why).in_place_of_hint(hint)
}
