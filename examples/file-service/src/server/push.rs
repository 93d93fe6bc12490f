//! Pushes changed entries into the memory of clerks (processes that serve the programs of one machine), by
//! writes without notice: *write requests only* (Thekkath et al. 1994, section 5.1).
//!
//! A change has two steps. Before the server changes an entry or the file, it marks the entry as held in
//! every clerk's memory, and waits for the acknowledgements: from then on no clerk uses the entry. After the
//! change it writes the new entry. So when a write has ended, no clerk uses what was before it. A clerk that
//! does not acknowledge is given up, once its lease is over (`mirror`).

use std::time::{Duration, Instant};

use farcall::memory::{self, Memory, Refused, Remote};
use farcall::{CallFailed, Calls, Error, Kind, Ran, Result};

use super::{Core, State};
use crate::areas::lease;
use crate::mirror::LEASE_OVER;
use crate::table::{Table, Token};

/// How long the server waits for the acknowledgement of a write into a clerk's memory.
const PUSH_PATIENCE: Duration = Duration::from_millis(100);

/// How long the server waits for the acknowledgement of each of the writes by which a new clerk's memory gets
/// all entries.
const FILL_PATIENCE: Duration = Duration::from_secs(5);

/// How long all these writes may take. On a busy machine they take seconds, although the clerk is well.
const FILL_WITHIN: Duration = Duration::from_secs(60);

/// The most bytes that are written at once into the memory of a new clerk.
const FILL_BYTES: usize = 64 << 10;

/// A clerk into whose memory the server pushes entries.
pub(super) struct Pushing {
    mailbox: u32,
    /// The number of the clerk's lease.
    lease: u64,
    pub(super) answers: Remote,
}

impl std::fmt::Debug for Pushing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pushing").field("mailbox", &self.mailbox).finish_non_exhaustive()
    }
}

impl Core {
    /// Marks an entry as held in the clerks' memory. When this returns, no clerk uses it.
    pub(super) fn push_hold(&self, state: &mut State, table: &Table, token: &Token) {
        if state.pushing.is_empty() {
            return;
        }
        let (offset, mark) = table.mark_of_holder(token);
        let offset = match self.is_of_blocks(table) {
            true => self.layout.token(token.place) + 8,
            false => self.layout.offset(&self.areas, offset),
        };
        self.push(state, offset, &mark);
    }

    /// Returns a token, after which the entry is whole, and pushes the entry.
    pub(super) fn release(&self, state: &mut State, table: &Table, token: Token) -> memory::Result<()> {
        let (place, version) = (token.place, token.version);
        table.release(&self.segment, token, false)?;
        if state.pushing.is_empty() {
            return Ok(());
        }
        if self.is_of_blocks(table) {
            self.push(state, self.layout.token(place), &version.to_le_bytes());
            return Ok(());
        }
        // The version in front makes the entry whole, so it is written when the content is there.
        let (offset, content) = table.content(&self.segment, place)?;
        self.push(state, self.layout.offset(&self.areas, offset), &content);
        let end = self.layout.offset(&self.areas, table.end_of(place));
        self.push(state, end, &version.to_le_bytes());
        Ok(())
    }

    fn is_of_blocks(&self, table: &Table) -> bool {
        table.start() == self.areas.blocks.start()
    }

    /// Writes into every clerk's memory, and gives up the clerks that do not acknowledge the write.
    fn push(&self, state: &mut State, offset: u64, bytes: &[u8]) {
        let writes =
            state.pushing.iter().map(|clerk| (clerk.mailbox, clerk.answers.start_write(offset, bytes)));
        let mut under_way: Calls<u32, (), Refused> = Calls::new();
        let mut silent: Vec<u32> = Vec::new();
        for (mailbox, write) in writes {
            under_way.add(mailbox, write);
            silent.push(mailbox);
        }
        let (begun, mut ended) = (Instant::now(), Vec::new());
        while !silent.is_empty() {
            let left = PUSH_PATIENCE.saturating_sub(begun.elapsed());
            match under_way.wait_for(left) {
                Some((mailbox, outcome)) => {
                    if outcome.as_ref().is_err_and(has_ended) {
                        ended.push(mailbox);
                    }
                    if outcome.is_ok() || ended.last() == Some(&mailbox) {
                        silent.retain(|other| *other != mailbox);
                    }
                    if under_way.is_empty() {
                        break;
                    }
                }
                None => break,
            }
        }
        for mailbox in &ended {
            self.clear_lease(state, *mailbox);
        }
        if !silent.is_empty() {
            silent.iter().for_each(|mailbox| self.clear_lease(state, *mailbox));
            // Until then these clerks may believe their memory.
            std::thread::sleep(LEASE_OVER);
        }
    }

