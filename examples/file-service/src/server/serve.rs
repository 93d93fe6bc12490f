//! The server's work for clerks, which request it by calls, or by letters: messages that they write into the
//! server's memory.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use farcall::memory::{Memory, Refused, Remote};
use farcall::stub::{Dispatched, Interface};
use farcall::xdr::{Decoder, Encoder};
use farcall::{Bulk, CallFailed, Calls, Kind, Ran, Result};
use farcall_file_access::{Attributes, Contents, Digest, FileAccess, FileError, Page, Statistics};

use super::{Core, State};
use crate::areas::{CLERKS, COUNTER, IDENTITY, mailbox, mailboxes};
use crate::hybrid::{self, ANSWERS, Object};
use crate::letter::Mailbox;
use crate::{Attached, Found, Handle, Looked, MoreFiles, Reads, Shape};

/// A clerk, and the last answer to it.
pub(super) struct Clerk {
    answers: Remote,
    /// This clerk's letters have numbers above this one, which is far from the numbers of other clerks'
    /// letters.
    first: u64,
    last: AtomicU64,
    answer: Mutex<Answer>,
}

/// The last answer to a clerk.
#[derive(Default)]
struct Answer {
    bytes: Vec<u8>,
    /// The write of the answer into the clerk's memory, while it is under way. Writes that are under way
    /// together could be executed in any order, so there is one at most.
    write: Calls<(), (), Refused>,
}

/// How long the server waits until an answer is written. A clerk that has died holds up no other for longer.
const ANSWER_PATIENCE: Duration = Duration::from_millis(20);

impl std::fmt::Debug for Clerk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clerk").field("last", &self.last).finish_non_exhaustive()
    }
}

impl Core {
    /// Answers the letters in the mailboxes that overlap these bytes.
    pub(super) fn answer_letters(self: &Arc<Core>, bytes: Range<u64>) {
        for number in mailboxes(bytes) {
            let clerk =
                self.clerks.lock().unwrap_or_else(PoisonError::into_inner).get(number as usize).cloned();
            if let Some(clerk) = clerk {
                // An error is ignored, because a clerk that gets no answer asks again.
                let _ = self.answer_letter(&clerk, mailbox(number));
            }
        }
    }

    fn answer_letter(self: &Arc<Core>, clerk: &Clerk, requests: Mailbox) -> farcall::memory::Result<()> {
        let number = requests.number(&self.segment)?;
        let last = clerk.last.load(Ordering::SeqCst);
        if number >> 32 != clerk.first >> 32 || number == clerk.first {
            return Ok(());
        }
        let mut answer = clerk.answer.lock().unwrap_or_else(PoisonError::into_inner);
        if number != last {
            clerk.last.store(number, Ordering::SeqCst);
            let letter = requests.letter(&self.segment)?;
            answer.bytes = hybrid::answer(letter, |object, procedure, arguments, reply| {
                self.dispatch(object, procedure, arguments, reply)
            });
            self.segment.store(COUNTER, self.segment.load(COUNTER)?.wrapping_add(1))?;
        }
        let Answer { bytes, write } = &mut *answer;
        if !write.is_empty() && write.try_next().is_none() {
            return Ok(()); // a clerk that has not got its answer asks again
        }
        let (offset, letter) = ANSWERS.layout(number, bytes);
        write.add((), clerk.answers.start_write(offset, &letter));
        // The outcome is nothing to the server.
        let _ = write.wait_for(ANSWER_PATIENCE);
        Ok(())
    }

    fn dispatch(
        self: &Arc<Core>,
        object: Object,
        procedure: u32,
        d: &mut Decoder<'_>,
        e: &mut Encoder<'_>,
    ) -> Dispatched {
        let procedures = |keeps| Procedures { core: self.clone(), keeps };
        match object {
            Object::Files => (&self.directory as &dyn FileAccess).dispatch(procedure, d, e),
            Object::FilesAndKeep => (&procedures(true) as &dyn FileAccess).dispatch(procedure, d, e),
            Object::More => (&procedures(false) as &dyn MoreFiles).dispatch(procedure, d, e),
            Object::MoreAndKeep => (&procedures(true) as &dyn MoreFiles).dispatch(procedure, d, e),
        }
    }

    /// Returns the file at a path. A symbolic link is not followed.
    pub(super) fn look_up(&self, path: &str) -> Result<Looked, FileError> {
        let found = self.directory.itself(path)?;
        let (device, inode) = found.number;
        let handle = Handle { device, inode };
        Ok(Looked { found: Found { handle, kind: found.attributes.kind }, attributes: found.attributes })
    }

    /// Returns the number of a mailbox of a clerk that has ended, if no mailbox is free. Waits for clerks
    /// that do not answer, so no lock may be held.
    fn ended(&self) -> Option<(usize, Arc<Clerk>)> {
        let clerks = self.clerks.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if clerks.len() < CLERKS as usize {
            return None;
        }
        clerks.into_iter().enumerate().find(|(_, clerk)| clerk.answers.load(0).is_err())
    }

