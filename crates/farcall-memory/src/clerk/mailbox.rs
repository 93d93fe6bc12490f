//! The look-up of a name by asking: clerks, the name services of the machines, write questions and answers
//! into one another's memory.
//!
//! A clerk's mailbox is a segment that every process may write; the clerk is notified of every write. The
//! first slots of the mailbox are for questions of other clerks, the rest for answers to the clerk's own
//! questions. The clerk's table is in another segment, because no other process may write to the table. An
//! answer goes to the address from which the question came. Only the port is taken from the question, so that
//! a question cannot make the clerk write to another machine.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::entry::{Entry, RECORD_BYTES, Record, Slot};
use super::neighbours::Neighbours;
use super::{Core, Fault, table};
use crate::Memory as _;
use crate::access::Rights;
use crate::runtime::MemoryRuntime;
use crate::segment::{Notify, Segment, Settings};
use farcall_core::env::Event;
use farcall_core::{CallFailed, Result, lock};

/// The name of every clerk's mailbox segment.
pub(super) const NAME: &str = "clerk-post";

/// The number of slots for questions, and of slots for answers.
const SLOTS: usize = 32;

/// The most times that an unanswered question is asked.
const MAX_ATTEMPTS: u64 = 4;
/// How long an answer is awaited each time.
const ANSWER_PATIENCE: Duration = Duration::from_millis(500);

/// The most threads that answer clerks whose mailbox was not imported before.
const MAX_ANSWERING_THREADS: usize = 8;

/// The outcome of a question to another clerk.
pub(super) enum Asked {
    Answered(Option<Entry>),
    /// The question was not asked, because all slots for answers are in use.
    NoSlot,
    /// The question was written, but no answer came.
    Silent,
}

/// The segment into which other clerks write questions and answers, and the state that is needed to ask other
/// clerks.
pub(super) struct Mailbox {
    segment: Segment,
    /// The imported mailboxes of other clerks.
    others: Neighbours,
    /// The unused slots for answers.
    unused: Mutex<Vec<usize>>,
    /// For each slot for answers, an event that is set when another clerk has written there.
    answered: Vec<Arc<dyn Event>>,
    /// The number of threads that answer clerks whose mailbox was not imported before.
    answering_threads: AtomicUsize,
}

impl Mailbox {
    pub(super) fn new(runtime: &dyn MemoryRuntime) -> std::result::Result<Mailbox, CallFailed> {
        let writable = Settings::new(2 * SLOTS * RECORD_BYTES).anyone(Rights::WRITE).notify(Notify::Always);
        Ok(Mailbox {
            segment: Segment::offer(runtime, NAME, writable)?,
            others: Neighbours::new(NAME),
            unused: Mutex::new((0..SLOTS).collect()),
            answered: (0..SLOTS).map(|_| runtime.env().event()).collect(),
            answering_threads: AtomicUsize::new(0),
        })
    }

    /// Wakes the clerk's thread from [`serve`].
    pub(super) fn wake(&self) {
        self.segment.wake();
    }

    /// Asks another clerk for a name.
    ///
    /// # Errors
    /// When the question cannot be written into the other clerk's memory.
    pub(super) fn ask(&self, core: &Core, home: SocketAddr, name: &str) -> Result<Asked, Fault> {
        let Some(place) = lock(&self.unused).pop() else { return Ok(Asked::NoSlot) };
        let asked = self.ask_from(place, core, home, name);
        lock(&self.unused).push(place);
        asked
    }

    fn ask_from(&self, place: usize, core: &Core, home: SocketAddr, name: &str) -> Result<Asked, Fault> {
        let (env, mut token) = (core.runtime.env(), [0; 8]);
        env.entropy(&mut token);
        let token = u64::from_le_bytes(token);
        for attempt in 0..MAX_ATTEMPTS {
            // The size field of a question says how often the question was asked before.
            let question = Entry {
                name: name.to_owned(),
                address: core.address,
                generation: 1,
                size: attempt,
                rights: 0,
            };
            let question = Record { entry: Some(question), token, place: place as u64 }.to_bytes();
            let at = token.wrapping_add(attempt) % SLOTS as u64 * RECORD_BYTES as u64;
            self.others.with(&*core.runtime, home, &|theirs| theirs.write_notify(at, &question))?;
            let asked = env.now();
            let (until, spin) = (asked + ANSWER_PATIENCE, asked + core.runtime.spin());
            loop {
                if let Some(answer) = self.answer(place, token)? {
                    return Ok(Asked::Answered(answer.filter(|entry| entry.name == name)));
                }
                match env.now() {
                    now if now >= until => break,
                    now if now < spin => std::hint::spin_loop(),
                    now => drop(self.answered[place].wait(Some(until.since(now)))),
                }
            }
        }
        Ok(Asked::Silent)
    }

