//! Which handler answers, and how the caller and the procedure go on.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use farcall::{Answer, Kind, Ran, Result};

use super::*;

/// Answers by a function.
struct Acts<F>(F);

impl<F: Fn(u64) -> Answer<u64> + Send + Sync + 'static> StoreHandler for Acts<F> {
    fn low_space(&self, _: StoreRaiser, needed: u64) -> Answer<u64> {
        (self.0)(needed)
    }
}

#[test]
fn a_handler_resumes_the_procedure_with_a_value() {
    everywhere(|store, server| {
        assert_eq!(store.catching(Doubles).put(100), Ok(100));
        assert_eq!(store.catching(Doubles).ask(10, "a note").unwrap(), 2 * 45);
        assert_eq!(server.unwound.load(Ordering::SeqCst), 1, "the scope of `put`");
        assert_eq!(store.catching(Doubles).quiet().unwrap(), 7);
    });
}

#[test]
fn a_handler_unwinds_the_procedure_and_the_caller_leaves_with_its_outcome() {
    everywhere(|store, server| {
        let result = store.catching(Acts(|_| Answer::unwind(Result::<u64, TooLarge>::Ok(9)))).put(100);
        assert_eq!(result, Ok(9));
        assert_eq!(server.unwound.load(Ordering::SeqCst), 1, "destructors ran before the caller left");
        let exception = || Result::<u64, TooLarge>::Err(TooLarge { most: 3 }.into());
        let why = store.catching(Acts(move |_| Answer::unwind(exception()))).put(100).unwrap_err();
        assert_eq!(why.declared(), Some(&TooLarge { most: 3 }));
        // What the procedure returns is discarded, and no signal is raised again.
        let raised = Arc::new(AtomicU32::new(0));
        let counts = raised.clone();
        let handler = Acts(move |_| {
            counts.fetch_add(1, Ordering::SeqCst);
            Answer::unwind(Result::<u64>::Ok(5))
        });
        assert_eq!(store.catching(handler).persist().unwrap(), 5);
        assert_eq!(raised.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn a_signal_that_nobody_catches_unwinds_the_call() {
    everywhere(|store, server| {
        let why = store.put(100).unwrap_err();
        assert_eq!((kind(&why), why.ran()), (Some(Kind::Unwound), Ran::Yes), "{why}");
        assert_eq!(server.unwound.load(Ordering::SeqCst), 1);
        let why = store.catching(Acts(|_| Answer::Pass)).persist().unwrap_err();
        assert_eq!((kind(&why), why.ran()), (Some(Kind::Unwound), Ran::Yes), "{why}");
        assert_eq!(store.put(1 << 41).unwrap_err().declared(), Some(&TooLarge { most: 1 << 40 }));
    });
}

#[test]
fn the_nearest_handler_is_asked_first_and_may_pass_on() {
    everywhere(|store, _| {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let note = |who: &'static str, answer: fn(u64) -> Answer<u64>| {
            let asked = asked.clone();
            Acts(move |needed| {
                asked.lock().unwrap().push(who);
                answer(needed)
            })
        };
        let outer = store.catching(note("outer", |needed| Answer::Resume(needed + 1)));
        let inner = outer
            .catching(note("inner", |needed| if needed == 5 { Answer::Resume(50) } else { Answer::Pass }));
        assert_eq!((inner.put(5), inner.put(7)), (Ok(45), Ok(1)));
        assert_eq!(*asked.lock().unwrap(), ["inner", "inner", "outer"]);
        assert_eq!(outer.put(5), Ok(1));
    });
}

#[test]
fn a_handler_calls_the_same_server() {
    everywhere(|store, _| {
        let again = store.clone();
        let handler = Acts(move |needed| Answer::Resume(needed + u64::from(again.quiet().unwrap())));
        assert_eq!(store.catching(handler).put(1), Ok(7));
        // Also a call that raises the signal again.
        let again = store.catching(Doubles);
        let handler = Acts(move |needed| Answer::Resume(needed + again.put(needed).unwrap()));
        assert_eq!(store.catching(handler).put(3), Ok(3));
    });
}

#[test]
fn a_question_and_an_answer_may_be_longer_than_a_window() {
    struct Long;
    impl StoreHandler for Long {
        fn low_space(&self, _: StoreRaiser, _: u64) -> Answer<u64> {
            Answer::Resume(1)
        }
        fn note(&self, _: StoreRaiser, text: &str, of: &[u32]) -> Answer<()> {
            assert_eq!((text.len(), of.len()), (300_000, 3));
            Answer::Resume(())
        }
    }
    everywhere(|store, _| {
        assert_eq!(store.catching(Long).ask(3, &"x".repeat(300_000)).unwrap(), 3);
    });
}

#[test]
fn whoever_waits_for_a_started_call_answers_its_signals() {
    everywhere(|store, _| {
        let here = std::thread::current().id();
        let handler = Acts(move |needed| {
            assert_eq!(std::thread::current().id(), here);
            Answer::Resume(3 * needed)
        });
        let store = store.catching(handler);
        assert_eq!(store.start().put(10).wait(), Ok(20));
        let two = (store.start().put(1), store.start().put(2));
        assert_eq!((two.1.wait(), two.0.wait()), (Ok(4), Ok(2)));
        assert_eq!(common::block_on(store.start().put(4)), Ok(8));
        let why = store.start().ask(1, "uncaught").wait().unwrap_err();
        assert_eq!((kind(&why), why.ran()), (Some(Kind::Unwound), Ran::Yes), "{why}");
        let store = store.catching(Acts(|_| Answer::unwind(Result::<u64, TooLarge>::Ok(1))));
        assert_eq!((store.start().put(10).wait(), common::block_on(store.start().put(4))), (Ok(1), Ok(1)));
    });
}

#[test]
fn many_threads_raise_and_answer_at_once() {
    everywhere(|store, _| {
        std::thread::scope(|scope| {
            for thread in 0..8 {
                scope.spawn(move || {
                    let store = store.catching(Doubles);
                    for n in 0..50 {
                        assert_eq!(store.put(thread + n), Ok(thread + n));
                    }
                });
            }
        });
    });
}

#[test]
fn a_signal_cannot_be_raised_where_no_call_is_served() {
    let why = StoreSignals::low_space(1).unwrap_err();
    assert_eq!(why.why().kind(), Kind::Unwound);
    let server = Server::default();
    assert!(server.put(1).is_err(), "a plain call of the trait");
}