    /// Gives a new clerk a mailbox: a free one, or that of a clerk that has ended. Returns the mailbox's
    /// number, and the number after which the numbers of the clerk's letters begin.
    fn admit(
        &self,
        state: &mut State,
        answers: Remote,
        ended: Option<(usize, Arc<Clerk>)>,
    ) -> Option<(u32, u64)> {
        let first = (self.admitted.fetch_add(1, Ordering::SeqCst) + 1) << 32;
        let clerk = Arc::new(Clerk { answers, first, last: AtomicU64::new(first), answer: Mutex::default() });
        let mut clerks = self.clerks.lock().unwrap_or_else(PoisonError::into_inner);
        let mailbox = match clerks.len() < CLERKS as usize {
            true => clerks.len(),
            // Another new clerk may have the mailbox already.
            false => ended.filter(|(number, clerk)| Arc::ptr_eq(&clerks[*number], clerk))?.0,
        };
        self.end_lease(state, u32::try_from(mailbox).ok()?);
        match clerks.get_mut(mailbox) {
            Some(gone) => *gone = clerk,
            None => clerks.push(clerk),
        }
        Some((u32::try_from(mailbox).ok()?, first))
    }
}

/// The procedures that clerks call.
pub(super) struct Procedures {
    pub(super) core: Arc<Core>,
    /// Whether results are also put into the tables of the server's memory, so that the next clerk finds them
    /// there.
    pub(super) keeps: bool,
}

/// Only clerks that read the server's memory call these. Other clerks call the directory itself.
impl FileAccess for Procedures {
    fn list(&self, path: &str, after: &str) -> Result<Page, FileError> {
        let directory = self.core.look_up(path)?.found.handle;
        let page = self.core.directory.list(path, after)?;
        self.core.keep_page(directory, after, &page);
        Ok(page)
    }

    fn stat(&self, path: &str) -> Result<Attributes, FileError> {
        let attributes = self.core.directory.stat(path)?;
        self.core.keep_attributes(path);
        Ok(attributes)
    }

    fn read(&self, path: &str, offset: u64, length: u32) -> Result<Contents, FileError> {
        self.core.keep_blocks(path, offset, length as usize);
        self.core.read_kept(path, offset, length)
    }

    // Transfers of whole files do not go through the tables of the server's memory, so nothing of them is put
    // there.

    fn fetch(&self, path: &str, offset: u64, quota: u64) -> Result<Bulk<FileError>, FileError> {
        self.core.directory.fetch(path, offset, quota)
    }

    fn digest(&self, path: &str, length: u64) -> Result<Digest, FileError> {
        self.core.directory.digest(path, length)
    }

    fn unfinished(&self, path: &str) -> Result<Digest, FileError> {
        self.core.directory.unfinished(path)
    }

    fn store(&self, path: &str, offset: u64, content: Bulk) -> Result<u64, FileError> {
        self.core.directory.store(path, offset, content)
    }

    fn finish(
        &self,
        path: &str,
        whole: Digest,
        modified: SystemTime,
        replace: bool,
    ) -> Result<(), FileError> {
        self.core.directory.finish(path, whole, modified, replace)
    }
}

impl MoreFiles for Procedures {
    fn null(&self) -> Result<(), FileError> {
        Ok(())
    }

    fn look_up(&self, path: &str) -> Result<Looked, FileError> {
        let looked = self.core.look_up(path)?;
        if self.keeps {
            self.core.keep_name(path, looked.found);
            // A clerk that looks a name up usually asks for its attributes next.
            self.core.keep_attributes(path);
        }
        Ok(looked)
    }

    fn read_link(&self, path: &str) -> Result<String, FileError> {
        let target = self.core.directory.link(path)?;
        if self.keeps {
            self.core.keep_link(path, &target);
        }
        Ok(target)
    }

    fn write(&self, path: &str, offset: u64, bytes: &[u8]) -> Result<(), FileError> {
        self.core.write_through(path, offset, bytes)?;
        if self.keeps {
            self.core.keep_blocks(path, offset, bytes.len());
        }
        Ok(())
    }

    fn statistics(&self) -> Result<Statistics, FileError> {
        if self.keeps {
            self.core.keep_statistics();
        }
        Ok(self.core.directory.statistics()?)
    }

    fn commit(&self, path: &str) -> Result<(), FileError> {
        let looked = self.core.look_up(path)?;
        if self.core.is_read.load(Ordering::SeqCst) { self.core.settle_file(looked) } else { Ok(()) }
    }

    fn shape(&self) -> Result<Shape, FileError> {
        Ok(self.core.shape)
    }

    fn end_lease(&self, lease: u64) -> Result<(), FileError> {
        self.core.forget_lease(&mut self.core.lock(), lease);
        Ok(())
    }

    fn attach(&self, answers: &str, reads: Reads) -> Result<Attached, FileError> {
        let core = &self.core;
        let answers = core.runtime.import_segment(answers)?;
        if reads != Reads::Answers {
            core.is_read.store(true, Ordering::SeqCst);
            core.keep_statistics();
        }
        let ended = core.ended();
        let mut state = core.lock();
        let full = || CallFailed::new(Kind::Overloaded, Ran::No).because("every mailbox has its clerk");
        let (mailbox, last) = core.admit(&mut state, answers.clone(), ended).ok_or_else(full)?;
        if reads == Reads::PushedEntries {
            core.begin_pushing(&mut state, mailbox, answers, last)?;
        }
        drop(state);
        let identity = core.segment.load(IDENTITY).unwrap_or_default();
        Ok(Attached { identity, mailbox, last, shape: core.shape })
    }
}
