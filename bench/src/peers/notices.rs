//! Notices of a segment with a descriptor, at the exporter alone, and what a bare eventfd costs.
use anyhow::{Context, Result};
use farcall_bench_method::{Calling, Laps, Peer, Serving, Setup};
use farcall_core::System;
use farcall_core::env::Env;
use farcall_memory::{Accessor, NoticeKind, Notices};
use rustix::event::{EventfdFlags, eventfd};

use super::memory::Nobody;

/// What a lap repeats.
#[derive(Clone, Copy)]
pub enum Announcing {
    /// Writes an eventfd, which makes it readable, and reads it.
    Eventfd,
    /// Adds a notice, which makes the descriptor readable, and takes it.
    Notice,
    /// Adds a notice while one waits, so that the descriptor is readable already.
    Merged,
}

/// The repetitions in a lap: one takes little more time than a reading of the clock.
const LAP: usize = 1_000;

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
        Ok(Box::new(Here(*self)))
    }
}

struct Here(Announcing);

impl Calling for Here {
    fn run(&mut self, laps: &mut Laps) -> Result<()> {
        if let Announcing::Eventfd = self.0 {
            return announce_bare(laps);
        }
        let notices = Notices::new(&System);
        notices.descriptor(|| System.alarm())?;
        let mut by = Accessor::default();
        let merges = matches!(self.0, Announcing::Merged);
        if merges {
            notices.add(NoticeKind::Write, 0, 8, &mut by);
        }
        while laps.next() {
            for _ in 0..LAP {
                notices.add(NoticeKind::Write, 0, 8, &mut by);
                if !merges {
                    notices.fetch().context("a notice was lost")?;
                }
            }
        }
        Ok(())
    }
}

fn announce_bare(laps: &mut Laps) -> Result<()> {
    let descriptor = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let mut count = [0; 8];
    while laps.next() {
        for _ in 0..LAP {
            rustix::io::write(&descriptor, &1_u64.to_ne_bytes())?;
            rustix::io::read(&descriptor, &mut count)?;
        }
    }
    Ok(())
}
