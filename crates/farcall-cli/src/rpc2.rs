//! Servers of RPC2 on the command line.

use farcall::dynamic::Dynamic;
use farcall::{CallFailed, Kind};
use farcall_idl::x::Version;
use farcall_rpc2::Builder;

use crate::failure::{Failure, Outcome};
use crate::remote::Deadline;

/// Returns a binding to the server at an address, `rpc2://HOST:PORT/SUBSYSTEM`, for the subsystem that a
/// `.rpc2` file describes.
pub fn bind(address: &str, version: &Version, deadline: &Deadline) -> Outcome<Dynamic> {
    let mut builder = Builder::default();
    if let Some(left) = deadline.left() {
        builder = builder.resolve_within(left);
    }
    let bound = builder.bind(&version.interface, address);
    Ok(Dynamic::described(bound.map_err(failed)?, version.spelled.clone()))
}

/// Returns the failure of a call by RPC2, with a hint that applies to it.
pub fn failed(why: impl Into<CallFailed>) -> Failure {
    let why = why.into();
    let hint = match why.kind() {
        Kind::NoSuchName => "an address is rpc2://HOST:PORT/SUBSYSTEM, with the subsystem's number",
        Kind::NotExported => "the server speaks RPC2, but does not serve that subsystem without security",
        Kind::NoSuchProcedure => "the server has fewer procedures than the .rpc2 file",
        Kind::BadResult => "is the .rpc2 file the one that the server was made of?",
        Kind::Deadline => "--within SECONDS gives it more time",
        Kind::Unreachable => "does it run there, with RPC2SEC_ONLY=0 in its environment?",
        _ => "does it run there?",
    };
    Failure::from(why).in_place_of_hint(hint)
}
