//! Tests that the public types can be moved to, or shared with, other threads.

use farcall::{CallFailed, Context, Error, Export, Group, Pending, Runtime, Stopper};

#[farcall::interface]
pub trait Store {
    fn get(&self, key: &str) -> farcall::Result<u64>;
}

#[test]
fn handles_cross_threads() {
    fn shared<T: Send + Sync + std::fmt::Debug>() {}
    fn sent<T: Send + std::fmt::Debug>() {}
    shared::<Runtime>();
    shared::<Export>();
    shared::<Stopper>();
    shared::<Group<StoreClient>>();
    shared::<StoreClient>();
    shared::<Context>();
    shared::<CallFailed>();
    shared::<Error>();
    sent::<Pending<u64>>();
}
