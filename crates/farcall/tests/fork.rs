//! Tests that after `fork` the child's handles fail, and the parent's continue to work.
//!
//! This is a binary of its own because it forks, and a child has only the thread that forked.
#![cfg(unix)]
#![allow(missing_docs)]
#![allow(unsafe_code)]

mod common;

use std::sync::Arc;

use farcall::{CallFailed, Kind, Ran};

#[farcall::interface]
pub trait Ping {
    fn ping(&self) -> farcall::Result<u64>;
    #[oneway]
    fn hear(&self) -> farcall::Result<()>;
    /// Waits until the test lets it go on.
    #[oneway]
    #[blocking]
    fn hold(&self) -> farcall::Result<()>;
}

struct Server(std::sync::Barrier);
impl Ping for Server {
    fn ping(&self) -> farcall::Result<u64> {
        Ok(7)
    }

    fn hear(&self) -> farcall::Result<()> {
        Ok(())
    }

    fn hold(&self) -> farcall::Result<()> {
        for _ in 0..2 {
            self.0.wait();
        }
        Ok(())
    }
}

fn server() -> Arc<Server> {
    Arc::new(Server(std::sync::Barrier::new(2)))
}

/// Runs `f` in a forked child, and returns its exit status: 0 if it returned true.
fn in_child(f: impl FnOnce() -> bool) -> i32 {
    // SAFETY: the child calls nothing but `f` and `_exit`. `f` uses only memory of which the child has a
    // copy, and takes no lock that another thread of the parent can hold at this moment.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let good = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).unwrap_or(false);
        // SAFETY: this ends the child without running code that belongs to its parent.
        unsafe { libc::_exit(if good { 0 } else { 1 }) }
    }
    let mut status = 0;
    // SAFETY: `child` is a child of this process, and `status` outlives the call.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status
}

fn is_forked<T>(result: farcall::Result<T>) -> bool {
    let Err(why) = result else { return false };
    let why = CallFailed::from(why);
    (why.kind(), why.ran()) == (Kind::Forked, Ran::No)
}

#[test]
fn the_childs_handles_fail_and_the_parents_go_on() {
    let runtime = common::runtime();
    let ours = server();
    let export = runtime.export::<dyn Ping>("Ping", ours.clone()).unwrap();
    let ping = runtime.import::<dyn Ping>("Ping").unwrap();
    assert_eq!(ping.ping().unwrap(), 7);
    ping.hear().unwrap();
    ping.hold().unwrap();
    ours.0.wait();
    let behind = std::cell::Cell::new(Some(ping.start().ping()));

    let status = in_child(|| {
        is_forked(ping.ping())
            && is_forked(ping.start().ping().wait())
            && is_forked(ping.hear())
            && is_forked(behind.take().unwrap().wait())
            && is_forked(ping.binding().flush())
            && is_forked(runtime.import::<dyn Ping>("Ping"))
            && is_forked(runtime.export::<dyn Ping>("Ping/child", server()))
    });
    assert_eq!(status, 0);
    ours.0.wait();
    assert_eq!(behind.take().unwrap().wait().unwrap(), 7);
    assert_eq!(ping.ping().unwrap(), 7);

    // A child that drops inherited handles takes nothing away from its parent.
    let (export, ping) = (std::cell::Cell::new(Some(export)), std::cell::Cell::new(Some(ping)));
    let status = in_child(|| {
        drop(export.take());
        drop(ping.take());
        true
    });
    assert_eq!(status, 0);
    assert_eq!(ping.take().unwrap().ping().unwrap(), 7);
    assert_eq!(runtime.import::<dyn Ping>("Ping").unwrap().ping().unwrap(), 7);
    drop(export);
}

#[test]
fn a_child_may_make_a_runtime_of_its_own() {
    let parent = common::runtime();
    let export = parent.export::<dyn Ping>("Ping", server()).unwrap();
    let url = export.url();
    let status = in_child(|| {
        let runtime = common::runtime();
        runtime.import::<dyn Ping>(&url).is_ok_and(|ping| ping.ping().is_ok_and(|answer| answer == 7))
    });
    assert_eq!(status, 0);
}

#[test]
#[cfg(target_os = "linux")]
fn a_child_leaves_alone_what_its_parent_shares_with_others() {
    use farcall::Error;
    use farcall::memory::{Memory, Result, Rights, Settings};

    fn is_forked<T>(result: Result<T>) -> bool {
        matches!(result, Err(Error::CallFailed(why)) if (why.kind(), why.ran()) == (Kind::Forked, Ran::No))
    }
    let exporter = common::runtime();
    let segment = exporter.export_segment("Shared", Settings::new(64).anyone(Rights::ALL)).unwrap();
    let remote = common::runtime().import_segment(&segment.url()).unwrap();
    segment.store(0, 7).unwrap();
    let status = in_child(|| {
        let all: [&dyn Memory; 2] = [&segment, &remote];
        all.iter().all(|memory| {
            is_forked(memory.load(0))
                && is_forked(memory.store(0, 8))
                && is_forked(memory.compare_and_swap(0, 7, 8))
        }) && is_forked(remote.start_read_into(0, 8, &segment, 8, false).wait())
            && is_forked(remote.start_compare_and_swap_into(0, (7, 8), &segment, 8, false).wait())
    });
    assert_eq!(status, 0);
    let segment = std::cell::Cell::new(Some(segment));
    let status = in_child(|| {
        drop(segment.take());
        true
    });
    assert_eq!((status, remote.load(0)), (0, Ok(7)));
}
