//! The procedures that every export has in addition to those of its interface. They return its health and its
//! description. The export of a server's counters also returns the state of the process's balancers, the
//! server's conversations, and where its settings come from.
//!
//! Their numbers are ones that no interface can have. They do not slow the interface's procedures down,
//! because a number is looked up here only if the interface does not have it.

use std::sync::Arc;
use std::time::Duration;

use crate::balancers::Balancers;
use crate::conversations::Conversations;
use crate::idl::Interface;
use crate::origins::Origins;
use crate::stub::{BATCH, Dispatched, InterfaceId, Procedure};
use crate::xdr::{self, Decode, Decoder, Encode, Encoder};
use crate::{CallFailed, Ran, self_wait};

/// Takes no arguments and returns a [`Health`].
pub(crate) static HEALTH: Procedure = Procedure {
    number: 0,
    name: "health",
    interface: InterfaceId::NONE,
    idempotent: true,
    blocking: false,
    uncancelled: false,
    exchanges: false,
    deadline: None,
};

/// Takes no arguments and returns a [`Description`].
pub(crate) static DESCRIBE: Procedure = Procedure {
    number: 0xffff_0000,
    name: "describe",
    interface: InterfaceId::NONE,
    idempotent: true,
    blocking: false,
    uncancelled: false,
    exchanges: false,
    deadline: None,
};

/// Takes no arguments and returns a list of [`Balancing`](crate::balancers::Balancing).
pub(crate) static BALANCERS: Procedure = Procedure {
    number: 0xffff_0002,
    name: "balancers",
    interface: InterfaceId::NONE,
    idempotent: true,
    blocking: false,
    uncancelled: false,
    exchanges: false,
    deadline: None,
};

/// Takes no arguments and returns [`Conversations`].
pub(crate) static CONVERSATIONS: Procedure = Procedure {
    number: 0xffff_0003,
    name: "conversations",
    interface: InterfaceId::NONE,
    idempotent: true,
    blocking: false,
    uncancelled: false,
    exchanges: false,
    deadline: None,
};

/// Takes no arguments and returns [`Origins`].
pub(crate) static ORIGINS: Procedure = Procedure {
    number: 0xffff_0004,
    name: "origins",
    interface: InterfaceId::NONE,
    idempotent: true,
    blocking: false,
    uncancelled: false,
    exchanges: false,
    deadline: None,
};

/// What the export of a server's counters shows besides them.
pub(crate) struct Shown {
    /// Where the settings of the server's runtime come from.
    pub(crate) origins: Origins,
    pub(crate) balancers: Arc<Balancers>,
    /// Returns the server's conversations, as they are now.
    pub(crate) conversations: Box<ShowConversations>,
}

/// Returns a server's conversations: all, or those of the client with this key.
pub(crate) type ShowConversations = dyn Fn(Option<[u8; 32]>) -> Conversations + Send + Sync;

/// Returns whether a procedure with this number belongs to an interface. If the export has an executor, the
/// executor executes these procedures, and batches of one-way calls. The server's own threads execute all
/// other procedures.
fn is_of_interface(procedure: u32) -> bool {
    (HEALTH.number + 1..DESCRIBE.number).contains(&procedure) || procedure == BATCH.number
}

/// Returns whether a blocking call of this procedure would wait for itself, because the calling thread drives
/// the executor that would run it.
#[inline(always)]
pub(crate) fn waits_for_itself(export: u64, procedure: u32) -> bool {
    self_wait::would(export) && is_of_interface(procedure)
}

/// Refuses a blocking call of this procedure if it would wait for itself.
#[inline(always)]
pub(crate) fn may_call(export: u64, procedure: u32) -> Result<(), CallFailed> {
    if waits_for_itself(export, procedure) { Err(self_wait::refusal(Ran::No)) } else { Ok(()) }
}

/// The answer of a healthy exporter. That it answers at all shows that it is alive.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// How long the export has existed.
    pub up: Duration,
    /// Calls of the export that execute or are queued, including the call that asks.
    pub running: u32,
}

/// An exporter's description of its export.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Description {
    /// The interface, with names, documentation and wire types.
    pub interface: Interface,
    /// The version of the exporter's farcall.
    pub farcall: String,
    /// The wire versions that the exporter speaks, the newest first.
    pub wire: Vec<u32>,
}

/// Executes a call of a procedure that is not one of the interface's. `shown` has what the export of counters
/// shows, and the caller's key if it may see its own conversations only.
pub(crate) fn dispatch(
    number: u32,
    described: Option<&'static Interface>,
    shown: Option<(&Shown, Option<[u8; 32]>)>,
    health: impl FnOnce() -> Health,
    arguments: &mut Decoder<'_>,
    reply: &mut Encoder<'_>,
) -> Dispatched {
    enum Asked<'a> {
        Health,
        Description(&'static Interface),
        Balancers(&'a Shown),
        Conversations(&'a Shown, Option<[u8; 32]>),
        Origins(&'a Origins),
    }
    let asked = match (number, described, shown) {
        (number, ..) if number == HEALTH.number => Asked::Health,
        (number, Some(interface), _) if number == DESCRIBE.number => Asked::Description(interface),
        (number, _, Some((shown, _))) if number == BALANCERS.number => Asked::Balancers(shown),
        (number, _, Some((shown, of))) if number == CONVERSATIONS.number => Asked::Conversations(shown, of),
        (number, _, Some((shown, _))) if number == ORIGINS.number => Asked::Origins(&shown.origins),
        _ => return Dispatched::NoSuchProcedure,
    };
    if let Err(why) = crate::stub::arguments(arguments, |_| Ok(())) {
        return Dispatched::BadArguments(why);
    }
    let encoded = match asked {
        Asked::Health => health().encode(reply),
        Asked::Description(interface) => describe(interface, reply),
        Asked::Balancers(shown) => shown.balancers.show().encode(reply),
        Asked::Conversations(shown, of) => (shown.conversations)(of).encode(reply),
        Asked::Origins(origins) => origins.encode(reply),
    };
    encoded.map_or_else(Dispatched::BadResult, |()| Dispatched::Result)
}

/// Encodes a [`Description`] without building one.
fn describe(interface: &Interface, reply: &mut Encoder<'_>) -> Result<(), xdr::Error> {
    reply.sized(|reply| {
        interface.encode(reply)?;
        env!("CARGO_PKG_VERSION").encode(reply)?;
        [u32::from(farcall_proto::VERSION)].as_slice().encode(reply)
    })
}

// The length precedes the fields of both types, so that a later version can add fields.

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
