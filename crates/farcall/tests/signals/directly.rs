//! Handlers that a thread sets for all its calls below a point, by stubs or directly: the program works alike
//! if user and server are bound together without stubs (Birrell & Nelson 1984, sections 1.5 and 3.4).

use std::cell::{Cell, RefCell};

use farcall::{Answer, Kind, Leave, Ran, Result};

use super::*;

/// Answers by a function that uses the caller's locals.
struct Acts<F>(F);

impl<F: Fn(u64) -> Answer<u64>> StoreHandler for Acts<F> {
    fn low_space(&self, _: StoreRaiser, needed: u64) -> Answer<u64> {
        (self.0)(needed)
    }

    fn note(&self, _: StoreRaiser, _: &str, _: &[u32]) -> Answer<()> {
        Answer::Resume(())
    }
}

/// Runs a test with stubs, through the network and in this process, and with the server itself.
fn everywhere(test: impl Fn(&dyn Store, &Server)) {
    super::everywhere(|store, server| test(store, server));
    let server = Server::default();
    test(&server, &server);
}

/// Code that knows nothing of handlers.
fn program(store: &dyn Store) -> Result<u64> {
    let first = store.put(3).map_err(|why| why.call_failed().expect("no exception").clone())?;
    Ok(first + store.ask(2, "text")?)
}

#[test]
fn a_handler_of_a_thread_answers_with_the_callers_locals_whatever_is_called() {
    everywhere(|store, _| {
        let asked = RefCell::new(Vec::new());
        let handler = Acts(|needed| {
            asked.borrow_mut().push(needed);
            Answer::Resume(needed + 10)
        });
        let sum = StoreSignals::catching(handler, || program(store)).unwrap();
        assert_eq!((sum, asked.into_inner()), (10 + 10 + 11, vec![3, 0, 1]));
        let why = program(store).unwrap_err();
        assert_eq!((kind(&why), why.ran()), (Some(Kind::Unwound), Ran::Yes), "it is set no more: {why}");
    });
}

#[test]
fn a_handler_of_a_thread_leaves_the_code_around_its_calls() {
    everywhere(|store, server| {
        let before = server.unwound.load(Ordering::SeqCst);
        let leave = Leave::new();
        let handler = || Acts(|needed| leave.with((needed, "left")));
        let reached = Cell::new(false);
        let left = leave.scope(|| {
            StoreSignals::catching(handler(), || {
                let _ = program(store);
                reached.set(true);
                (0, "not left")
            })
        });
        assert_eq!((left, reached.get()), ((3, "left"), true));
        assert_eq!(server.unwound.load(Ordering::SeqCst), before + 1, "the procedure was unwound");
        let stays = Acts(Answer::Resume);
        let stays = leave.scope(|| StoreSignals::catching(stays, || (program(store).unwrap(), "stayed")));
        assert_eq!(stays, (1, "stayed"));
    });
}

#[test]
fn the_innermost_handler_is_asked_first_and_only_outer_ones_while_it_runs() {
    everywhere(|store, _| {
        let asked = RefCell::new(Vec::new());
        let note = |who| asked.borrow_mut().push(who);
        let outer = Acts(|needed| {
            note("outer");
            Answer::Resume(needed + 1)
        });
        let inner = Acts(|needed| {
            note("inner");
            match needed {
                // Its own call is answered by the outer one.
                5 => Answer::Resume(5 + store.put(50).unwrap()),
                _ => Answer::Pass,
            }
        });
        StoreSignals::catching(outer, || {
            StoreSignals::catching(inner, || assert_eq!((store.put(5), store.put(7)), (Ok(1), Ok(1))));
            assert_eq!(store.put(5), Ok(1));
        });
        assert_eq!(asked.into_inner(), ["inner", "outer", "inner", "outer", "outer"]);
    });
}

