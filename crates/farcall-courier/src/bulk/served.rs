//! Bulk data of the call that a procedure serves.

use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind, Read, Write};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::codec::Transfer;
use crate::link::{Arrival, Link, LinkError};
use crate::silence::Silence;
use crate::wire::packet::{Datastream, Received};

/// The connection of the call that this thread serves.
pub(crate) struct Served {
    pub(crate) link: RefCell<Link>,
    /// How long the peer may take to send or to take a part of the data.
    pub(crate) time: Duration,
    /// Tells the server since when the connection waits for its client.
    silence: Arc<Silence>,
    /// Whether the connection is of no more use.
    is_broken: Cell<bool>,
    /// The number of the call that is served. It is odd once its bulk data was taken.
    call: Cell<u64>,
}

thread_local! {
    static SERVED: RefCell<Option<Rc<Served>>> = const { RefCell::new(None) };
}

impl Served {
    pub(crate) fn new(link: Link, time: Duration, silence: Arc<Silence>) -> Rc<Served> {
        let (link, is_broken, call) = (RefCell::new(link), Cell::new(false), Cell::new(0));
        Rc::new(Served { link, time, silence, is_broken, call })
    }

    /// Makes this thread serve a call of the connection, until the guard is dropped. `said` is what its
    /// arguments say of bulk data: a procedure gets none that does not come.
    pub(crate) fn enter(self: &Rc<Self>, said: Transfer) -> Entered {
        self.next_call();
        if said == Transfer::None {
            self.call.set(self.call.get() | 1);
        }
        Entered(SERVED.replace(Some(self.clone())))
    }

    /// Returns whether nobody has taken the bulk data of the call that is served.
    pub(crate) fn is_untaken(&self) -> bool {
        self.call.get().is_multiple_of(2)
    }

    /// Returns whether the connection is of no more use, because its bulk data was not what it should be.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken.get()
    }

    /// What was taken of earlier calls is of no more use.
    fn next_call(&self) {
        self.call.set((self.call.get() | 1) + 1);
    }

    /// Returns the number by which the bulk data of this call is used, if nobody has taken it.
    fn take(&self) -> Option<u64> {
        let call = self.call.get();
        self.call.set(call | 1);
        call.is_multiple_of(2).then_some(call | 1)
    }

    /// Returns the connection, if the call with this number is still served.
    fn link(&self, call: u64) -> io::Result<std::cell::RefMut<'_, Link>> {
        if self.call.get() != call || self.is_broken.get() {
            return Err(io::Error::new(ErrorKind::NotConnected, "the call has ended"));
        }
        self.link.try_borrow_mut().map_err(|_| ErrorKind::NotConnected.into())
    }

    /// Tells the peer that the data ends here, before its end.
    fn abort(&self, call: u64) -> io::Result<()> {
        let mut link = self.link(call)?;
        link.attention(Datastream::Bulk);
        self.send(&mut link)
    }

    fn send(&self, link: &mut Link) -> io::Result<()> {
        let now = link.env.now();
        let sent = self.silence.wait_for_client(now, || link.send(Some(now + self.time), None));
        sent.map_err(|why| self.broken(&why))
    }

    /// Notes that the connection is of no more use.
    fn broken(&self, why: &LinkError) -> io::Error {
        self.is_broken.set(true);
        match why {
            LinkError::Late => ErrorKind::TimedOut.into(),
            LinkError::System(why) => why.kind().into(),
            _ => ErrorKind::UnexpectedEof.into(),
        }
    }
}

/// Guard: while it exists, its thread serves a call.
pub(crate) struct Entered(Option<Rc<Served>>);

impl Drop for Entered {
    fn drop(&mut self) {
        let served = SERVED.replace(self.0.take());
        served.inspect(|served| served.next_call());
    }
}

/// Returns the bulk data that the caller sends in the call that this thread serves. Returns `None` outside of
/// a call by Courier, if the call's descriptor says that no data passes, and if its data was taken already.
/// Data that nobody takes is aborted when the procedure returns.
pub fn incoming() -> Option<Incoming> {
    let served = SERVED.with_borrow(Clone::clone)?;
    let call = served.take()?;
    Some(Incoming { served, call, part: Vec::new(), used: 0, state: State::Open })
}

