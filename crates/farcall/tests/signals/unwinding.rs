//! The outcome of a handler that unwinds a call: its types are those of the procedure that was called.

use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use farcall::{Answer, CallFailed, Kind, Ran, Result};

use super::*;

/// Two procedures of other types raise the same signal.
#[farcall::interface]
pub trait Mixed {
    fn number(&self) -> Result<u64>;
    fn fraction(&self) -> Result<f64, TooLarge>;
    #[signal]
    fn which(&self) -> u32;
}

struct Raises;

impl Mixed for Raises {
    fn number(&self) -> Result<u64> {
        Ok(MixedSignals::which()?.into())
    }

    fn fraction(&self) -> Result<f64, TooLarge> {
        Ok(MixedSignals::which()?.into())
    }
}

struct By<F>(F);

impl<F: Fn(MixedRaiser) -> Answer<u32>> MixedHandler for By<F> {
    fn which(&self, by: MixedRaiser) -> Answer<u32> {
        (self.0)(by)
    }
}

fn everywhere(test: impl Fn(&MixedClient)) {
    let names = farcall::names::Memory::new();
    let runtime = || farcall::Runtime::builder().registry(names.clone()).build().unwrap();
    let (here, there) = (runtime(), runtime());
    let _export = there.export::<dyn Mixed>("Mixed/a", Arc::new(Raises)).unwrap();
    test(&here.import::<dyn Mixed>("Mixed/a").unwrap());
    test(&farcall::stub::local::<dyn Mixed>(Arc::new(Raises)));
}

#[test]
fn a_handler_is_told_which_procedure_has_raised_the_signal() {
    everywhere(|mixed| {
        let mixed = mixed.catching(By(|by| match by {
            MixedRaiser::number(call) => call.unwind(Ok(7)),
            MixedRaiser::fraction(call) => call.fail(TooLarge { most: 3 }),
            MixedRaiser::Direct => panic!("it was called by a stub"),
        }));
        assert_eq!(mixed.number().unwrap(), 7);
        assert_eq!(mixed.start().number().wait().unwrap(), 7);
        assert_eq!(mixed.fraction().unwrap_err().declared(), Some(&TooLarge { most: 3 }));
    });
}

#[test]
fn an_outcome_of_other_types_than_the_procedures_is_an_error_at_the_caller() {
    everywhere(|mixed| {
        let number = mixed.catching(By(|_| Answer::unwind(Result::<u64>::Ok(5))));
        assert_eq!(number.number().unwrap(), 5);
        let why = number.fraction().unwrap_err();
        assert_eq!((kind(&why), why.ran()), (Some(Kind::BadResult), Ran::Yes), "{why}");
        assert!(why.to_string().contains("fraction() -> f64"), "{why}");
        let text = mixed.catching(By(|_| Answer::unwind(Result::<String>::Ok("text".into()))));
        assert_eq!(kind(&text.number().unwrap_err()), Some(Kind::BadResult));
        let exception = || Result::<(), TooLarge>::Err(TooLarge { most: 3 }.into());
        let raises = mixed.catching(By(move |_| Answer::unwind(exception())));
        assert_eq!(kind(&raises.number().unwrap_err()), Some(Kind::BadResult), "it declares no exception");
        assert_eq!(raises.fraction().unwrap_err().declared(), Some(&TooLarge { most: 3 }));
        // What was made for another procedure.
        let kept = Mutex::new(None);
        let keeps = mixed.catching(By(move |by| {
            let mut kept = kept.lock().unwrap();
            match (by, *kept) {
                (MixedRaiser::number(call), _) => {
                    *kept = Some(call);
                    call.unwind(Ok(1))
                }
                (_, Some(call)) => call.unwind(Ok(2)),
                _ => Answer::Pass,
            }
        }));
        assert_eq!(keeps.number().unwrap(), 1);
        assert_eq!(kind(&keeps.fraction().unwrap_err()), Some(Kind::BadResult));
        let fails = mixed.catching(By(|_| Answer::fail(CallFailed::new(Kind::NotPermitted, Ran::Yes))));
        assert_eq!(kind(&fails.number().unwrap_err()), Some(Kind::NotPermitted));
        assert_eq!(kind(&fails.fraction().unwrap_err()), Some(Kind::NotPermitted));
    });
}

/// A server whose procedure waits, or panics, while it is unwound.
#[farcall::interface]
pub trait Slow {
    fn run(&self) -> Result<u64>;
    #[signal]
    fn ask(&self) -> u64;
}

struct Unwinds<F>(F);

impl<F: Fn() + Send + Sync + 'static> Slow for Unwinds<F> {
    fn run(&self) -> Result<u64> {
        let unwound = SlowSignals::ask();
        (self.0)();
        Ok(unwound?)
    }
}

struct Leaves;

impl SlowHandler for Leaves {
    fn ask(&self, _: SlowRaiser) -> Answer<u64> {
        Answer::unwind(Result::<u64>::Ok(9))
    }
}

#[test]
fn a_caller_is_told_of_a_server_that_dies_while_it_unwinds() {
    for dies in [false, true] {
        let patience = if dies { Duration::from_millis(300) } else { Duration::from_secs(60) };
        let runtime = || {
            let builder = farcall::Runtime::builder().registry(farcall::names::Memory::new());
            builder.patience(patience).shared_memory(false).open().build().unwrap()
        };
        let (here, there) = (runtime(), runtime());
        let (go, goes) = mpsc::sync_channel::<()>(1);
        let goes = Mutex::new(goes);
        let cut = Arc::new(AtomicBool::new(false));
        let cuts = cut.clone();
        let server = Unwinds(move || {
            cuts.store(dies, Ordering::SeqCst);
            let _ = goes.lock().unwrap().recv();
        });
        let export = there.export::<dyn Slow>("Slow/a", Arc::new(server)).unwrap();
        let wire = wire::cut_by(export.address(), cut);
        let slow = here.import::<dyn Slow>(&format!("udp://{wire}/Slow")).unwrap().catching(Leaves);
        if !dies {
            go.send(()).unwrap();
        }
        let outcome = slow.run();
        drop(go);
        match outcome {
            Ok(9) if !dies => {}
            Err(why) if dies => assert_eq!(why.ran(), Ran::Maybe, "{why}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_caller_is_told_of_a_procedure_that_panics_while_it_is_unwound() {
    let slow = farcall::stub::local::<dyn Slow>(Arc::new(Unwinds(|| panic!("while it is unwound"))));
    assert_eq!(kind(&slow.catching(Leaves).run().unwrap_err()), Some(Kind::Panicked));
    let names = farcall::names::Memory::new();
    let runtime = || farcall::Runtime::builder().registry(names.clone()).build().unwrap();
    let (here, there) = (runtime(), runtime());
    let server = Arc::new(Unwinds(|| panic!("while it is unwound")));
    let _export = there.export::<dyn Slow>("Slow/a", server).unwrap();
    let slow = here.import::<dyn Slow>("Slow/a").unwrap().catching(Leaves);
    assert_eq!(kind(&slow.run().unwrap_err()), Some(Kind::Panicked));
}
