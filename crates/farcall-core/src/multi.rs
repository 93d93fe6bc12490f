//! Group calls: one call to every member of a group (MultiRPC; Satyanarayanan & Siegel 1990, section IV).
//!
//! ```no_run
//! # #[farcall::interface]
//! # pub trait Store { fn get(&self, key: &str) -> farcall::Result<u64>; fn put(&self, key: &str, value: u64) -> farcall::Result<()>; }
//! # fn main() -> farcall::Result<()> {
//! # use farcall::multi::Next;
//! let stores = farcall::import_all::<dyn Store>("Store")?;
//!
//! // Calls all members at once, and takes as long as the slowest member.
//! for (name, outcome) in stores.multi().get("answer").all() {
//!     println!("{name}: {outcome:?}");
//! }
//!
//! // Returns as soon as two members have written. The calls of the other members go on.
//! if let Err(short) = stores.multi().put("answer", 42).quorum(2) {
//!     println!("not written: {short}");
//! }
//!
//! // Handles each reply when it arrives.
//! stores.multi().get("answer").each(|reply| {
//!     println!("{} says {:?}", reply.member, reply.result);
//!     if reply.result.is_ok() { Next::Stop } else { Next::Continue }
//! });
//! # Ok(())
//! # }
//! ```
//!
//! # When a group call ends
//!
//! | | ends with | the other calls | use it for |
//! |---|---|---|---|
//! | [`all`](Multi::all) | the last reply | | calls that every member must get |
//! | [`first`](Multi::first) | the first result | are cancelled | equivalent servers, when time matters more than load |
//! | [`hedged`](Multi::hedged) | the first result | are cancelled | equivalent servers at little more load than one call: a second is called only when the first is slow |
//! | [`quorum`](Multi::quorum) | `n` results | finish | reads and writes of replicated data |
//! | [`majority`](Multi::majority) | results of more than half | finish | replicated data on [`Fixed`] members: any two majorities have a member in common |
//! | [`each`](Multi::each), [`collate`](Multi::collate) | the caller's decision | are cancelled | anything else |
//!
//! ```
//! use std::{sync::Arc, time::Duration};
//! use farcall::{Group, multi::{Next, Outcome, Rest}};
//!
//! #[farcall::interface]
//! pub trait Store {
//!     fn get(&self, key: &str) -> farcall::Result<u64, String>;
//!     fn put(&self, key: &str, value: u64) -> farcall::Result<()>;
//! }
//! # struct Fake;
//! # impl Store for Fake {
//! #     fn get(&self, _: &str) -> farcall::Result<u64, String> { Ok(42) }
//! #     fn put(&self, _: &str, _: u64) -> farcall::Result<()> { Ok(()) }
//! # }
//! # fn stub() -> StoreClient { farcall::stub::local::<dyn Store>(Arc::new(Fake)) }
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let (a, b, c) = (stub(), stub(), stub());
//! let stores = Group::of([("a", a), ("b", b), ("c", c)]);
//!
//! // The outcome of a member is a result, an exception, a failure, or `Abandoned`: not waited for.
//! let all = stores.multi().get("answer").all();
//! assert_eq!(all.get("b"), Some(&Outcome::Result(42)));
//!
//! // Takes the first result and cancels the other calls.
//! let (who, value) = stores.multi().get("answer").first()?;
//! println!("{who} says {value}");
//!
//! // Calls only "a" at first, and "b" if "a" takes more than 10 ms or fails. Calls two members at most.
//! let (_, value) = stores.multi().get("answer").hedged(Duration::from_millis(10), 2)?;
//!
//! // Returns when two members have written. The third call goes on. Fails as soon as two cannot write.
//! stores.multi().put("answer", 42).quorum(2)?;
//! let read = stores.multi().get("answer").rest(Rest::Cancel).majority()?;
//! let newest = read.results().map(|(_, value)| value).max();
//!
//! // Waits no longer than a second.
//! let soon = stores.multi().get("answer").within(Duration::from_secs(1)).all();
//!
//! // Here an exception counts as a success too. Only failed calls do not.
//! let reached = stores.multi().get("answer").counting(|reply| !matches!(reply, Err(farcall::Error::CallFailed(_)))).quorum(2)?;
//!
//! // Handles each reply when it arrives, until the handler stops. Returns the outcome of each member.
//! let outcomes = stores.multi().get("answer").each(|reply| match reply.result {
//!     Ok(42) => Next::Stop,
//!     _ => Next::Continue,
//! });
//!
//! // Folds the replies into one value.
//! let sum = stores.multi().get("answer").collate(0, |sum, reply| {
//!     *sum += reply.result.unwrap_or(0);
//!     Next::Continue
//! });
//!
//! // Gives each member its own arguments.
//! let written = stores.multi_each(|index, _, store| store.put("place", index as u64)).all();
//!
//! // Starts the calls now, and waits later. A task awaits `all()`, `first()`, `quorum(n)`, `majority()` or `next()`.
//! let mut under_way = stores.multi().get("answer").start();
//! while let Some(reply) = under_way.wait_next() {
//!     println!("{}: {:?}", reply.member, reply.result);
//! }
//! # assert_eq!((value, newest, soon.len(), reached.len(), outcomes.len(), sum, written.len()), (42, Some(&42), 3, 3, 3, 126, 3));
//! # Ok(())
//! # }
//! ```
//!
//! `docs/multi.md` says how large a quorum should be, and what a caller knows when there is none.
//!
//! # Carriers
//!
//! The thread that makes a blocking group call waits at one socket. So the calls go by UDP, also to members
//! that were imported through shared memory, except to those that are called by another socket than the first
//! member. A group call that [`start`](Multi::start) starts reaches each member as a single started call
//! does. `docs/multi.md` has a table.
//!
//! # Guarantees
//!
//! The arguments are encoded once. Each member gets a call with the semantics of a single call: it runs at
//! most once, it is repeated where that does no harm, and it fails in the same ways. The calling thread makes
//! all the calls, and receives replies while it still sends. No thread is started for a member, and a dead
//! member does not delay the others. Servers need no change; each sees an ordinary call.
//!
//! A caller can stop before all members have replied. [`Rest::Cancel`] then asks the other servers to stop.
//! [`Rest::Finish`] lets their calls go on; the runtime retransmits each call until its server has it. Either
//! way every member can be called again at once. A handler may block, call members and groups, and panic. A
//! panic stops the group call too.
//!
//! ```text
//! group       the members: fixed, or followed in the registry;  membership: marker types for the two cases
//! call        a group call that is to be made, and when it ends: all, first, quorum, each
//! prepared    the encoded arguments and the settings of a group call
//! started     a started group call, whose replies a thread or a task takes one by one
//! engine      makes the calls, no more than their replies have room for; receives; stops
//! window      the room for replies: in the socket's buffer, and on the path that the members share
//! progress    counts replies until enough count, or enough are impossible
//! outcomes    the outcome of each member, and the error that too few succeeded
//! inline_vec  a vector that stores a single element in place
//! ```

mod call;
mod engine;
mod group;
mod inline_vec;
mod membership;
mod outcomes;
mod prepared;
mod progress;
mod started;
mod window;

pub use call::{Multi, Next};
pub use group::Group;
#[doc(hidden)]
pub use membership::{Fixed, Living};
pub use outcomes::{Gathered, Outcome, Reply, Short};
pub use prepared::{Prepared, Rest};
pub use started::Gathering;

pub use crate::stub::{Member, Members, Roster};
