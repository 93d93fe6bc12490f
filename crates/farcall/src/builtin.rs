//! What every exporter answers besides its interface: that it is well, and what it exports.
//!
//! They are procedures with numbers that no interface can have. They cost the others nothing: a number is
//! looked up here only after the interface did not know it.

use std::time::Duration;

use crate::idl::Interface;
use crate::stub::{Dispatched, Procedure};
use crate::xdr::{self, Decode, Decoder, Encode, Encoder};
use crate::{CallFailed, Ran, self_wait};

/// Takes nothing and gives a [`Health`].
pub(crate) static HEALTH: Procedure = Procedure {
    number: 0,
    name: "health",
    idempotent: true,
    blocking: false,
    uncancelled: false,
    deadline: None,
};

/// Takes nothing and gives a [`Description`].
pub(crate) static DESCRIBE: Procedure = Procedure {
    number: 0xffff_0000,
    name: "describe",
    idempotent: true,
    blocking: false,
    uncancelled: false,
    deadline: None,
};

/// Whether a procedure of that number belongs to an interface: every other one is executed by the server's
/// own threads.
fn is_of_interface(procedure: u32) -> bool {
    (HEALTH.number + 1..DESCRIBE.number).contains(&procedure)
}

/// Whether a blocking call of this procedure would wait for the executor that its own thread drives.
#[inline(always)]
pub(crate) fn waits_for_itself(export: u64, procedure: u32) -> bool {
    self_wait::would(export) && is_of_interface(procedure)
}

/// Refuses a blocking call of this procedure if it would wait for itself.
#[inline(always)]
pub(crate) fn may_call(export: u64, procedure: u32) -> Result<(), CallFailed> {
    if waits_for_itself(export, procedure) { Err(self_wait::refusal(Ran::No)) } else { Ok(()) }
}

/// What an exporter says of itself, by being able to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// How long the export has been there.
    pub up: Duration,
    /// Calls of it that execute or are queued, the one that asks included.
    pub running: u32,
}

/// What an exporter says of what it exports.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Description {
    /// The interface, with names, documentation and wire types.
    pub interface: Interface,
    /// The version of the exporter's farcall.
    pub farcall: String,
    /// The wire versions that it speaks, the newest first.
    pub wire: Vec<u32>,
}

/// Executes the call of a number that the interface does not know.
pub(crate) fn dispatch(
    number: u32,
    described: Option<&'static Interface>,
    health: impl FnOnce() -> Health,
    arguments: &mut Decoder<'_>,
    reply: &mut Encoder<'_>,
) -> Dispatched {
    let interface = match (number, described) {
        (number, _) if number == HEALTH.number => None,
        (number, Some(interface)) if number == DESCRIBE.number => Some(interface),
        _ => return Dispatched::NoSuchProcedure,
    };
    if let Err(why) = crate::stub::arguments(arguments, |_| Ok(())) {
        return Dispatched::BadArguments(why);
    }
    let encoded = match interface {
        None => health().encode(reply),
        Some(interface) => describe(interface, reply),
    };
    encoded.map_or_else(Dispatched::BadResult, |()| Dispatched::Result)
}

/// Encodes a [`Description`] without making one.
fn describe(interface: &Interface, reply: &mut Encoder<'_>) -> Result<(), xdr::Error> {
    reply.sized(|reply| {
        interface.encode(reply)?;
        env!("CARGO_PKG_VERSION").encode(reply)?;
        [u32::from(farcall_proto::VERSION)].as_slice().encode(reply)
    })
}

// Both are extensible: their length, then the fields, so that a later version may add some.

impl Encode for Health {
    fn encode(&self, e: &mut Encoder<'_>) -> Result<(), xdr::Error> {
        e.sized(|e| {
            self.up.encode(e)?;
            self.running.encode(e)
        })
    }
}

impl<'a> Decode<'a> for Health {
    fn decode(d: &mut Decoder<'a>) -> Result<Self, xdr::Error> {
        d.sized(|d| Ok(Health { up: Decode::decode(d)?, running: Decode::decode(d)? }))
    }
}

impl<'a> Decode<'a> for Description {
    fn decode(d: &mut Decoder<'a>) -> Result<Self, xdr::Error> {
        d.sized(|d| {
            Ok(Description {
                interface: Decode::decode(d)?,
                farcall: Decode::decode(d)?,
                wire: Decode::decode(d)?,
            })
        })
    }
}
