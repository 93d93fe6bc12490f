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
//! The arguments are encoded once. Each member is called as a single call would be: at most once, repeated where that
//! does no harm, with the same failures. The calling thread does all of it, and takes replies in while it still sends:
//! no thread stands for a member, and a member that is dead costs nobody else anything. Servers do not know.
//!
//! Whoever stops early abandons the rest: [`Rest::Cancel`] asks those servers to stop, [`Rest::Finish`] lets them go
//! on, with the runtime to see that each has its call. Either way every member can be called again at once.
//!
//! ```text
//! group       who the members are, followed in the registry or fixed
//! call        a call that is to be made, and how it may end: all, first, quorum, each
//! gathering   the same under way: replies one by one, blocking or awaited
//! engine      sends, bounded by what the socket can hold; takes in; stops
//! bells       which members' calls may have ended, and how their gatherer is woken;  station: where it waits
//! outcome     what became of each member
//! few         one of something, in place, or many
//! ```

mod bells;
mod call;
mod engine;
mod few;
mod gathering;
mod group;
mod outcome;
mod station;

mod sync {
    //! What `bells` is made of; loom's stand in its place in tests/bells.rs.
    pub(super) use std::sync::atomic::{AtomicUsize, Ordering};
    pub(super) use std::sync::{Mutex, MutexGuard};

    /// A number that no other living thread has, and that is not 0.
    pub(super) fn this_thread() -> usize {
        thread_local! {
            static HERE: u8 = const { 0 };
        }
        HERE.with(|here| std::ptr::from_ref(here).addr())
    }
}

pub use bells::{Bell, Bells, Interrupt};

pub use call::{Multi, Next, Prepared, Reply, Rest};
pub use gathering::Gathering;
pub use group::{Fixed, Group, Living, Member, Members};
pub use outcome::{Gathered, Outcome, Short};
pub use station::Station;

pub(crate) use group::Roster;
pub(crate) use station::Parking;
