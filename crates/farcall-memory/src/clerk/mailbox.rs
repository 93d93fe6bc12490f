//! The look-up with control transfer: questions and answers, which clerks write into one another's memory.
//!
//! A clerk's mailbox is a segment that anyone may write; the clerk hears of every write. Its first places are for questions, its
//! others for the answers to its own. The table is another segment, because no other process may write that. An answer goes to
//! the address from which the question came. Only the port is taken from the question, so that a question cannot have the
//! clerk write to another machine.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::entry::{Entry, RECORD, Record, Slot};
use super::neighbours::Neighbours;
use super::{Core, Fault, table};
use crate::Memory as _;
use crate::access::Rights;
use crate::runtime::MemoryRuntime;
use crate::segment::{Notify, Segment, Settings};
use farcall_core::env::Event;
use farcall_core::{CallFailed, Result};

/// The name of every clerk's mailbox segment.
pub(super) const NAME: &str = "clerk-post";

/// Places for questions, and as many for answers.
const PLACES: usize = 32;

/// How often a question is asked that is not answered, and how long an answer is waited for.
const MAX_ATTEMPTS: u64 = 4;
const PATIENCE: Duration = Duration::from_millis(500);

/// The most askers whose mailbox was not imported before that are answered at the same time.
const MAX_STRANGERS: usize = 8;

/// Where other clerks write questions and answers.
pub(super) struct Mailbox {
    segment: Segment,
    /// The mailboxes of other clerks.
    others: Neighbours,
    /// Places for answers that are not in use.
    unused: Mutex<Vec<usize>>,
    /// Set when something was written at the place.
    answered: Vec<Arc<dyn Event>>,
    /// How many strangers are being answered.
    strangers: AtomicUsize,
}

impl Mailbox {
    pub(super) fn new(runtime: &dyn MemoryRuntime) -> std::result::Result<Mailbox, CallFailed> {
        let writable = Settings::new(2 * PLACES * RECORD).anyone(Rights::WRITE).notify(Notify::Always);
        Ok(Mailbox {
            segment: Segment::offer(runtime, NAME, writable)?,
            others: Neighbours::new(NAME),
            unused: Mutex::new((0..PLACES).collect()),
            answered: (0..PLACES).map(|_| runtime.env().event()).collect(),
            strangers: AtomicUsize::new(0),
        })
    }

    /// Wakes the thread that attends.
    pub(super) fn wake(&self) {
        self.segment.wake();
    }

    /// Asks another clerk for a name. Returns its answer, or `None` if all places for answers are in use.
    pub(super) fn ask(
        &self,
        core: &Core,
        home: SocketAddr,
        name: &str,
    ) -> Result<Option<Option<Entry>>, Fault> {
        let Some(place) = self.unused().pop() else { return Ok(None) };
        let answer = self.ask_from(place, core, home, name);
        self.unused().push(place);
        answer.map(Some)
    }

    fn ask_from(
        &self,
        place: usize,
        core: &Core,
        home: SocketAddr,
        name: &str,
    ) -> Result<Option<Entry>, Fault> {
        let (env, mut token) = (core.runtime.env(), [0; 8]);
        env.entropy(&mut token);
        let token = u64::from_le_bytes(token);
        for attempt in 0..MAX_ATTEMPTS {
            // The size of a question says how often it was asked before.
            let question = Entry {
                name: name.to_owned(),
                address: core.address,
                generation: 1,
                size: attempt,
                rights: 0,
            };
            let question = Record { entry: Some(question), token, place: place as u64 }.to_bytes();
            let at = token.wrapping_add(attempt) % PLACES as u64 * RECORD as u64;
            self.others.with(&*core.runtime, home, &|theirs| theirs.write_notify(at, &question))?;
            let asked = env.now();
            let (until, spin) = (asked + PATIENCE, asked + core.runtime.spin());
            loop {
                if let Some(answer) = self.answer(place, token)? {
                    return Ok(answer.filter(|entry| entry.name == name));
                }
                match env.now() {
                    now if now >= until => break,
                    now if now < spin => std::hint::spin_loop(),
                    now => drop(self.answered[place].wait(Some(until.since(now)))),
                }
            }
        }
        Err(Fault::Silent(format!("the clerk at {home} does not answer")).into())
    }

    /// Returns the answer to the question with that token, if it has come.
    fn answer(&self, place: usize, token: u64) -> Result<Option<Option<Entry>>, Fault> {
        let slot = table::read_one(&self.segment, (PLACES + place) as u64).map_err(super::own_memory)?;
        Ok(match slot {
            Slot::Held(record) if record.token == token => Some(record.entry),
            _ => None,
        })
    }

    fn unused(&self) -> MutexGuard<'_, Vec<usize>> {
        self.unused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits until another clerk has written, but no longer than `most`; answers questions, and wakes threads that wait for an
/// answer.
pub(super) fn attend(core: &Arc<Core>, most: Option<Duration>) {
    let mailbox = &core.mailbox;
    let Some(notice) = mailbox.segment.notice_within(most) else { return };
    let (first, end) =
        (notice.offset / RECORD as u64, notice.offset.saturating_add(notice.len).div_ceil(RECORD as u64));
    for place in first..end.min(2 * PLACES as u64) {
        match (mailbox.answered.get((place as usize).wrapping_sub(PLACES)), notice.from) {
            (Some(event), _) => event.set(),
            (None, Some(from)) => hear(core, place, from),
            // It is not known where the answer is to go; the asker asks again.
            (None, None) => {}
        }
    }
}

/// Takes the question from a place, if there is one, and answers it.
fn hear(core: &Arc<Core>, place: u64, from: SocketAddr) {
    let (segment, at) = (&core.mailbox.segment, place * RECORD as u64);
    let (Ok(flag), Ok(Slot::Held(question))) = (segment.load(at), table::read_one(segment, place)) else {
        return;
    };
    // A question is taken once; if another one stands there by now, it has a notice of its own.
    if segment.compare_and_swap(at, flag, 0) != Ok(flag) {
        return;
    }
    let Some(asked) = question.entry else { return };
    if question.place >= PLACES as u64 {
        return;
    }
    let found = table::find(&core.table, &asked.name).ok().and_then(|(found, _)| found);
    let answer = Record { entry: found, token: question.token, place: 0 };
    let asker = SocketAddr::new(from.ip(), asked.address.port());
    if asked.size > 0 {
        // The asker has heard nothing: the mailbox that is imported may be a former clerk's.
        core.mailbox.others.forget(asker);
    }
    reply(core, asker, (PLACES as u64 + question.place) * RECORD as u64, answer.to_bytes());
}

/// Writes an answer, without keeping other askers waiting.
fn reply(core: &Arc<Core>, asker: SocketAddr, at: u64, answer: [u8; RECORD]) {
    if let Some(theirs) = core.mailbox.others.known(asker) {
        return theirs.start_write(at, &answer).detach();
    }
    if core.mailbox.strangers.fetch_add(1, Ordering::SeqCst) >= MAX_STRANGERS {
        core.mailbox.strangers.fetch_sub(1, Ordering::SeqCst);
        return;
    }
    let beside = core.clone();
    let run = move || {
        let _ = beside.mailbox.others.with(&*beside.runtime, asker, &|theirs| theirs.write(at, &answer));
        beside.mailbox.strangers.fetch_sub(1, Ordering::SeqCst);
    };
    if core.runtime.env().spawn("farcall answer", Box::new(run)).is_err() {
        core.mailbox.strangers.fetch_sub(1, Ordering::SeqCst);
    }
}
