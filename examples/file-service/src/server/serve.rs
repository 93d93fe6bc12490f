//! What the server does for clerks: by call, by letter, and by letter with an eye to the next clerk who only reads.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use farcall::memory::{Memory, Remote};
use farcall::stub::{Dispatched, Interface};
use farcall::xdr::{Decoder, Encoder};
use farcall::{CallFailed, Kind, Ran, Result};
use farcall_file_access::{Attributes, Contents, FileAccess, FileError, Page, Statistics};

use super::Core;
use crate::areas::{CLERKS, COUNTER, IDENTITY, mailbox, mailboxes};
use crate::hybrid::{self, ANSWERS, Object};
use crate::letter::Mailbox;
use crate::{Attached, Found, Handle, Looked, MoreFiles};

/// A clerk, and what it was told last.
pub(super) struct Clerk {
    answers: Remote,
    /// Every letter's number is greater, and none of another clerk's is near it.
    first: u64,
    last: AtomicU64,
    answer: Mutex<Vec<u8>>,
}

impl std::fmt::Debug for Clerk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clerk").field("last", &self.last).finish_non_exhaustive()
    }
}

impl Core {
    /// Answers the letters of which these bytes may be a part.
    pub(super) fn answer_letters(self: &Arc<Core>, bytes: Range<u64>) {
        for number in mailboxes(bytes) {
            let clerk =
                self.clerks.lock().unwrap_or_else(PoisonError::into_inner).get(number as usize).cloned();
            if let Some(clerk) = clerk {
                // Whoever cannot be told asks again.
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
            *answer = hybrid::answer(letter, |object, procedure, arguments, reply| {
                self.dispatch(object, procedure, arguments, reply)
            });
            self.segment.store(COUNTER, self.segment.load(COUNTER)?.wrapping_add(1))?;
        }
        ANSWERS.post(&clerk.answers, number, &answer, false)
    }

    fn dispatch(
        self: &Arc<Core>,
        object: Object,
        procedure: u32,
        d: &mut Decoder<'_>,
        e: &mut Encoder<'_>,
    ) -> Dispatched {
        let keeping = Keeping(self.clone());
        match object {
            Object::Files => (&self.directory as &dyn FileAccess).dispatch(procedure, d, e),
            Object::More => (&**self as &dyn MoreFiles).dispatch(procedure, d, e),
            Object::FilesAndKeep => (&keeping as &dyn FileAccess).dispatch(procedure, d, e),
            Object::MoreAndKeep => (&keeping as &dyn MoreFiles).dispatch(procedure, d, e),
        }
    }

    /// A mailbox for a new clerk: one that is free, or whose clerk is gone.
    fn admit(&self, answers: Remote) -> Option<(u32, u64)> {
        let first = (self.admitted.fetch_add(1, Ordering::SeqCst) + 1) << 32;
        let clerk = Arc::new(Clerk { answers, first, last: AtomicU64::new(first), answer: Mutex::default() });
        let mut clerks = self.clerks.lock().unwrap_or_else(PoisonError::into_inner);
        let mailbox = match clerks.len() < CLERKS as usize {
            true => clerks.len(),
            false => clerks.iter().position(|clerk| clerk.answers.load(0).is_err())?,
        };
        match clerks.get_mut(mailbox) {
            Some(gone) => *gone = clerk,
            None => clerks.push(clerk),
        }
        Some((u32::try_from(mailbox).ok()?, first))
    }
}

impl MoreFiles for Core {
    fn null(&self) -> Result<(), FileError> {
        Ok(())
    }

    fn look_up(&self, path: &str) -> Result<Looked, FileError> {
        let found = self.directory.itself(path)?;
        let (device, inode) = found.number;
        let handle = Handle { device, inode };
        Ok(Looked { found: Found { handle, kind: found.attributes.kind }, attributes: found.attributes })
    }

    fn read_link(&self, path: &str) -> Result<String, FileError> {
        Ok(self.directory.link(path)?)
    }

    fn write(&self, path: &str, offset: u64, bytes: &[u8]) -> Result<(), FileError> {
        self.write_through(path, offset, bytes)
    }

    fn statistics(&self) -> Result<Statistics, FileError> {
        Ok(self.directory.statistics()?)
    }

    fn commit(&self, path: &str) -> Result<(), FileError> {
        let looked = self.look_up(path)?;
        match self.is_read.load(Ordering::SeqCst) {
            true => self.settle_file(looked),
            false => Ok(()),
        }
    }

    fn attach(&self, answers: &str, reads: bool) -> Result<Attached, FileError> {
        let answers = self.runtime.import_segment(answers)?;
        let full = || CallFailed::new(Kind::Overloaded, Ran::No).because("every mailbox has its clerk");
        let (mailbox, last) = self.admit(answers).ok_or_else(full)?;
        if reads {
            self.is_read.store(true, Ordering::SeqCst);
            self.keep_statistics();
        }
        let identity = self.segment.load(IDENTITY).unwrap_or_default();
        Ok(Attached { identity, mailbox, last, shape: self.shape })
    }
}

/// The procedures of [`FileAccess`] for a clerk who did not find something in the memory: what they give is
/// kept there, so the next clerk finds it.
struct Keeping(Arc<Core>);

impl FileAccess for Keeping {
    fn list(&self, path: &str, after: &str) -> Result<Page, FileError> {
        let directory = self.0.look_up(path)?.found.handle;
        let page = self.0.directory.list(path, after)?;
        self.0.keep_page(directory, after, &page);
        Ok(page)
    }

    fn stat(&self, path: &str) -> Result<Attributes, FileError> {
        let attributes = self.0.directory.stat(path)?;
        self.0.keep_attributes(path);
        Ok(attributes)
    }

    fn read(&self, path: &str, offset: u64, length: u32) -> Result<Contents, FileError> {
        self.0.keep_blocks(path, offset, length as usize);
        self.0.read_kept(path, offset, length)
    }
}

impl MoreFiles for Keeping {
    fn null(&self) -> Result<(), FileError> {
        self.0.null()
    }

    fn look_up(&self, path: &str) -> Result<Looked, FileError> {
        let looked = self.0.look_up(path)?;
        self.0.keep_name(path, looked.found);
        // Whoever looks a name up asks for its attributes next.
        self.0.keep_attributes(path);
        Ok(looked)
    }

    fn read_link(&self, path: &str) -> Result<String, FileError> {
        let target = self.0.read_link(path)?;
        self.0.keep_link(path, &target);
        Ok(target)
    }

    fn write(&self, path: &str, offset: u64, bytes: &[u8]) -> Result<(), FileError> {
        self.0.write(path, offset, bytes)?;
        self.0.keep_blocks(path, offset, bytes.len());
        Ok(())
    }

    fn statistics(&self) -> Result<Statistics, FileError> {
        self.0.keep_statistics();
        self.0.statistics()
    }

    fn commit(&self, path: &str) -> Result<(), FileError> {
        self.0.commit(path)
    }

    fn attach(&self, answers: &str, reads: bool) -> Result<Attached, FileError> {
        self.0.attach(answers, reads)
    }
}
