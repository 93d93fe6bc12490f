//! One connection of a client, which one thread serves.

use std::net::{Shutdown, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use farcall::Time;
use farcall::env::{Env, Stream};

use super::programs::{Buffers, Programs, Verdict};
use crate::bulk::served::Served;
use crate::codec::Transfer;
use crate::link::{Link, LinkError};
use crate::silence::Silence;
use crate::wire::message::{Courier, Versions};
use crate::wire::packet::{Datastream, Received};

/// The limits of each connection.
#[derive(Clone, Copy)]
pub(super) struct ConnectionLimits {
    /// After this time without a call the connection ends.
    pub(super) idle: Duration,
    /// How long a message may take from its first byte to its last, sent or received.
    pub(super) message_time: Duration,
    /// The most bytes of a message.
    pub(super) message_bytes: usize,
    pub(super) versions: Versions,
}

/// A connection of a client.
pub(super) struct Connection {
    link: Link,
    programs: Arc<Programs>,
    limits: ConnectionLimits,
    from: Option<SocketAddr>,
    silence: Arc<Silence>,
    /// When the last call ended, or the connection began.
    idle_from: Time,
}

impl Connection {
    pub(super) fn new(
        env: &Arc<dyn Env>,
        stream: Arc<dyn Stream>,
        from: Option<SocketAddr>,
        programs: Arc<Programs>,
        limits: ConnectionLimits,
        silence: Arc<Silence>,
    ) -> Connection {
        let idle_from = env.now();
        silence.begin(idle_from);
        let link = Link::new(env.clone(), stream, limits.message_bytes);
        Connection { link, programs, limits, from, silence, idle_from }
    }

    /// Serves the connection until it ends.
    pub(super) fn serve(self) {
        let Connection { link, programs, limits, from, silence, idle_from } = self;
        let served = Served::new(link, limits.message_time, silence.clone());
        let (begun, courier, buffers) = Default::default();
        let mut session =
            Session { served, programs, limits, from, silence, idle_from, begun, courier, buffers };
        // An error means that the client has gone, or that it is not to be served any more. Nobody is there
        // to be told.
        let _ = session.answer_calls();
        // A procedure may have kept its bulk data, which keeps the socket.
        session.served.link.borrow().stream.shutdown(Shutdown::Both);
    }
}

/// A connection in the thread that serves it.
struct Session {
    served: Rc<Served>,
    programs: Arc<Programs>,
    limits: ConnectionLimits,
    from: Option<SocketAddr>,
    silence: Arc<Silence>,
    /// When the last call ended, or the connection began.
    idle_from: Time,
    /// When the message began that is received in part.
    begun: Option<Time>,
    courier: Option<Courier>,
    buffers: Buffers,
}

impl Session {
    fn answer_calls(&mut self) -> Result<(), LinkError> {
        let versions = self.limits.versions.to_bytes();
        self.send(|link| link.put(Datastream::Messages, &versions, false))?;
        while self.receive()? {}
        Ok(())
    }

    /// Receives one thing, and does what it asks for. Returns whether the connection goes on.
    fn receive(&mut self) -> Result<bool, LinkError> {
        self.wait()?;
        let programs = self.programs.clone();
        let verdict = {
            let link = self.served.link.borrow();
            match link.reader.received() {
                Some(Received::Versions(theirs)) => {
                    self.courier = self.limits.versions.common(theirs);
                    return Ok(self.courier.is_some());
                }
                Some(Received::Message(message)) => {
                    let Some(courier) = self.courier else { return Ok(false) };
                    self.silence.end();
                    // A drain that has not seen this call may have ended what the client sends. The call's
                    // bulk data would then not come.
                    if self.silence.is_draining() {
                        return Ok(false);
                    }
                    programs.examine(message, courier, &mut self.buffers)
                }
                Some(Received::End) => {
                    drop(link);
                    self.send(|link| link.put(Datastream::EndReply, &[], true))?;
                    return Ok(false);
                }
                // Bulk data of a call that has ended without it, or the abort of such data.
                Some(Received::Bulk(..) | Received::Attention(_)) => return Ok(true),
                None => return Ok(false),
            }
        };
        let goes_on = match verdict {
            Verdict::End => return Ok(false),
            Verdict::Reply => true,
            Verdict::ReplyAndEnd => false,
            Verdict::Run(admitted) => {
                let transfer = admitted.transfer;
                let _entered = self.served.enter(transfer);
                programs.run(admitted, self.from, &mut self.buffers);
                let goes_on = !self.served.is_broken();
                if goes_on && transfer == Transfer::Immediate && self.served.is_untaken() {
                    // The caller may have sent everything, and would believe that it was taken.
                    self.served.link.borrow_mut().attention(Datastream::Bulk);
                }
                goes_on
            }
        };
        let reply = std::mem::take(&mut self.buffers.reply);
        self.send(|link| link.put(Datastream::Messages, &reply, true))?;
        self.buffers.reply = reply;
        self.buffers.clear();
        (self.idle_from, self.begun) = (self.served.link.borrow().env.now(), None);
        self.silence.begin(self.idle_from);
        Ok(goes_on)
    }

    fn send(&self, put: impl FnOnce(&mut Link)) -> Result<(), LinkError> {
        let mut link = self.served.link.borrow_mut();
        put(&mut link);
        let now = link.env.now();
        let until = now + self.limits.message_time;
        self.silence.wait_for_client(now, || link.send(Some(until), None))
    }

    /// Waits until something was received. Fails as if the client had gone if the server drains.
    fn wait(&mut self) -> Result<(), LinkError> {
        let mut link = self.served.link.borrow_mut();
        while !link.advance()? {
            if self.silence.is_draining() {
                return Err(LinkError::Ended);
            }
            let until = match link.reader.is_partial() {
                true => {
                    // The client may write its messages in pieces.
                    link.stream.acknowledge();
                    let begun = *self.begun.get_or_insert_with(|| link.env.now());
                    self.silence.receive(begun);
                    begun + self.limits.message_time
                }
                false => {
                    // What came before was the versions, or bulk data that no call takes.
                    if self.begun.take().is_some() {
                        self.silence.begin(self.idle_from);
                    }
                    self.idle_from + self.limits.idle
                }
            };
            link.read(Some(until), None)?;
            if link.env.now() >= until {
                // Bytes that come all the time do not extend a limit.
                return Err(LinkError::Late);
            }
        }
        Ok(())
    }
}
