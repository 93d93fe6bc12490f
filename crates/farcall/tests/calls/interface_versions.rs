//! Tests of importers and exporters that were built with different versions of one interface.

use crate::common;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::block_on;
use farcall::{CallFailed, Kind, Ran};
use old::Store as _;

/// The interface with which importers were built.
mod old {
    #[farcall::interface]
    pub trait Store {
        fn get(&self, key: &str) -> farcall::Result<u64>;
        fn delete(&self, key: &str) -> farcall::Result<u64>;
        fn count(&self) -> farcall::Result<u64>;
        fn size(&self) -> farcall::Result<u64>;
        #[procedure(9)]
        fn sync(&self) -> farcall::Result<()>;
        fn age(&self) -> farcall::Result<u64>;
        fn clear(&self) -> farcall::Result<()>;
    }
}

/// The interface with which the exporter was built. The first two procedures have swapped places. Three
/// procedures were renamed: the number of `count` is pinned here only, the number of `sync` in both versions,
/// and the number of `size` in neither. `age` has another type, and `clear` is gone.
mod new {
    #[farcall::interface]
    pub trait Store {
        fn delete(&self, key: &str) -> farcall::Result<u64>;
        fn get(&self, key: &str) -> farcall::Result<u64>;
        #[procedure(3)]
        fn entries(&self) -> farcall::Result<u64>;
        fn bytes(&self) -> farcall::Result<u64>;
        #[procedure(9)]
        fn flush(&self) -> farcall::Result<()>;
        fn age(&self) -> farcall::Result<u32>;
    }
}

#[derive(Default)]
struct Server {
    calls: AtomicU64,
}

impl Server {
    fn called<T>(&self, value: T) -> farcall::Result<T> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        Ok(value)
    }
}

impl new::Store for Server {
    fn delete(&self, _: &str) -> farcall::Result<u64> {
        self.called(0)
    }
    fn get(&self, _: &str) -> farcall::Result<u64> {
        self.called(0)
    }
    fn entries(&self) -> farcall::Result<u64> {
        self.called(42)
    }
    fn bytes(&self) -> farcall::Result<u64> {
        self.called(0)
    }
    fn flush(&self) -> farcall::Result<()> {
        self.called(())
    }
    fn age(&self) -> farcall::Result<u32> {
        self.called(0)
    }
}

fn refused<T: std::fmt::Debug>(result: farcall::Result<T>) -> (Kind, String) {
    let why = CallFailed::from(result.unwrap_err());
    assert_eq!(why.ran(), Ran::No, "{why}");
    (why.kind(), why.detail().to_owned())
}

fn each_carrier(test: impl Fn(&farcall::Runtime)) {
    for shared_memory in [false, true] {
        test(&common::builder().shared_memory(shared_memory).build().unwrap());
    }
}

#[test]
fn moved_or_changed_procedures_are_refused_and_renamed_ones_need_a_pin() {
    each_carrier(|runtime| {
        let server = Arc::new(Server::default());
        let export = runtime.export::<dyn new::Store>("Store/a", server.clone()).unwrap();
        let store = runtime.import::<dyn old::Store>("Store").unwrap();
        let at = export.address();
        for _ in 0..2 {
            let (kind, why) = refused(store.get("key"));
            assert_eq!(kind, Kind::Mismatch);
            let moved = "moved from number 1 to 2; pin it with #[procedure(1)]";
            assert_eq!(why, format!("Store.get: {moved} (at {at})"));
            assert_eq!(refused(block_on(async { store.start().get("key").await })), (kind, why));
            assert_eq!(refused(store.start().delete("key").wait()).0, Kind::Mismatch);
            let (kind, why) = refused(store.size());
            let renamed = "procedure 4 has another name now; pin it with #[procedure(4)]";
            assert_eq!((kind, why), (Kind::Mismatch, format!("Store.size: {renamed} (at {at})")));
            let (kind, why) = refused(store.age());
            assert_eq!(kind, Kind::Mismatch);
            assert_eq!(why, format!("Store.age: has other types now than age() -> u64 (at {at})"));
            let (kind, why) = refused(store.clear());
            assert_eq!(
                (kind, why),
                (Kind::NoSuchProcedure, format!("Store.clear: procedure 11 is gone (at {at})"))
            );
        }
        assert_eq!(server.calls.load(Ordering::SeqCst), 0);
        assert_eq!(
            store.count().unwrap(),
            42,
            "the procedure was renamed, and its number is pinned by the exporter"
        );
        store.sync().unwrap();
        assert_eq!(store.start().count().wait().unwrap(), 42);
        assert_eq!(server.calls.load(Ordering::SeqCst), 3);
    });
}

#[test]
fn a_group_call_fails_only_at_members_whose_procedure_has_changed() {
    let runtime = common::runtime();
    let _export = runtime.export::<dyn new::Store>("Store/new", Arc::new(Server::default())).unwrap();
    let stores = runtime.import_all::<dyn old::Store>("Store").unwrap();
    let outcome = stores.multi().get("key").all();
    let (_, failed) = outcome.failures().next().unwrap();
    assert_eq!((failed.kind(), failed.ran()), (Kind::Mismatch, Ran::No), "{failed}");
    assert_eq!(stores.multi().count().all().results().map(|(_, count)| *count).collect::<Vec<_>>(), [42]);
}

#[test]
fn an_exporter_of_the_same_version_is_preferred() {
    struct Same;
    impl old::Store for Same {
        fn get(&self, _: &str) -> farcall::Result<u64> {
            Ok(1)
        }
        fn delete(&self, _: &str) -> farcall::Result<u64> {
            Ok(2)
        }
        fn count(&self) -> farcall::Result<u64> {
            Ok(3)
        }
        fn size(&self) -> farcall::Result<u64> {
            Ok(4)
        }
        fn sync(&self) -> farcall::Result<()> {
            Ok(())
        }
        fn age(&self) -> farcall::Result<u64> {
            Ok(5)
        }
        fn clear(&self) -> farcall::Result<()> {
            Ok(())
        }
    }
    let names = farcall::names::Memory::new();
    let [one, other] = [(), ()].map(|()| common::builder().registry(names.clone()).build().unwrap());
    let _new = one.export::<dyn new::Store>("Store/a", Arc::new(Server::default())).unwrap();
    let _old = other.export::<dyn old::Store>("Store/b", Arc::new(Same)).unwrap();
    for _ in 0..10 {
        let store = one.import::<dyn old::Store>("Store").unwrap();
        assert_eq!(store.get("key").unwrap(), 1);
    }
}