    /// Returns the answer to the question with this token, if it has come.
    fn answer(&self, place: usize, token: u64) -> Result<Option<Option<Entry>>, Fault> {
        let slot = table::read_one(&self.segment, (SLOTS + place) as u64).map_err(super::own_memory)?;
        Ok(match slot {
            Slot::Held(record) if record.token == token => Some(record.entry),
            _ => None,
        })
    }
}

/// Waits until another clerk has written, for at most `timeout`. Answers questions, and wakes threads that
/// wait for an answer.
pub(super) fn serve(core: &Arc<Core>, timeout: Option<Duration>) {
    let mailbox = &core.mailbox;
    let Some(notice) = mailbox.segment.notice_within(timeout) else { return };
    let (first, end) = (
        notice.offset / RECORD_BYTES as u64,
        notice.offset.saturating_add(notice.len).div_ceil(RECORD_BYTES as u64),
    );
    for place in first..end.min(2 * SLOTS as u64) {
        match (mailbox.answered.get((place as usize).wrapping_sub(SLOTS)), notice.from) {
            (Some(event), _) => event.set(),
            (None, Some(from)) => take_question(core, place, from),
            // The address of the asking clerk is unknown, so it gets no answer. It asks again.
            (None, None) => {}
        }
    }
}

/// Takes the question from a slot, if there is one, and answers it.
fn take_question(core: &Arc<Core>, place: u64, from: SocketAddr) {
    let (segment, at) = (&core.mailbox.segment, place * RECORD_BYTES as u64);
    let (Ok(flag), Ok(Slot::Held(question))) = (segment.load(at), table::read_one(segment, place)) else {
        return;
    };
    // Each question is taken once. If another question is in the slot by now, it has a notice of its own.
    if segment.compare_and_swap(at, flag, 0) != Ok(flag) {
        return;
    }
    let Some(asked) = question.entry else { return };
    if question.place >= SLOTS as u64 {
        return;
    }
    let found = core.with_table(|table| table::find(table, &asked.name)).ok().and_then(|(found, _)| found);
    let answer = Record { entry: found, token: question.token, place: 0 };
    let asker = SocketAddr::new(from.ip(), asked.address.port());
    if asked.size > 0 {
        // The asking clerk has received no answer, so the imported mailbox may be that of a former clerk.
        core.mailbox.others.forget(asker);
    }
    reply(core, asker, (SLOTS as u64 + question.place) * RECORD_BYTES as u64, answer.to_bytes());
}

/// Writes an answer into the asking clerk's mailbox. If the mailbox must be imported first, a separate thread
/// does this.
fn reply(core: &Arc<Core>, asker: SocketAddr, at: u64, answer: [u8; RECORD_BYTES]) {
    if let Some(theirs) = core.mailbox.others.known(asker) {
        return theirs.start_write(at, &answer).detach();
    }
    if core.mailbox.answering_threads.fetch_add(1, Ordering::Relaxed) >= MAX_ANSWERING_THREADS {
        core.mailbox.answering_threads.fetch_sub(1, Ordering::Relaxed);
        return;
    }
    let shared = core.clone();
    let run = move || {
        let _ = shared.mailbox.others.with(&*shared.runtime, asker, &|theirs| theirs.write(at, &answer));
        shared.mailbox.answering_threads.fetch_sub(1, Ordering::Relaxed);
    };
    if core.runtime.env().spawn("farcall answer", Box::new(run)).is_err() {
        core.mailbox.answering_threads.fetch_sub(1, Ordering::Relaxed);
    }
}
