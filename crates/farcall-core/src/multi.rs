//! One call to every member of a group: MultiRPC (Satyanarayanan & Siegel 1990, section IV).
//!
//! ```no_run
//! # #[farcall::interface]
//! # pub trait Store { fn get(&self, key: &str) -> farcall::Result<u64>; fn put(&self, key: &str, value: u64) -> farcall::Result<()>; }
//! # fn main() -> farcall::Result<()> {
//! # use farcall::multi::Next;
//! let stores = farcall::import_all::<dyn Store>("Store")?;
//!
//! // Everybody is called at once; this takes as long as the slowest.
//! for (name, outcome) in stores.multi().get("answer").all() {
//!     println!("{name}: {outcome:?}");
//! }
//!
//! // As soon as two have written; the others go on.
//! if let Err(short) = stores.multi().put("answer", 42).quorum(2) {
//!     println!("not written: {short}");
//! }
//!
//! // Replies as they come.
//! stores.multi().get("answer").each(|reply| {
//!     println!("{} says {:?}", reply.member, reply.result);
//!     if reply.result.is_ok() { Next::Stop } else { Next::Continue }
//! });
//! # Ok(())
//! # }
//! ```
//!
//! # Ways to end
//!
//! | | ends with | the calls of the rest | for |
//! |---|---|---|---|
//! | [`all`](Multi::all) | the last reply | | telling everybody |
//! | [`first`](Multi::first) | the first result | are cancelled | servers of which any will do, when time matters more than load |
//! | [`hedged`](Multi::hedged) | the first result | are cancelled | the same at little more load than one call: a second is asked only when the first is slow |
//! | [`quorum`](Multi::quorum) | `n` results | finish | reads and writes of what is replicated |
//! | [`majority`](Multi::majority) | results of more than half | finish | the same, where members are [`Fixed`]: any two majorities have a member in common |
//! | [`each`](Multi::each), [`collate`](Multi::collate) | whatever the caller says | are cancelled | anything else |
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
//! // Who gave what; `outcome` is a result, an exception, a failure, or nothing that was waited for.
//! let all = stores.multi().get("answer").all();
//! assert_eq!(all.get("b"), Some(&Outcome::Result(42)));
//!
//! // Any will do; the others are cancelled.
//! let (who, value) = stores.multi().get("answer").first()?;
//! println!("{who} says {value}");
//!
//! // Any will do, but only "a" is called, unless it takes more than 10 ms or fails. No more than two are.
//! let (_, value) = stores.multi().get("answer").hedged(Duration::from_millis(10), 2)?;
//!
//! // Two have written it when this returns, and the third will, if it can. If two cannot, that is said at once.
//! stores.multi().put("answer", 42).quorum(2)?;
//! let read = stores.multi().get("answer").rest(Rest::Cancel).majority()?;
//! let newest = read.results().map(|(_, value)| value).max();
//!
//! // Not longer than a second: who has not answered is abandoned.
//! let soon = stores.multi().get("answer").within(Duration::from_secs(1)).all();
//!
//! // An exception is an answer too, here: only who cannot be reached does not count.
//! let reached = stores.multi().get("answer").counting(|reply| !matches!(reply, Err(farcall::Error::CallFailed(_)))).quorum(2)?;
//!
//! // Replies as they come, until enough is known; the outcomes say what became of everybody.
//! let outcomes = stores.multi().get("answer").each(|reply| match reply.result {
//!     Ok(42) => Next::Stop,
//!     _ => Next::Continue,
//! });
//!
//! // The same with something to carry along.
//! let sum = stores.multi().get("answer").collate(0, |sum, reply| {
//!     *sum += reply.result.unwrap_or(0);
//!     Next::Continue
//! });
//!
//! // To each its own.
//! let written = stores.multi_each(|index, _, store| store.put("place", index as u64)).all();
//!
//! // Called now, waited for later; a task awaits `all()`, `first()`, `quorum(n)`, `majority()` or `next()` instead.
//! let mut under_way = stores.multi().get("answer").start();
//! while let Some(reply) = under_way.wait_next() {
//!     println!("{}: {:?}", reply.member, reply.result);
//! }
//! # assert_eq!((value, newest, soon.len(), reached.len(), outcomes.len(), sum, written.len()), (42, Some(&42), 3, 3, 3, 126, 3));
//! # Ok(())
//! # }
//! ```
//!
//! How many a quorum should be, and what a caller knows when there is none, stands in `docs/multi.md`.
//!
//! # What is promised
//!
//! The arguments are encoded once. Each member is called as a single call would be: at most once, repeated where that
//! does no harm, with the same failures. The calling thread does all of it, and takes replies in while it still sends:
//! no thread stands for a member, and a member that is dead costs nobody else anything. Servers do not know.
//!
//! Whoever stops early abandons the rest: [`Rest::Cancel`] asks those servers to stop, [`Rest::Finish`] lets them go
//! on, with the runtime to see that each has its call. Either way every member can be called again at once. A handler
//! may take its time, call members and groups, and panic: then the rest is abandoned too.
//!
//! ```text
//! group       who the members are, followed in the registry or fixed;  membership: which of the two
//! call        a call that is to be made, and how it may end: all, first, quorum, each
//! prepared    its encoded arguments and its settings
//! gathering   a call under way: replies one by one, blocking or awaited
//! engine      sends, bounded by what the socket can hold; receives; stops
//! tally       counts replies until they are enough, or cannot be enough any more
//! outcome     what became of each member
//! few         one value in place, or many
//! ```

mod call;
mod engine;
mod few;
mod gathering;
mod group;
mod membership;
mod outcome;
mod prepared;
mod tally;

pub use call::{Multi, Next};
pub use gathering::Gathering;
pub use group::Group;
#[doc(hidden)]
pub use group::Roster;
pub use membership::{Fixed, Living};
pub use outcome::{Gathered, Outcome, Reply, Short};
pub use prepared::{Prepared, Rest};

pub use crate::stub::{Member, Members};