    /// Stops pushing entries to the clerk with this mailbox. Its lease may still be valid.
    fn clear_lease(&self, state: &mut State, mailbox: u32) {
        let _ = self.segment.store(lease(mailbox), 0);
        state.pushing.retain(|clerk| clerk.mailbox != mailbox);
    }

    /// Stops pushing entries to a clerk that does not use its memory any more.
    pub(super) fn forget_lease(&self, state: &mut State, lease: u64) {
        if let Some(clerk) = state.pushing.iter().find(|clerk| clerk.lease == lease) {
            let mailbox = clerk.mailbox;
            self.clear_lease(state, mailbox);
        }
    }

    /// Stops pushing entries to the clerk with this mailbox, if there is one, and waits until its lease is
    /// over.
    pub(super) fn end_lease(&self, state: &mut State, mailbox: u32) {
        if state.pushing.iter().any(|clerk| clerk.mailbox == mailbox) {
            self.clear_lease(state, mailbox);
            std::thread::sleep(LEASE_OVER);
        }
    }

    /// Writes all entries into a new clerk's memory, and pushes changes to it from now on.
    pub(super) fn begin_pushing(
        &self,
        state: &mut State,
        mailbox: u32,
        answers: Remote,
        number: u64,
    ) -> Result<()> {
        let until = Instant::now() + FILL_WITHIN;
        let tables = self.areas.but_blocks();
        let mut bytes = vec![0; FILL_BYTES];
        for offset in tables.clone().step_by(FILL_BYTES) {
            let bytes = &mut bytes[..(tables.end - offset).min(FILL_BYTES as u64) as usize];
            self.segment.read(offset, bytes).map_err(own)?;
            // The clerk's memory is new, so it has zeros already.
            if bytes.iter().any(|byte| *byte != 0) {
                fill(&answers, self.layout.offset(&self.areas, offset), bytes, until)?;
            }
        }
        let mut tokens = Vec::new();
        for place in self.areas.blocks.all() {
            let (end, begin) = self.areas.blocks.versions(&self.segment, place).map_err(own)?;
            tokens.extend_from_slice(&end.to_le_bytes());
            tokens.extend_from_slice(&begin.to_le_bytes());
        }
        for (n, bytes) in tokens.chunks(FILL_BYTES).enumerate() {
            fill(&answers, self.layout.token(0) + (n * FILL_BYTES) as u64, bytes, until)?;
        }
        self.segment.store(lease(mailbox), number).map_err(own)?;
        state.pushing.push(Pushing { mailbox, lease: number, answers });
        Ok(())
    }
}

/// Returns whether a failed write shows that the clerk has ended, so that nobody reads its memory.
fn has_ended(why: &Error<Refused>) -> bool {
    match why {
        Error::Declared(refused) => *refused == Refused::Stale,
        Error::CallFailed(why) => matches!(why.kind(), Kind::NotExported | Kind::Draining),
    }
}

fn fill(answers: &Remote, offset: u64, bytes: &[u8], until: Instant) -> Result<()> {
    let mut write: Calls<(), (), Refused> = Calls::new();
    write.add((), answers.start_write(offset, bytes));
    match write.wait_for(FILL_PATIENCE.min(until.saturating_duration_since(Instant::now()))) {
        Some(((), outcome)) => Ok(outcome.map_err(own)?),
        None => {
            let why = "the clerk's memory cannot be written";
            Err(CallFailed::new(Kind::Unreachable, Ran::Maybe).because(why).into())
        }
    }
}

fn own(why: Error<Refused>) -> CallFailed {
    match why {
        Error::Declared(refused) => CallFailed::new(Kind::NotPermitted, Ran::Maybe).caused_by(refused),
        Error::CallFailed(why) => why,
    }
}
