//! Imports that are renewed when their generation is over, or their exporter was started again.

use std::sync::{Arc, Mutex};

use farcall::memory::{Memory, Refused, Renewing, Rights, Segment, Settings};
use farcall::{CallFailed, Error, Kind, Ran, Runtime};

fn builder(shares: bool) -> farcall::Builder {
    Runtime::builder().registry(farcall::names::Memory::new()).shared_memory(shares)
}

fn exported(shares: bool, first: u64) -> (Runtime, Segment) {
    let runtime = builder(shares).build().unwrap();
    let segment = runtime.export_segment("Kept", Settings::new(64).anyone(Rights::ALL)).unwrap();
    segment.store(0, first).unwrap();
    (runtime, segment)
}

#[test]
fn an_import_outlives_generations_and_exporters() {
    for shares in [false, true] {
        let (former, segment) = exported(shares, 1);
        let (importer, url) = (builder(shares).build().unwrap(), Arc::new(Mutex::new(segment.url())));
        let place = url.clone();
        let kept = Renewing::new(move || importer.import_segment(&place.lock().unwrap())).unwrap();
        assert_eq!(kept.with(|memory| memory.load(0)), Ok(1));
        segment.export_again();
        assert_eq!(kept.with(|memory| memory.compare_and_swap(0, 1, 2)), Ok(1));
        // A refusal that no renewal would change is not tried again.
        let refused = kept.with(|memory| memory.load(64));
        assert_eq!(refused, Err(Error::Declared(Refused::OutOfRange(64))));
        drop((segment, former));
        let (_latter, segment) = exported(shares, 7);
        *url.lock().unwrap() = segment.url();
        assert_eq!(kept.with(|memory| memory.load(0)), Ok(7), "shared: {shares}");
        kept.with(|memory| memory.store(8, 9).and_then(|()| memory.flush())).unwrap();
        assert_eq!(segment.load(8), Ok(9));
        segment.revoke();
        let why: CallFailed = match kept.with(|memory| memory.store(8, 10)) {
            Err(Error::CallFailed(why)) => why,
            other => panic!("{other:?}"),
        };
        assert_eq!((why.kind(), why.ran()), (Kind::NotExported, Ran::No), "shared: {shares}: {why}");
    }
}

#[test]
fn one_of_several_threads_imports_again() {
    let (_runtime, segment) = exported(false, 1);
    let (importer, url) = (builder(false).build().unwrap(), segment.url());
    let imports = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let counted = imports.clone();
    let kept = Renewing::new(move || {
        counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        importer.import_segment(&url)
    });
    let kept = kept.unwrap();
    for round in 1..10 {
        segment.export_again();
        std::thread::scope(|scope| {
            (0..8).for_each(|_| drop(scope.spawn(|| assert_eq!(kept.with(|memory| memory.load(0)), Ok(1)))));
        });
        assert_eq!(imports.load(std::sync::atomic::Ordering::SeqCst), round + 1);
    }
}
