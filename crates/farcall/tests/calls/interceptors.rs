//! Interceptors at both ends, and the counters of a runtime.

use std::sync::{Arc, Mutex};

use crate::common::{block_on, builder};
use farcall::intercept::{Call, Ended, Interceptor, Outcome};
use farcall::{CallFailed, Kind, Ran};

#[farcall::interface]
pub trait Store {
    fn get(&self, key: &str) -> farcall::Result<u64, NoSuchKey>;
    fn put(&self, key: &str) -> farcall::Result<()>;
}

#[derive(Debug, PartialEq, farcall::Xdr)]
pub struct NoSuchKey;

struct Server;
impl Store for Server {
    fn get(&self, key: &str) -> farcall::Result<u64, NoSuchKey> {
        match key {
            "answer" => Ok(42),
            "panic" => std::panic::resume_unwind(Box::new("ouch")),
            _ => Err(NoSuchKey.into()),
        }
    }

    fn put(&self, _: &str) -> farcall::Result<()> {
        unreachable!("an interceptor refuses each call of `put`")
    }
}

/// Records the calls that it sees, and refuses one procedure.
#[derive(Clone, Default)]
struct Diary {
    lines: Arc<Mutex<Vec<String>>>,
    refuses: Option<&'static str>,
}

impl Interceptor for Diary {
    fn before(&self, call: &Call<'_>) -> Result<(), CallFailed> {
        if self.refuses == Some(call.procedure) {
            return Err(CallFailed::new(Kind::NotPermitted, Ran::Yes).because("not you"));
        }
        let caller = if call.peer.is_some() { " from somebody" } else { "" };
        self.lines.lock().unwrap().push(format!("{}.{}{caller}", call.interface, call.procedure));
        Ok(())
    }

    fn after(&self, call: &Call<'_>, ended: &Ended<'_>) {
        let what = match ended.outcome {
            Outcome::Result => "result".to_owned(),
            Outcome::Exception => "exception".to_owned(),
            Outcome::Failed(why) => format!("{:?}", why.kind()),
            other => format!("{other:?}"),
        };
        self.lines.lock().unwrap().push(format!("{}: {what}", call.procedure));
    }
}

impl Diary {
    fn read(&self) -> Vec<String> {
        std::mem::take(&mut *self.lines.lock().unwrap())
    }
}

#[test]
fn interceptors_see_every_call_at_both_ends() {
    let (calls, serving) = (Diary::default(), Diary::default());
    let runtime =
        builder().intercept_calls(calls.clone()).intercept_serving(serving.clone()).build().unwrap();
    let _export = runtime.export::<dyn Store>("Store", Arc::new(Server)).unwrap();
    let store = runtime.import::<dyn Store>("Store").unwrap();

    store.get("answer").unwrap();
    assert_eq!(calls.read(), ["Store.get", "get: result"]);
    assert_eq!(serving.read(), ["Store.get from somebody", "get: result"]);
    store.start().get("question").wait().unwrap_err();
    assert_eq!(calls.read(), ["Store.get", "get: exception"]);
    assert_eq!(serving.read(), ["Store.get from somebody", "get: exception"]);
    block_on(async { store.start().get("panic").await }).unwrap_err();
    assert_eq!(calls.read(), ["Store.get", "get: Panicked"]);
    assert_eq!(serving.read(), ["Store.get from somebody", "get: Panicked"]);
}

#[test]
fn an_interceptor_refuses_at_either_end_and_the_call_does_not_run() {
    for at_caller in [true, false] {
        let diary = Diary { refuses: Some("put"), ..Diary::default() };
        let builder = match at_caller {
            true => builder().intercept_calls(diary.clone()),
            false => builder().intercept_serving(diary.clone()),
        };
        let runtime = builder.build().unwrap();
        let _export = runtime.export::<dyn Store>("Store", Arc::new(Server)).unwrap();
        let store = runtime.import::<dyn Store>("Store").unwrap();
        for result in [store.put("key"), store.start().put("key").wait()] {
            let why = CallFailed::from(result.unwrap_err());
            assert_eq!((why.kind(), why.ran()), (Kind::NotPermitted, Ran::No));
            assert!(why.detail().contains("not you"), "{why}");
        }
        assert!(diary.read().is_empty());
    }
}

#[test]
fn a_runtime_counts_the_outcomes_of_calls() {
    let runtime = builder().shared_memory(false).build().unwrap();
    let _export = runtime.export::<dyn Store>("Store", Arc::new(Server)).unwrap();
    let store = runtime.import::<dyn Store>("Store").unwrap();
    for _ in 0..100 {
        store.get("answer").unwrap();
    }
    for _ in 0..3 {
        store.get("question").unwrap_err();
    }
    store.get("panic").unwrap_err();
    let stats = runtime.stats();
    let get = &stats.exports[0].procedures[0];
    assert_eq!((&*get.name, get.results, get.exceptions, get.failures), ("get", 100, 3, 1));
    assert!(get.ran.count() >= 8 && get.ran.count() <= 104, "{get:?}");
    assert!(get.ran.quantile(0.5) > std::time::Duration::ZERO);
    // A call counts as running until its result has left.
    while runtime.stats().exports[0].running > 0 {}
    assert!(stats.server.unwrap().calls >= 104);
    assert_eq!(stats.peers[0].conversation.calls, 104);
    assert_eq!(stats.peers[0].outstanding, 0);
    assert!(stats.peers[0].round_trip.is_some());
}

/// Makes a call of its own at the end of the next call.
#[derive(Clone, Default)]
struct Reporter(Arc<Mutex<Option<StoreClient>>>);

impl Interceptor for Reporter {
    fn after(&self, _: &Call<'_>, _: &Ended<'_>) {
        let store = self.0.lock().unwrap().take();
        if let Some(store) = store {
            store.get("answer").unwrap();
        }
    }
}

#[test]
fn an_interceptor_can_make_calls() {
    let reporter = Reporter::default();
    let runtime = builder().shared_memory(false).intercept_calls(reporter.clone()).build().unwrap();
    let _export = runtime.export::<dyn Store>("Store", Arc::new(Server)).unwrap();
    let store = runtime.import::<dyn Store>("Store").unwrap();
    let report = || *reporter.0.lock().unwrap() = Some(store.clone());
    report();
    store.get("answer").unwrap();
    report();
    store.start().get("answer").wait().unwrap();
    report();
    block_on(async { store.start().get("answer").await }).unwrap();
    assert_eq!(runtime.stats().peers[0].conversation.calls, 6);
}
