//! Accesses to memory: calls that whoever receives executes, with no other thread, and at once unless they come with too many.
//!
//! Thekkath, Levy & Lazowska 1994, section 3: nothing of the exporter's is scheduled for them. They are short, never wait, and
//! are executed even while every worker is.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

use farcall_proto::server::{CallKey, Finish, Glance, Incoming, Transmit};
use farcall_proto::{Failure, Kind, READINGS, Ran, Time};

use super::call::finish;
use super::{Core, tally};
use crate::stub::Dispatched;
use crate::xdr::{Decoder, Encoder};

/// Who accesses memory, and what is to be done about it when nothing is locked.
#[derive(Default)]
pub(crate) struct Accessor {
    /// The address, if it came from one.
    pub(crate) from: Option<SocketAddr>,
    /// Tasks to wake, which is the user's code. It may do anything with what was accessed, or with the server.
    pub(crate) woken: Vec<Waker>,
}

impl Accessor {
    /// Whoever is there.
    pub(crate) fn at(from: Option<SocketAddr>) -> Accessor {
        Accessor { from, woken: Vec::new() }
    }

    /// Wakes them. A panic of one is not ours.
    pub(crate) fn wake(self) {
        for waker in self.woken {
            let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
        }
    }
}

/// What can be accessed. Nothing of this waits, or takes longer than copying what it is about.
pub(crate) trait Accesses: Send + Sync + 'static {
    /// Executes an access.
    fn access(
        &self,
        by: &mut Accessor,
        number: u32,
        arguments: &mut Decoder<'_>,
        reply: &mut Encoder<'_>,
    ) -> Dispatched;

    /// Takes in bytes of no call.
    fn post(&self, by: &mut Accessor, bytes: &[u8]);

    /// Writes a reading's result, and says how many bytes it has, a multiple of four. `None` if there is no room, or no
    /// result: then [`access`](Accesses::access) says so.
    fn read(&self, number: u32, arguments: &[u8], result: &mut [u8]) -> Option<usize>;
}

/// Accesses that wait for their turn: those that came in one datagram may be a thousand, of a MiB each.
#[derive(Default)]
pub(super) struct Backlog {
    waiting: VecDeque<(SocketAddr, Incoming<'static>)>,
    /// Bytes of their arguments.
    bytes: usize,
    /// What was done since nobody else was served, in bytes that were copied.
    done: usize,
    /// A worker sees to it that they are done.
    minded: bool,
}

impl Backlog {
    /// So much is done at once, and one access more.
    const AT_ONCE: usize = 1 << 20;
    /// What an access costs besides.
    const EACH: usize = 256;
    /// So many wait, and so many bytes of their arguments.
    const MOST: usize = 4096;
    const MOST_BYTES: usize = 64 << 20;

    /// Others were served.
    pub(super) fn begin(&mut self) {
        self.done = 0;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether a worker is to mind what waits, who did before, or did not: one does.
    #[inline]
    pub(super) fn is_to_be_minded(&mut self, did: bool) -> bool {
        if did || !self.minded {
            self.minded = !self.is_empty();
            return self.minded;
        }
        false
    }

    /// Whether an access that comes now is done now.
    fn may_go_on(&self) -> bool {
        self.done < Backlog::AT_ONCE
    }

    /// An access was executed, in which so many bytes were copied.
    fn did(&mut self, bytes: usize) {
        self.done += Backlog::EACH + bytes;
    }

    fn add(&mut self, from: SocketAddr, incoming: Incoming<'static>) -> Result<(), Incoming<'static>> {
        if self.waiting.len() >= Backlog::MOST || self.bytes + incoming.args.len() > Backlog::MOST_BYTES {
            return Err(incoming);
        }
        self.bytes += incoming.args.len();
        self.waiting.push_back((from, incoming));
        Ok(())
    }

    /// The next that is done now.
    fn next(&mut self) -> Option<(SocketAddr, Incoming<'static>)> {
        if !self.may_go_on() {
            return None;
        }
        let (from, incoming) = self.waiting.pop_front()?;
        self.bytes -= incoming.args.len();
        Some((from, incoming))
    }

    fn remove(&mut self, key: CallKey) -> Option<Incoming<'static>> {
        let at = self.waiting.iter().position(|(_, incoming)| incoming.key == key)?;
        let (_, incoming) = self.waiting.remove(at)?;
        self.bytes -= incoming.args.len();
        Some(incoming)
    }
}

impl Core {
    /// Executes an access that is all that came, or has it wait for its turn.
    pub(super) fn access_alone(
        &mut self,
        now: Time,
        from: SocketAddr,
        incoming: Incoming<'_>,
        out: &mut [u8],
        reply: &mut Vec<u8>,
    ) -> Option<Transmit> {
        if self.backlog.is_empty() && self.backlog.may_go_on() {
            return self.access(now, from, incoming, out, reply);
        }
        self.put_off(now, from, incoming.into_owned());
        None
    }

    /// Has an access wait for its turn, if there is room.
    pub(super) fn put_off(&mut self, now: Time, from: SocketAddr, incoming: Incoming<'static>) {
        if let Err(incoming) = self.backlog.add(from, incoming) {
            let full = Failure::new(Kind::Overloaded, Ran::No).with_detail("too many accesses wait");
            self.end_access(now, incoming, full);
        }
    }

    /// Executes accesses that wait, as many as may be while nobody else is served.
    pub(super) fn catch_up(&mut self, now: Time, reply: &mut Vec<u8>) {
        while let Some((from, incoming)) = self.backlog.next() {
            self.access(now, from, incoming, &mut [], reply);
        }
    }

