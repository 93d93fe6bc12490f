//! What has come, and for whom it is.

use std::borrow::Cow;

use bytes::Bytes;

use super::table::{Body, Kept, Table, Watcher};
use super::tools;
use crate::wire::message::{Direction, peek};

/// Replies as long as that are not copied once more: results may share them.
const LONG: usize = 4 << 10;

/// A call whose thread waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mine {
    pub(crate) xid: u32,
    /// How long the stream was, with the call's record at its end.
    pub(crate) end: u64,
    /// The table knows of it.
    pub(crate) entered: bool,
    /// How much had come when it was sent.
    pub(crate) heard: u64,
}

impl Mine {
    /// The reply, if the message is that and the table knows nothing of the call: mostly nothing else comes.
    #[inline]
    pub(crate) fn take(&self, message: &[u8]) -> Option<Body> {
        let is_mine =
            !self.entered && matches!(peek(message), Ok((xid, Direction::Reply)) if xid == self.xid);
        is_mine.then(|| keep(Cow::Borrowed(message)))
    }
}

/// What one reception brought, to be given out with no lock held.
#[derive(Default)]
pub(crate) struct Posted {
    pub(crate) mine: Option<Body>,
    pub(crate) watchers: Vec<Watcher>,
    pub(crate) calls: Vec<Vec<u8>>,
}

impl Posted {
    /// Sorts a message. What is no reply to a call of ours is dropped, and the wait goes on.
    #[inline]
    pub(crate) fn sort(&mut self, table: &mut Table, message: Cow<'_, [u8]>, mine: Option<&Mine>) {
        match peek(&message) {
            Ok((xid, Direction::Reply))
                if mine.is_some_and(|mine| mine.xid == xid) && self.mine.is_none() =>
            {
                if mine.is_some_and(|mine| mine.entered) {
                    table.remove(xid);
                }
                self.mine = Some(keep(message));
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
    if message.len() >= LONG {
        return Body { kept: Kept::Long(Bytes::from(message.into_owned())), repeated: false };
    }
    let mut buffer = tools::spare();
    buffer.extend_from_slice(&message);
    Body { kept: Kept::Short(buffer), repeated: false }
}