#[test]
fn a_panic_of_the_code_below_takes_its_handler_away() {
    everywhere(|store, _| {
        let code = || StoreSignals::catching(Acts(Answer::Resume), || -> () { panic!("of the code below") });
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(code)).is_err());
        assert_eq!(kind(&store.put(1).unwrap_err()), Some(Kind::Unwound));
        let panics = || StoreSignals::catching(Acts(|_| panic!("of a handler")), || store.put(1));
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
        assert_eq!(kind(&store.put(1).unwrap_err()), Some(Kind::Unwound));
    });
}

#[test]
fn a_stubs_own_handler_is_nearer_than_the_threads() {
    super::everywhere(|store, _| {
        let stub = store.catching(Doubles);
        let outer = Acts(|_| panic!("the stub's handler answers"));
        assert_eq!(StoreSignals::catching(outer, || stub.put(4)), Ok(4));
        // The thread that waits for a started call answers.
        let waited = StoreSignals::catching(Acts(|needed| Answer::Resume(3 * needed)), || {
            (store.start().put(10).wait(), common::block_on(store.start().put(4)))
        });
        assert_eq!(waited, (Ok(20), Ok(8)));
        let why =
            StoreSignals::catching(Acts(|_| Answer::unwind(Result::<String>::Ok("text".into()))), || {
                store.put(1).unwrap_err()
            });
        assert_eq!(kind(&why), Some(Kind::BadResult));
    });
}

/// A server that a thread calls in its own process, and that calls a store itself.
#[farcall::interface]
pub trait Plain {
    fn save(&self, bytes: u64) -> Result<u64>;
}

struct Saves(StoreClient);

impl Plain for Saves {
    fn save(&self, bytes: u64) -> Result<u64> {
        Ok(self.0.put(bytes).map_err(|why| why.call_failed().expect("no exception").clone())?)
    }
}

#[test]
fn a_server_of_the_same_process_does_not_see_its_callers_handlers() {
    super::everywhere(|store, _| {
        let plain = farcall::stub::local::<dyn Plain>(Arc::new(Saves(store.clone())));
        let handler = Acts(|_| panic!("a call of the server"));
        let why = StoreSignals::catching(handler, || plain.save(3)).unwrap_err();
        assert_eq!(kind(&why), Some(Kind::Nested), "{why}");
    });
}

#[test]
fn a_result_cannot_unwind_a_procedure_that_is_called_directly() {
    let server = Server::default();
    let code = |answer: fn() -> Answer<u64>| StoreSignals::catching(Acts(|_| answer()), || server.put(1));
    let why = code(|| Answer::unwind(Result::<u64>::Ok(1))).unwrap_err();
    assert_eq!(kind(&why), Some(Kind::BadResult), "{why}");
    let why = code(|| Answer::fail(farcall::CallFailed::new(Kind::NotPermitted, Ran::Yes))).unwrap_err();
    assert_eq!(kind(&why), Some(Kind::NotPermitted), "{why}");
}

#[test]
fn a_handler_of_a_thread_answers_for_balanced_stubs_and_for_groups() {
    let names = farcall::names::Memory::new();
    let runtime = || farcall::Runtime::builder().registry(names.clone()).build().unwrap();
    let (here, there) = (runtime(), runtime());
    let _exports = ["Store/a", "Store/b"]
        .map(|name| there.export::<dyn Store>(name, Arc::new(Server::default())).unwrap());
    let asked = Cell::new(0);
    let handler = || {
        Acts(|needed| {
            asked.set(asked.get() + 1);
            Answer::Resume(2 * needed)
        })
    };
    let group = here.import_all::<dyn Store>("Store").unwrap();
    let balanced = group.balanced();
    assert_eq!(StoreSignals::catching(handler(), || balanced.put(3)), Ok(3));
    assert_eq!(StoreSignals::catching(handler(), || balanced.wait_for_server().put(4)), Ok(4));
    assert_eq!(StoreSignals::catching(handler(), || balanced.start().put(5).wait()), Ok(5));
    let all = StoreSignals::catching(handler(), || group.multi().put(6).all());
    assert_eq!(all.results().map(|(_, free)| *free).collect::<Vec<u64>>(), [6, 6]);
    assert_eq!(asked.get(), 5);
}
