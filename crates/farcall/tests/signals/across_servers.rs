//! A signal passes through the servers between the one that raises it and the one that catches it.

use std::sync::Arc;

use farcall::{Answer, Kind, Result};

use super::*;

/// A server that calls a store. It declares one of the store's signals.
#[farcall::interface]
pub trait Front {
    fn save(&self, bytes: u64) -> Result<u64>;
    /// Asks the store to raise signals of which this interface does not declare one.
    fn chat(&self) -> Result<u64>;
    #[signal]
    fn low_space(&self, needed: u64) -> u64;
}

struct Between {
    store: StoreClient,
}

impl Front for Between {
    fn save(&self, bytes: u64) -> Result<u64> {
        Ok(self.store.put(bytes).map_err(|why| why.call_failed().expect("no exception").clone())? + 1)
    }

    fn chat(&self) -> Result<u64> {
        self.store.ask(1, "not declared")
    }
}

struct Acts<F>(F);

impl<F: Fn(u64) -> Answer<u64> + Send + Sync + 'static> FrontHandler for Acts<F> {
    fn low_space(&self, needed: u64) -> Answer<u64> {
        (self.0)(needed)
    }
}

#[test]
fn a_signal_passes_through_a_server_that_declares_it() {
    everywhere(|store, server| {
        let names = farcall::names::Memory::new();
        let runtime = || farcall::Runtime::builder().registry(names.clone()).build().unwrap();
        let (here, there) = (runtime(), runtime());
        let between = Arc::new(Between { store: store.clone() });
        let _export = there.export::<dyn Front>("Front/a", between).unwrap();
        let front = here.import::<dyn Front>("Front/a").unwrap();
        assert_eq!(front.catching(Acts(|needed| Answer::Resume(needed + 10))).save(5).unwrap(), 11);
        let unwinds = front.catching(Acts(|_| Answer::unwind(Result::<u64>::Ok(77))));
        let before = server.unwound.load(Ordering::SeqCst);
        assert_eq!(unwinds.save(5).unwrap(), 77);
        assert_eq!(server.unwound.load(Ordering::SeqCst), before + 1, "the store was unwound, too");
        let why = front.save(5).unwrap_err();
        assert_eq!(kind(&why), Some(Kind::Unwound), "{why}");
        let why = front.catching(Acts(|_| Answer::Resume(1))).chat().unwrap_err();
        assert_eq!(kind(&why), Some(Kind::Nested), "`note` is not declared between: {why}");
    });
}
