//! The program that opens the README: `store serve` in one terminal, `store` in another.
#![allow(missing_docs)]

use std::sync::Arc;
use std::time::Duration;

#[farcall::interface]
pub trait Store {
    /// The value under `key`.
    fn get(&self, key: &str) -> farcall::Result<u64, NoSuchKey>;
}

#[derive(Debug, farcall::Xdr)]
pub struct NoSuchKey;

struct Memory;
impl Store for Memory {
    fn get(&self, key: &str) -> farcall::Result<u64, NoSuchKey> {
        if key != "answer" {
            return Err(NoSuchKey.into());
        }
        Ok(42)
    }
}

fn main() -> farcall::Result<()> {
    if std::env::args().any(|a| a == "serve") {
        return farcall::export::<dyn Store>("Store", Arc::new(Memory))?.until_signal();
    }
    let store = farcall::import::<dyn Store>("Store")?.within(Duration::from_secs(1));
    match store.get("answer") {
        Ok(value) => println!("{value}"),
        Err(farcall::Error::Declared(NoSuchKey)) => println!("no such key"),
        Err(farcall::Error::CallFailed(why)) => println!("{why}; {}", why.ran()),
    }
    Ok(())
}