    /// The caller of an access has given it up. Whether that waited: then it never runs.
    pub(super) fn give_up_access(&mut self, now: Time, key: CallKey) -> bool {
        let Some(incoming) = self.backlog.remove(key) else { return false };
        self.end_access(now, incoming, Failure::new(Kind::Cancelled, Ran::No));
        true
    }

    #[cold]
    fn end_access(&mut self, now: Time, incoming: Incoming<'static>, why: Failure) {
        let ran = if incoming.again { Ran::Yes } else { why.ran };
        self.protocol.finish_later(now, incoming.key, Failure { ran, ..why }.into(), &mut Vec::new());
        if let Cow::Owned(arguments) = incoming.args {
            self.protocol.recycle(arguments);
        }
    }

    /// Executes a reading and writes the datagram that answers it into `out`; its length. `None` if it is to be a call like
    /// any other, or is nothing of the kind.
    #[inline(always)]
    pub(super) fn read(&mut self, now: Time, from: &SocketAddr, glance: Glance<'_>, out: &mut [u8]) -> Option<usize> {
        let reading = self.protocol.take_reading(from, glance)?;
        let exported = self.exports.find(reading.export())?;
        let room = self.protocol.room(&reading, out)?;
        let len = exported.accesses()?.read(reading.procedure(), reading.args(), room)?;
        exported.count_access();
        self.protocol.answer(now, &reading, len, out)
    }

    /// Executes an access as a call, whose result is held until it is acknowledged. It is written into `out`, to be sent at
    /// once; if there is no room it leaves with the next datagrams.
    #[inline(never)]
    pub(super) fn access(
        &mut self,
        now: Time,
        from: SocketAddr,
        incoming: Incoming<'_>,
        out: &mut [u8],
        reply: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let Incoming { key, export, procedure, again, args, .. } = incoming;
        reply.clear();
        let exported = match self.exports.find(export) {
            None => {
                if procedure >= READINGS {
                    self.write_down(now, export);
                }
                tally::find(&self.tally, export)
            }
            exported => exported,
        };
        let finish: Finish = match exported.map(|exported| (exported, exported.accesses())) {
            Some((exported, Some(accesses))) => {
                exported.count_access();
                self.accessor.from = Some(from);
                let by = &mut self.accessor;
                finish(accesses.access(by, procedure, &mut Decoder::new(&args), &mut Encoder::new(reply)))
            }
            Some((_, None)) => finish(Dispatched::NoSuchProcedure),
            // Withdrawn while it waited.
            None => Failure::new(Kind::NotExported, if again { Ran::Yes } else { Ran::No }).into(),
        };
        self.backlog.did(args.len() + reply.len());
        let answer = match out {
            [] => {
                self.protocol.finish_later(now, key, finish, reply);
                None
            }
            out => self.protocol.finish(now, key, finish, reply, out),
        };
        if let Cow::Owned(arguments) = args {
            self.protocol.recycle(arguments);
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(sequence: u64, bytes: usize) -> (SocketAddr, Incoming<'static>) {
        let key = CallKey { conversation: 1, activity: 2, sequence };
        let args = Cow::Owned(vec![0; bytes]);
        let incoming =
            Incoming { key, export: 3, procedure: READINGS, deadline: None, trace: None, again: false, args };
        (SocketAddr::from(([127, 0, 0, 1], 1)), incoming)
    }

    #[test]
    fn what_waits_is_bounded_in_number_and_bytes_and_leaves_nothing() {
        let mut backlog = Backlog::default();
        let add = |backlog: &mut Backlog, sequence, bytes| {
            let (from, incoming) = access(sequence, bytes);
            backlog.add(from, incoming).is_ok()
        };
        assert!(add(&mut backlog, 0, Backlog::MOST_BYTES));
        assert!(!add(&mut backlog, 1, 4));
        assert!(backlog.remove(access(0, 0).1.key).is_some() && backlog.is_empty());
        let added = (0..2 * Backlog::MOST as u64).filter(|sequence| add(&mut backlog, *sequence, 4)).count();
        assert_eq!(added, Backlog::MOST);
        assert!(backlog.remove(access(7, 0).1.key).is_some() && backlog.remove(access(7, 0).1.key).is_none());
        let order: Vec<u64> = std::iter::from_fn(|| backlog.next()).map(|(_, next)| next.key.sequence).collect();
        assert!(order.is_sorted() && order.len() == Backlog::MOST - 1);
        assert_eq!(backlog.bytes, 0);
    }

    #[test]
    fn one_mebibyte_and_one_access_are_done_before_others_are_served() {
        let mut backlog = Backlog::default();
        let done_at_once = |backlog: &mut Backlog, bytes| {
            backlog.begin();
            (0..2000)
                .map(|sequence| access(sequence, 0))
                .for_each(|(from, incoming)| drop(backlog.add(from, incoming)));
            let each = |backlog: &mut Backlog| backlog.next().map(|_| backlog.did(bytes));
            std::iter::from_fn(|| each(backlog)).count()
        };
        assert_eq!(done_at_once(&mut backlog, 1 << 20), 1);
        assert_eq!(done_at_once(&mut backlog, (1 << 20) - Backlog::EACH - 1), 2);
        assert_eq!(done_at_once(&mut backlog, (64 << 10) - Backlog::EACH), 16);
        assert!(backlog.is_to_be_minded(false) && !backlog.is_to_be_minded(false), "by one");
        assert!(backlog.is_to_be_minded(true));
        backlog.waiting.clear();
        assert!(!backlog.is_to_be_minded(true) && !backlog.is_to_be_minded(false));
    }
}
