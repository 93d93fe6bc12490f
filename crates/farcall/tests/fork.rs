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
    wait_for(start_child(f))
}

/// Runs `f` in a forked child, which ends with the status 0 if it returns true.
fn start_child(f: impl FnOnce() -> bool) -> libc::pid_t {
    // SAFETY: the child calls nothing but `f` and `_exit`. `f` uses only memory of which the child has a
    // copy, and takes no lock that another thread of the parent can hold at this moment.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let good = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).unwrap_or(false);
        // SAFETY: this ends the child without running code that belongs to its parent.
        unsafe { libc::_exit(if good { 0 } else { 1 }) }
    }
    child
}

/// Waits for a child's end, and returns its exit status.
fn wait_for(child: libc::pid_t) -> i32 {
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
fn a_child_that_drains_tells_its_parents_clients_nothing() {
    let time = std::time::Duration::from_secs(1);
    for scheme in ["udp:", "shm:"] {
        let [runtime, clients] = [(); 2].map(|()| common::builder().shared_memory(true).build().unwrap());
        let export = runtime.export::<dyn Ping>("Ping", server()).unwrap();
        let url = export.url().replace("udp:", scheme);
        let ping = clients.import::<dyn Ping>(&url).unwrap();
        assert_eq!(ping.ping().unwrap(), 7);
        let connections = || {
            let stats = clients.stats();
            let links: Vec<u64> = stats.links.iter().map(|link| link.calls).collect();
            (stats.peers.len(), links)
        };
        let before = connections();
        let mut export = std::cell::Cell::new(Some(export));
        assert_eq!(in_child(|| !runtime.drain(time) && !export.take().unwrap().drain(time)), 0);
        assert_eq!(ping.ping().unwrap(), 7);
        let (peers, mut links) = before;
        links.iter_mut().for_each(|calls| *calls += 1);
        assert_eq!(connections(), (peers, links), "{scheme} the same connections are used");
        assert!(export.get_mut().take().unwrap().drain(time), "the parent can drain");
    }
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
    use farcall::memory::{Importers, Memory, Notify, Result, Rights, Settings};

    use crate::is_forked as is_forked_call;

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
    // What the child may not do would take the parent's memory away from others, or end the export.
    let status = in_child(|| {
        segment.withdraw(Importers::Anyone);
        segment.inhibit_writes(true);
        segment.export_again();
        segment.revoke();
        is_forked(segment.set_notify(Notify::Always))
            && [
                segment.grant(Importers::Anyone, Rights::ALL),
                segment.inhibit_writes_of(Importers::Anyone, true),
            ]
            .into_iter()
            .all(is_forked_call)
    });
    assert_eq!((status, remote.load(0), remote.store(8, 1), segment.load(0)), (0, Ok(7), Ok(()), Ok(7)));
    let segment = std::cell::Cell::new(Some(segment));
    let status = in_child(|| {
        drop(segment.take());
        true
    });
    assert_eq!((status, remote.load(0)), (0, Ok(7)));
}

/// Returns whether any memory file of farcall that this process has mapped contains this word.
#[cfg(target_os = "linux")]
fn maps(word: u64) -> bool {
    use std::os::unix::fs::FileExt;
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let memory = std::fs::File::open("/proc/self/mem").unwrap();
    maps.lines().filter(|line| line.contains("memfd:farcall")).any(|line| {
        let (range, _) = line.split_once(' ').unwrap();
        let (start, end) = range.split_once('-').unwrap();
        let [start, end] = [start, end].map(|address| u64::from_str_radix(address, 16).unwrap());
        // What cannot be read, because another test has unmapped it meanwhile, shows nothing.
        let mut page = [0; 4096];
        (start..end).step_by(4096).any(|at| {
            memory.read_exact_at(&mut page, at).is_ok() && page.as_chunks().0.contains(&word.to_ne_bytes())
        })
    })
}

#[test]
#[cfg(target_os = "linux")]
fn a_child_of_an_importer_keeps_no_right_that_was_withdrawn() {
    use farcall::Error;
    use farcall::memory::{Importers, Memory, Rights, Settings};
    use std::io::{Read, Write};

    if std::env::var_os("FARCALL_SHM").is_some_and(|value| value == "off") {
        return println!("skipped: what a child inherits of a mapped segment: FARCALL_SHM=off maps none");
    }
    for (rights, secret) in [(Rights::READ, 0x5ec7_e75e_c7e7_5ec7), (Rights::ALL, 0x5ec7_e75e_c7e7_5ec8)] {
        let segment =
            common::runtime().export_segment("Withdrawn", Settings::new(4096).same_user(rights)).unwrap();
        let remote = common::runtime().import_segment(&segment.url()).unwrap();
        segment.store(0, 0x0b5e_55ed).unwrap();
        assert_eq!(remote.load(0), Ok(0x0b5e_55ed));
        assert!(maps(0x0b5e_55ed), "what the child inherits is mapped");
        let (mut waits, goes_on) = std::io::pipe().unwrap();
        let goes_on = std::cell::Cell::new(Some(goes_on));
        let child = start_child(|| {
            // If the parent fails, the pipe ends.
            drop(goes_on.take());
            waits.read_exact(&mut [0]).unwrap();
            let is_forked = |outcome: farcall::memory::Result<u64>| matches!(outcome, Err(Error::CallFailed(why)) if why.kind() == Kind::Forked);
            is_forked(remote.load(0)) && !maps(secret)
        });
        segment.withdraw(Importers::SameUser);
        // The segment is in a memory file again.
        segment.export_again();
        segment.store(0, secret).unwrap();
        assert!(maps(secret), "the exporter has it mapped");
        goes_on.take().unwrap().write_all(&[1]).unwrap();
        assert_eq!(wait_for(child), 0, "{rights:?}");
        assert!(remote.load(0).is_err());
    }
}

#[test]
fn a_child_takes_no_notice_of_its_parents() {
    use farcall::memory::{Memory, Notify, Rights, Settings};
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    let settings = Settings::new(64).anyone(Rights::WRITE).notify(Notify::Asked);
    let segment = common::runtime().export_segment("Heard", settings).unwrap();
    let remote = common::runtime().import_segment(&segment.url()).unwrap();
    segment.open_descriptor().unwrap();
    remote.write_notify(8, b"loud").unwrap();
    // The child has the descriptor too, so it would make it unreadable for its parent.
    let status = in_child(|| segment.try_notice().is_none() && is_forked(segment.open_descriptor()));
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    assert_eq!((status, poll(&mut [PollFd::new(&segment, PollFlags::IN)], Some(&now))), (0, Ok(1)));
    assert_eq!(segment.try_notice().map(|notice| notice.offset), Some(8));
}
