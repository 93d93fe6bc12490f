//! A signal passes through the servers between the one that raises it and the one that catches it.

use std::sync::Arc;

use farcall::{Answer, Kind, Result};

use super::*;

/// A server that calls a store. It declares a signal of the same name and types as one of the store's.
#[farcall::interface]
pub trait Front {
    /// Catches the store's signal, and raises its own for it.
    fn save(&self, bytes: u64) -> Result<u64>;
    /// Does not catch the store's signal.
    fn keep(&self, bytes: u64) -> Result<u64>;
    #[signal]
    fn low_space(&self, needed: u64) -> u64;
}

struct Between {
    store: StoreClient,
}

/// Raises the signal of the server between for the store's.
struct Relays;

impl StoreHandler for Relays {
    fn low_space(&self, _: StoreRaiser, needed: u64) -> Answer<u64> {
        FrontSignals::low_space(needed).into()
    }
}

impl Front for Between {
    fn save(&self, bytes: u64) -> Result<u64> {
        put(&self.store.catching(Relays), bytes)
    }

    fn keep(&self, bytes: u64) -> Result<u64> {
        put(&self.store, bytes)
    }
}

fn put(store: &StoreClient, bytes: u64) -> Result<u64> {
    Ok(store.put(bytes).map_err(|why| why.call_failed().expect("no exception").clone())? + 1)
}

/// A store that has another store do its work.
struct Proxy(StoreClient);

impl Store for Proxy {
    fn put(&self, bytes: u64) -> Result<u64, TooLarge> {
        self.0.put(bytes)
    }

    fn ask(&self, times: u32, text: &str) -> Result<u64> {
        self.0.ask(times, text)
    }

    fn persist(&self) -> Result<u64> {
        self.0.persist()
    }

    fn quiet(&self) -> Result<u32> {
        self.0.quiet()
    }
}

struct Acts<F>(F);

impl<F: Fn(u64) -> Answer<u64> + Send + Sync + 'static> FrontHandler for Acts<F> {
    fn low_space(&self, _: FrontRaiser, needed: u64) -> Answer<u64> {
        (self.0)(needed)
    }
}

#[test]
fn a_server_between_raises_its_own_signal_for_one_that_it_catches() {
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
    });
}

#[test]
fn a_signal_of_another_interface_does_not_reach_the_caller_though_names_and_types_are_equal() {
    everywhere(|store, server| {
        let names = farcall::names::Memory::new();
        let runtime = || farcall::Runtime::builder().registry(names.clone()).build().unwrap();
        let (here, there) = (runtime(), runtime());
        let between = Arc::new(Between { store: store.clone() });
        let _export = there.export::<dyn Front>("Front/a", between.clone()).unwrap();
        let fronts =
            [here.import::<dyn Front>("Front/a").unwrap(), farcall::stub::local::<dyn Front>(between)];
        for front in fronts {
            let before = server.unwound.load(Ordering::SeqCst);
            let why = front.catching(Acts(|_| panic!("a signal of the store"))).keep(5).unwrap_err();
            assert_eq!(kind(&why), Some(Kind::Nested), "{why}");
            assert_eq!(server.unwound.load(Ordering::SeqCst), before + 1, "nobody caught it");
        }
    });
}

#[test]
fn a_signal_passes_through_a_server_of_the_same_interface() {
    everywhere(|store, server| {
        let names = farcall::names::Memory::new();
        let runtime = || farcall::Runtime::builder().registry(names.clone()).build().unwrap();
        let (here, there) = (runtime(), runtime());
        let _export = there.export::<dyn Store>("Store/b", Arc::new(Proxy(store.clone()))).unwrap();
        let proxy = here.import::<dyn Store>("Store/b").unwrap();
        assert_eq!(proxy.catching(Doubles).put(5), Ok(5));
        assert_eq!(proxy.catching(Doubles).ask(3, "text").unwrap(), 6);
        let before = server.unwound.load(Ordering::SeqCst);
        let why = proxy.put(5).unwrap_err();
        assert_eq!(kind(&why), Some(Kind::Unwound), "{why}");
        assert_eq!(server.unwound.load(Ordering::SeqCst), before + 1);
    });
}