/// Returns the receiver of the bulk data that goes to the caller in the call that this thread serves. Returns
/// `None` outside of a call by Courier, if the call's descriptor says that no data passes, and if its data
/// was taken already.
pub fn outgoing() -> Option<Outgoing> {
    let served = SERVED.with_borrow(Clone::clone)?;
    let call = served.take()?;
    Some(Outgoing { served, call, state: State::Open })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Ended,
    Aborted,
}

/// Bulk data that a caller sends. It blocks until a part has come, for at most
/// [`message_time`](crate::server::ServerBuilder::message_time). Dropping it before its end aborts the
/// transfer.
pub struct Incoming {
    served: Rc<Served>,
    call: u64,
    /// The part that came last, and how much of it was read.
    part: Vec<u8>,
    used: usize,
    state: State,
}

impl Read for Incoming {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.used == self.part.len() && self.state == State::Open && !buffer.is_empty() {
            self.receive()?;
        }
        if self.state == State::Aborted {
            return Err(aborted());
        }
        let rest = &self.part[self.used..];
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        self.used += count;
        Ok(count)
    }
}

impl Incoming {
    /// Waits for the next part.
    fn receive(&mut self) -> io::Result<()> {
        let mut link = self.served.link(self.call)?;
        let now = link.env.now();
        let until = now + self.served.time;
        match self.served.silence.wait_for_client(now, || link.receive(Some(until), None)) {
            Ok(Received::Bulk(data, ends)) => {
                self.part.clear();
                self.part.extend_from_slice(data);
                self.used = 0;
                if ends {
                    self.state = State::Ended;
                }
                Ok(())
            }
            Ok(Received::Attention(_)) => {
                self.state = State::Aborted;
                Err(aborted())
            }
            Ok(_) => Err(self.served.broken(&LinkError::Ended)),
            Err(why) => Err(self.served.broken(&why)),
        }
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if self.state == State::Open {
            // The connection then discards what still comes.
            let _ = self.served.abort(self.call);
        }
    }
}

/// Takes the bulk data that goes to a caller. Each write is sent at once, so a program that writes little at
/// a time uses a [`BufWriter`](std::io::BufWriter). Dropping it without [`Outgoing::finish`] aborts the
/// transfer.
pub struct Outgoing {
    served: Rc<Served>,
    call: u64,
    state: State,
}

impl Outgoing {
    /// Ends the data.
    ///
    /// # Errors
    /// The caller has aborted the transfer, or the connection is broken.
    pub fn finish(mut self) -> io::Result<()> {
        self.check()?;
        let mut link = self.served.link(self.call)?;
        self.state = State::Ended;
        link.put(Datastream::Bulk, &[], true);
        self.served.send(&mut link)
    }

    /// Checks that the caller has not aborted the transfer.
    fn check(&mut self) -> io::Result<()> {
        if self.state == State::Aborted {
            return Err(aborted());
        }
        let mut link = self.served.link(self.call)?;
        let arrival = link.look().map_err(|why| self.served.broken(&why))?;
        if let Some(Arrival::Attention) = arrival {
            self.state = State::Aborted;
            // The sender answers an abort with the end of the data, which is an abort, too.
            link.attention(Datastream::Bulk);
            self.served.send(&mut link)?;
            return Err(aborted());
        }
        Ok(())
    }
}

impl Write for Outgoing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        /// The most bytes that are sent at once.
        const MAX_BYTES: usize = 64 << 10;
        self.check()?;
        let part = &bytes[..bytes.len().min(MAX_BYTES)];
        if !part.is_empty() {
            let mut link = self.served.link(self.call)?;
            link.put(Datastream::Bulk, part, false);
            self.served.send(&mut link)?;
        }
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        if self.state == State::Open {
            let _ = self.served.abort(self.call);
        }
    }
}

impl std::fmt::Debug for Incoming {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Incoming").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outgoing").finish_non_exhaustive()
    }
}

fn aborted() -> io::Error {
    io::Error::new(ErrorKind::ConnectionAborted, "the caller aborted the bulk data")
}
