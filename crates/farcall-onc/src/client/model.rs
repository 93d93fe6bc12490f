//! The calls of a link to a server, without a socket, threads and a clock, for simulators. A simulator passes
//! in the received data and the time.

use std::borrow::Cow;
use std::time::Duration;

use farcall::env::Time;
use farcall::{Kind, Ran};

use super::bound::refusal;
use super::incoming::Incoming;
use super::refusals::{Next, REFUSALS_TO_GIVE_UP, Refusals};
use super::table::{Entry, Kept, Retransmission, Table, TransportError};
use crate::wire::message::{Accepted, Answer, Reply};
use crate::wire::record::{Limits, Records};

/// The calls under way on one stream, or to one address over UDP.
pub struct Calls {
    table: Table,
    /// Splits the stream into records; `None` over UDP.
    records: Option<Records>,
    refusals: Refusals,
}

impl Calls {
    /// Returns an empty table of calls to one UDP address.
    pub fn datagrams() -> Calls {
        Calls { table: Table::default(), records: None, refusals: Refusals::until(REFUSALS_TO_GIVE_UP) }
    }

    /// Returns an empty table of calls on one stream, which are sent as its records.
    pub fn stream() -> Calls {
        Calls { records: Some(Records::new(Limits::default())), ..Calls::datagrams() }
    }

    /// Starts a call. On a stream the call then waits to be [handed over](Calls::hand_over); over UDP the
    /// caller of this function sends the first copy.
    ///
    /// # Errors
    /// The call was not sent, and never will be: its identifier is in use, or too many calls or bytes wait.
    pub fn start(
        &mut self,
        now: Time,
        xid: u32,
        message: &[u8],
        deadline: Time,
        pause: Duration,
    ) -> Result<(), Ran> {
        let retransmission = match self.records {
            None => Some(Retransmission::new(&self.table.arguments, message, None, now, pause)),
            Some(_) => None,
        };
        let retransmission = retransmission.transpose().map_err(|error| error.ran)?;
        let end = self.table.admit(Some(xid), false, message).map_err(|error| error.ran)?;
        let entry =
            Entry { end, deadline: Some(deadline), retransmission, unattended: true, ..Entry::default() };
        self.table.begin(xid, entry).map_err(|error| error.ran)?;
        if self.records.is_some() {
            self.table.send_queue.out.extend_from_slice(message);
            self.table.count_unsent();
        }
        Ok(())
    }

    /// Takes out the bytes that wait to be sent on a stream. Afterwards the caller tells [`Calls::took`] how
    /// many of these bytes the system took.
    pub fn hand_over(&mut self) -> Vec<u8> {
        self.table.send_queue.blocked = false;
        let bytes = std::mem::take(&mut self.table.send_queue.out);
        self.table.send_queue.hand_over();
        self.table.count_unsent();
        bytes
    }

    /// Notes that the system took `sent` of the bytes that were handed over. `None` means that it took none
    /// because the stream has ended.
    pub fn took(&mut self, bytes: &[u8], sent: Option<usize>) {
        match sent {
            Some(sent) => {
                let kept = self.table.send_queue.took(bytes, sent);
                self.table.count_unsent();
                if kept.is_err() {
                    self.fail();
                }
            }
            None => {
                self.table.send_queue.took_none(bytes.len());
                self.fail();
            }
        }
    }

    /// Takes in a datagram or the next bytes of the stream. If the bytes cannot be a record, ends the stream.
    pub fn receive(&mut self, mut bytes: &[u8]) {
        let mut incoming = Incoming::default();
        self.refusals.heard();
        let Some(records) = &mut self.records else {
            return incoming.sort(&mut self.table, Cow::Borrowed(bytes), None);
        };
        while !bytes.is_empty() {
            let space = records.space();
            let len = space.len().min(bytes.len());
            space[..len].copy_from_slice(&bytes[..len]);
            records.filled(len);
            bytes = &bytes[len..];
            loop {
                match records.next() {
                    Ok(Some(record)) => incoming.sort(&mut self.table, record, None),
                    Ok(None) => break,
                    Err(_) => return self.fail(),
                }
            }
        }
    }

    /// Ends the stream, and all calls under way on it.
    pub fn fail(&mut self) {
        drop(self.table.fail(Kind::Unreachable, "the stream has ended".into()));
    }

    /// Returns whether the stream has ended.
    pub fn is_broken(&self) -> bool {
        self.table.broken.is_some()
    }

    /// Handles a report of the network that the server's port is refused.
    pub fn refused(&mut self, now: Time) {
        match self.refusals.refused(now) {
            Next::Retry(_) => {}
            Next::FirstRetry(at) => self.table.bring_forward(at),
            Next::GiveUp => drop(self.table.end_all(&TransportError::new(
                Kind::Unreachable,
                Ran::Maybe,
                "nobody is there",
            ))),
        }
    }

    /// Acts on the timers that are due, and returns the messages that are to be sent again.
    pub fn run_timers(&mut self, now: Time) -> Vec<Vec<u8>> {
        let (_, repeats) = self.table.run_timers(now, &|_| TransportError::late());
        repeats.into_iter().map(|(message, _)| message).collect()
    }

    /// Returns when the next timer is due.
    pub fn timer(&self) -> Option<Time> {
        self.table.timer
    }

    /// Returns how a call ended, if it has ended: its result, or the kind of failure and whether the call
    /// ran. If `once`, the call counts as sent once, even if it was sent again.
    pub fn fetch(&mut self, xid: u32, once: bool) -> Option<Result<Vec<u8>, (Kind, Ran)>> {
        let body = match self.table.fetch(xid)? {
            Ok(body) => body,
            Err(error) => return Some(Err((error.kind, error.ran))),
        };
        let message = match &body.kept {
            Kept::Short(bytes) => bytes,
            Kept::Long(bytes) => &bytes[..],
        };
        Some(match Reply::parse(message).map(|reply| reply.answer) {
            Ok(Answer::Accepted { outcome: Accepted::Success(result), .. }) => Ok(result.to_vec()),
            Ok(answer) => {
                let (kind, ran, _) = refusal(&answer, body.repeated && !once);
                Err((kind, ran))
            }
            Err(_) => Err((Kind::BadResult, Ran::Maybe)),
        })
    }
}
