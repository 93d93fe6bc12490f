//! The calls of a link without its socket, its threads and a clock: a simulator gives it what comes, and
//! when.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use farcall::{Kind, Ran};

use super::bound::refusal;
use super::incoming::Posted;
use super::refusals::{Next, Refusals};
use super::table::{Again, Entry, Kept, Lost, Table};
use crate::wire::message::{Accepted, Answer, Reply};
use crate::wire::record::{Limits, Records};

/// The calls under way on one connection, or to one address of datagrams.
pub struct Calls {
    table: Table,
    /// None of datagrams.
    records: Option<Records>,
    refusals: Refusals,
}

/// How a call ended, as far as its link knows.
#[derive(Debug)]
pub enum Ended {
    /// This reply came; its call was sent more than once.
    Answered(Vec<u8>, bool),
    /// None did.
    Lost(Kind, Ran),
}

impl Calls {
    /// Those that are sent as datagrams.
    pub fn datagrams() -> Calls {
        Calls { table: Table::default(), records: None, refusals: Refusals::default() }
    }

    /// Those that are sent as records of a stream.
    pub fn stream() -> Calls {
        Calls { records: Some(Records::new(Limits::default())), ..Calls::datagrams() }
    }

    /// Starts a call, which a stream then [has to send](Calls::hand_over); the first copy of a datagram is
    /// the caller's to send.
    ///
    /// # Errors
    /// It was not sent, and never will be.
    pub fn start(
        &mut self,
        now: Instant,
        xid: u32,
        message: &[u8],
        deadline: Instant,
        pause: Duration,
    ) -> Result<(), Ran> {
        let end = self.table.admit(Some(xid), message).map_err(|lost| lost.ran)?;
        let again = self.records.is_none().then(|| Box::new(Again::new(message, None, now, pause)));
        let entry = Entry { end, deadline: Some(deadline), again, unattended: true, ..Entry::default() };
        self.table.begin(xid, entry).map_err(|lost| lost.ran)?;
        if self.records.is_some() {
            self.table.way.out.extend_from_slice(message);
        }
        Ok(())
    }

    /// What waits to be sent is given to the system, which [took](Calls::took) so many bytes of it then.
    pub fn hand_over(&mut self) -> Vec<u8> {
        self.table.way.blocked = false;
        let bytes = std::mem::take(&mut self.table.way.out);
        self.table.way.hand_over();
        bytes
    }

    /// The system took so many of these bytes; none, and never will: the stream is over.
    pub fn took(&mut self, bytes: &[u8], sent: Option<usize>) {
        match sent {
            Some(sent) => drop(self.table.way.took(bytes, sent)),
            None => {
                self.table.way.took_none(bytes.len());
                self.fail();
            }
        }
    }

    /// Something came: a datagram, or a part of the stream, which is over if that is no record.
    pub fn receive(&mut self, mut bytes: &[u8]) {
        let mut posted = Posted::default();
        self.refusals.heard();
        let Some(records) = &mut self.records else {
            return posted.sort(&mut self.table, Cow::Borrowed(bytes), None);
        };
        while !bytes.is_empty() {
            let space = records.space();
            let len = space.len().min(bytes.len());
            space[..len].copy_from_slice(&bytes[..len]);
            records.filled(len);
            bytes = &bytes[len..];
            loop {
                match records.next() {
                    Ok(Some(record)) => posted.sort(&mut self.table, record, None),
                    Ok(None) => break,
                    Err(_) => return self.fail(),
                }
            }
        }
    }

    /// The stream has ended.
    pub fn fail(&mut self) {
        drop(self.table.fail(Kind::Unreachable, "the stream has ended".into()));
    }

    /// Whether it has.
    pub fn is_broken(&self) -> bool {
        self.table.broken.is_some()
    }

    /// The network says that nobody takes our datagrams.
    pub fn refused(&mut self, now: Instant) {
        match self.refusals.refused(now) {
            Next::Retry(_) => {}
            Next::FirstRetry(at) => self.table.hasten(at),
            Next::GiveUp => drop(self.table.end_all(&Lost::new(Kind::Unreachable, Ran::Maybe, "nobody is there"))),
        }
    }

    /// Acts on the timers that are due; what is to be sent again.
    pub fn run_timers(&mut self, now: Instant) -> Vec<Vec<u8>> {
        let (_, repeats) = self.table.run_timers(now, &|_| Lost::late());
        repeats.into_iter().map(|(message, _)| message).collect()
    }

    /// When the next timer is due.
    pub fn timer(&self) -> Option<Instant> {
        self.table.timer
    }

    /// How a call ended, if it has.
    pub fn fetch(&mut self, xid: u32) -> Option<Ended> {
        Some(match self.table.fetch(xid)? {
            Ok(body) => {
                let message = match body.kept {
                    Kept::Short(bytes) => bytes,
                    Kept::Long(bytes) => bytes.to_vec(),
                };
                Ended::Answered(message, body.repeated)
            }
            Err(lost) => Ended::Lost(lost.kind, lost.ran),
        })
    }
}

/// The result in a reply, or what follows for its call from there being none.
///
/// # Errors
/// There is none.
pub fn judge(message: &[u8], repeated: bool) -> Result<&[u8], (Kind, Ran)> {
    let reply = Reply::parse(message).map_err(|_| (Kind::BadResult, Ran::Maybe))?;
    if let Answer::Accepted { outcome: Accepted::Success(result), .. } = reply.answer {
        return Ok(result);
    }
    let (kind, ran, _) = refusal(&reply.answer, repeated);
    Err((kind, ran))
}
