//! Notices of a segment with a descriptor, at the exporter alone, and what a bare eventfd costs.
use anyhow::{Context, Result};
use farcall_bench_method::{Calling, Laps, Peer, Serving, Setup};
use farcall_core::System;
use farcall_core::env::Env;
use farcall_memory::{Accessor, NoticeKind, Notices};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use super::memory::Nobody;

/// What a lap repeats.
#[derive(Clone, Copy, PartialEq)]
enum What {
    /// Writes an eventfd, which makes it readable, and reads it.
    Eventfd,
    /// Adds a notice, which makes the descriptor readable, and takes it.
    Notice,
    /// Adds a notice while one waits, so that the descriptor is readable already.
    Merged,
}

/// One repetition after another, in one thread.
#[derive(Clone, Copy)]
struct Announcing {
    what: What,
    /// Whether the thread polls the descriptor before it takes what was announced.
    polls: bool,
}

/// The repetitions in a lap: one takes little more time than a reading of the clock.
const LAP: usize = 1_000;

/// Returns the peer of this name.
pub fn peer(name: &str) -> Option<Box<dyn Peer>> {
    let (what, polls) = match name {
        "eventfd" | "eventfd-control" => (What::Eventfd, false),
        "eventfd-polled" | "eventfd-polled-control" => (What::Eventfd, true),
        "notice" => (What::Notice, false),
        "notice-polled" => (What::Notice, true),
        "notice-merged" => (What::Merged, false),
        _ => return None,
    };
    Some(Box::new(Announcing { what, polls }))
}

impl Peer for Announcing {
    fn transport(&self) -> &'static str {
        "memory"
    }

    fn calls_per_lap(&self) -> usize {
        LAP
    }

    fn serve(&self, _: &Setup) -> Result<Box<dyn Serving>> {
        Ok(Box::new(Nobody))
    }

    fn connect(&self, _: &Setup, _: &str) -> Result<Box<dyn Calling>> {
        Ok(Box::new(*self))
    }
}

impl Calling for Announcing {
    fn run(&mut self, laps: &mut Laps) -> Result<()> {
        if self.what == What::Eventfd {
            return self.announce_bare(laps);
        }
        let notices = Notices::new(&System);
        let descriptor = notices.descriptor(|| System.alarm())?;
        let (mut polled, mut by) =
            ([PollFd::from_borrowed_fd(descriptor, PollFlags::IN)], Accessor::default());
        let merges = self.what == What::Merged;
        if merges {
            notices.add(NoticeKind::Write, 0, 8, &mut by);
        }
        while laps.next() {
            for _ in 0..LAP {
                notices.add(NoticeKind::Write, 0, 8, &mut by);
                if self.polls {
                    poll(&mut polled, None)?;
                }
                if !merges {
                    notices.fetch().context("a notice was lost")?;
                }
            }
        }
        Ok(())
    }
}

impl Announcing {
    fn announce_bare(&self, laps: &mut Laps) -> Result<()> {
        let descriptor = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (mut polled, mut count) = ([PollFd::new(&descriptor, PollFlags::IN)], [0; 8]);
        while laps.next() {
            for _ in 0..LAP {
                rustix::io::write(&descriptor, &1_u64.to_ne_bytes())?;
                if self.polls {
                    poll(&mut polled, None)?;
                }
                rustix::io::read(&descriptor, &mut count)?;
            }
        }
        Ok(())
    }
}
