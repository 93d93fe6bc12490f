//! The common part of farcall: only what is needed by every protocol, and by every way in which calls are
//! carried. Users depend on `farcall`, which re-exports what concerns them.
//!
//! ```text
//! error        why a call failed, and whether it ran
//! env          the seam to the operating system;  system: its implementation (udp, sockets, sys)
//! guard        runs the user's code so that its panics stop no thread
//! serving      whether this thread serves a call, and whether it may wait meanwhile
//! notice       wakes procedures whose calls are given up;  given_up: for calls within this process
//! context      the call that a procedure serves
//! wait         how threads wait for the ends of calls
//! self_wait    refuses calls that would wait for their own thread
//! stub         what stubs are made of, and the interface to what carries their calls
//! exchange     signals and streams of a call: the interface between stubs and what carries the calls
//! calls        a set of started calls, from which one thread takes the calls as they end
//! multi        one call to every member of a group
//! requests     a server that takes its calls from a queue
//! retry        what to do after a failed attempt of a call
//! intercept    the interceptors of calls, which may refuse them
//! fair         a queue that is fair between networks and hosts;  host: who a host is, and its share
//! question     asks what blocks in threads of their own, until a deadline;  resolve: names of hosts
//! broken       deliberate faults, for the simulation
//! eviction     which connection a server ends to make room for another
//! workers      the threads that serve calls;  stopper: the handle that ends a server's wait
//! ```

#![deny(unsafe_code)]

pub mod balance;
#[doc(hidden)]
pub mod broken;
mod calls;
#[doc(hidden)]
pub mod context;
pub mod env;
mod error;
#[doc(hidden)]
pub mod eviction;
pub mod exchange;
#[doc(hidden)]
pub mod fair;
mod given_up;
#[doc(hidden)]
pub mod guard;
#[cfg(unix)]
mod hints;
#[doc(hidden)]
pub mod host;
pub mod intercept;
mod member_state;
#[doc(hidden)]
pub mod messages;
pub mod multi;
#[doc(hidden)]
pub mod notice;
#[doc(hidden)]
pub mod question;
pub mod requests;
#[doc(hidden)]
pub mod resolve;
#[doc(hidden)]
pub mod retry;
#[doc(hidden)]
pub mod self_wait;
#[doc(hidden)]
pub mod serving;
#[cfg(feature = "signals")]
#[doc(hidden)]
pub mod signals;
#[cfg(unix)]
mod sockets;
#[doc(hidden)]
pub mod stopper;
pub mod stub;
#[doc(hidden)]
pub mod sys;
mod system;
#[cfg(target_os = "linux")]
mod thread_state;
mod udp;
#[doc(hidden)]
pub mod wait;
#[doc(hidden)]
pub mod workers;

pub use bytes::Bytes;
pub use calls::Calls;
pub use context::{Cancelled, Context, context};
pub use error::{CallFailed, Error, Exception, Never, Result, ResultExt};
#[doc(hidden)]
pub use farcall_base::{
    ArgumentBudget, Evidence, KeptArguments, MAX_UNCOUNTED_ARGUMENT_BYTES, ServerArguments, SharedPath, lock,
    mutant, room, work,
};
pub use farcall_base::{CallKey, Failure, Kind, Principal, Ran, SharedArguments, Time, Trace};
pub use farcall_idl as idl;
#[cfg(feature = "cr")]
pub use farcall_macros::include_cr;
#[cfg(feature = "rpc2")]
pub use farcall_macros::include_rpc2;
#[cfg(feature = "x")]
pub use farcall_macros::include_x;
pub use farcall_macros::{Xdr, interface};
pub use farcall_xdr as xdr;
pub use multi::{Group, Multi};
pub use stub::{Answer, Bulk, Copied, Leave, Pending, Stream, Until, Unwinds, Unwound};
pub use system::System;
