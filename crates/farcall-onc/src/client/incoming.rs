//! Sorts received messages: replies to the calls that wait for them, and calls of the server.

use std::borrow::Cow;

use bytes::Bytes;

use super::table::{Body, Kept, Table, Watcher};
use super::tools;
use crate::wire::message::{Direction, peek};

/// The shortest reply that results may share. Shorter replies go into buffers that are used again.
const MIN_SHARED_BYTES: usize = 4 << 10;

/// A call whose thread waits for the reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnCall {
    pub(crate) xid: u32,
    /// The length of the stream up to the end of the call's record.
    pub(crate) end: u64,
    /// Whether the call is entered in the link's table of calls.
    pub(crate) entered: bool,
    /// How many times the link had received something when the call was sent.
    pub(crate) heard: u64,
}

impl OwnCall {
    /// Returns the reply if the message answers this call and the call is not in the table. Most messages do.
    #[inline]
    pub(crate) fn take(&self, message: &[u8]) -> Option<Body> {
        let is_mine =
            !self.entered && matches!(peek(message), Ok((xid, Direction::Reply)) if xid == self.xid);
        is_mine.then(|| keep(Cow::Borrowed(message)))
    }
}

/// The messages of one reception, to be delivered when no lock is held.
#[derive(Default)]
pub(crate) struct Incoming {
    pub(crate) own: Option<Body>,
    pub(crate) watchers: Vec<Watcher>,
    pub(crate) calls: Vec<Vec<u8>>,
}

impl Incoming {
    /// Sorts a message. Drops it if it is neither a call nor a reply to a call under way.
    #[inline]
    pub(crate) fn sort(&mut self, table: &mut Table, message: Cow<'_, [u8]>, own: Option<&OwnCall>) {
        match peek(&message) {
            Ok((xid, Direction::Reply)) if own.is_some_and(|own| own.xid == xid) && self.own.is_none() => {
                let mut body = keep(message);
                if own.is_some_and(|own| own.entered) {
                    // The service thread notes in the entry alone that it has sent the call again.
                    body.repeated = table.remove(xid).is_some_and(|entry| entry.is_repeated());
                }
                self.own = Some(body);
            }
            Ok((xid, Direction::Reply)) if !table.is_empty() && table.expects(xid) => {
                match table.end(xid, Ok(keep(message))) {
                    Watcher::Nobody => {}
                    watcher => self.watchers.push(watcher),
                }
            }
            Ok((_, Direction::Call)) => self.calls.push(message.into_owned()),
            Ok((_, Direction::Reply)) | Err(_) => {}
        }
    }
}

fn keep(message: Cow<'_, [u8]>) -> Body {
    if message.len() >= MIN_SHARED_BYTES {
        return Body { kept: Kept::Long(Bytes::from(message.into_owned())), repeated: false };
    }
    let mut buffer = tools::spare();
    buffer.extend_from_slice(&message);
    Body { kept: Kept::Short(buffer), repeated: false }
}
