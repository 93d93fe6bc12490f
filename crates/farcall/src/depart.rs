//! Sends ready datagrams in batches: datagrams of one size to one address leave in one system call.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use farcall_proto::secure::{self, Cipher};
use farcall_proto::server::Insert;

use crate::env::Socket;

/// A datagram that was written and is to be sent.
pub(crate) struct Departing {
    pub(crate) to: SocketAddr,
    pub(crate) len: usize,
    /// Bytes that belong into the datagram but were not copied into it, and their position.
    pub(crate) insert: Option<Box<Insert>>,
    /// What seals the datagram.
    pub(crate) cipher: Option<Arc<Cipher>>,
    /// Whether another datagram may be ready.
    pub(crate) more: bool,
}

/// Datagrams longer than this are sent one by one, because to write the next one takes as long as to send.
const MAX_BATCHED_DATAGRAM_BYTES: usize = 8 << 10;

/// Datagrams are sent once this many bytes have been written.
const SEND_AT_BYTES: usize = 60 << 10;

/// The size in bytes of the buffer that datagrams are written into. It has room for a batch and one more
/// datagram of any length.
pub(crate) const ROOM: usize = SEND_AT_BYTES + farcall_proto::MAX_DATAGRAM;

/// Sends the datagrams that `write` writes into `out`, a buffer of [`ROOM`] bytes. Ends when `write` writes
/// nothing, or says that no other datagram is ready. `failed` gets the error of each send that the system
/// refuses, and the length of the longest datagram of that send; those datagrams are lost, as any may be in a
/// network.
pub(crate) fn depart(
    socket: &dyn Socket,
    out: &mut [u8],
    mut write: impl FnMut(&mut [u8]) -> Option<Departing>,
    mut failed: impl FnMut(usize, io::Error),
) {
    // The datagrams from `start` to `end` are written but not sent. Each has `each` bytes; the last one may
    // be shorter.
    let (mut to, mut each, mut start, mut end) = (None, 0, 0, 0);
    let mut send = |to: Option<SocketAddr>, batch: &[u8], each: usize, insert: Option<Box<Insert>>| {
        let Some(to) = to else { return };
        let sent = match insert {
            Some(insert) => send_around(socket, to, batch, &insert),
            None if batch.len() <= each => socket.send(to, batch),
            None => socket.send_train(to, batch, each),
        };
        if let Err(why) = sent {
            failed(each, why);
        }
    };
    while let Some(departing) = write(&mut out[end..]) {
        let has_insert = departing.insert.is_some();
        if to != Some(departing.to) || departing.len > each || has_insert {
            send(to, &out[start..end], each, None);
            (to, each, start) = (Some(departing.to), departing.len, end);
        }
        secure::seal_by(&departing.cipher, &mut out[end..end + departing.len]);
        end += departing.len;
        let is_last = !departing.more
            || departing.len < each
            || each > MAX_BATCHED_DATAGRAM_BYTES
            || end >= SEND_AT_BYTES
            || has_insert;
        if is_last {
            send(to.take(), &out[start..end], each, departing.insert);
            (start, end) = (0, 0);
            if !departing.more {
                return;
            }
        }
    }
    send(to, &out[start..end], each, None);
}

/// Sends a datagram together with the bytes that belong into it but were not copied.
pub(crate) fn send_around(
    socket: &dyn Socket,
    to: SocketAddr,
    written: &[u8],
    insert: &Insert,
) -> io::Result<()> {
    let (before, behind) = written.split_at(insert.at);
    socket.send_parts(to, [before, &insert.bytes, behind])
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::env::{Received, Wait};

    /// Records each send: the port of the receiver, and the sizes of the batch's datagrams. Refuses datagrams
    /// of port 9.
    #[derive(Default)]
    struct Noted(Mutex<Vec<(u16, Vec<usize>)>>);

    impl Socket for Noted {
        fn send(&self, to: SocketAddr, datagram: &[u8]) -> io::Result<()> {
            self.send_train(to, datagram, datagram.len())
        }

        fn send_train(&self, to: SocketAddr, batch: &[u8], each: usize) -> io::Result<()> {
            self.0.lock().unwrap().push((to.port(), batch.chunks(each).map(<[u8]>::len).collect()));
            if to.port() == 9 { Err(io::ErrorKind::PermissionDenied.into()) } else { Ok(()) }
        }

        fn receive(&self, _: &mut [u8], _: Wait) -> io::Result<Received> {
            Ok(Received::TimedOut)
        }

        fn wake(&self) {}

        fn local_address(&self) -> SocketAddr {
            ([127, 0, 0, 1], 1).into()
        }

        fn receive_buffer(&self) -> usize {
            0
        }
    }

    /// Returns the sends of datagrams that go to these ports and have these lengths.
    fn leave(datagrams: &[(u16, usize)]) -> Vec<(u16, Vec<usize>)> {
        leave_or(datagrams, |_| ())
    }

    /// Does the same, and tells `refused` the lengths of those that are refused.
    fn leave_or(datagrams: &[(u16, usize)], mut refused: impl FnMut(usize)) -> Vec<(u16, Vec<usize>)> {
        let noted = Noted::default();
        let mut left = datagrams.iter();
        let write = |_: &mut [u8]| {
            let &(port, len) = left.next()?;
            let to = ([127, 0, 0, 1], port).into();
            Some(Departing { to, len, insert: None, cipher: None, more: left.len() > 0 })
        };
        depart(&noted, &mut vec![0; ROOM], write, |len, _| refused(len));
        noted.0.into_inner().unwrap()
    }

    #[test]
    fn datagrams_of_one_size_to_one_address_are_sent_as_a_batch() {
        assert_eq!(leave(&[(1, 1200)]), [(1, vec![1200])]);
        assert_eq!(leave(&[(1, 1200), (1, 1200), (1, 7)]), [(1, vec![1200, 1200, 7])]);
        assert_eq!(leave(&[(1, 7), (1, 1200), (1, 1200)]), [(1, vec![7]), (1, vec![1200, 1200])]);
        assert_eq!(leave(&[(1, 9), (1, 8), (1, 8)]), [(1, vec![9, 8]), (1, vec![8])]);
        assert_eq!(leave(&[(1, 9), (2, 9), (2, 9)]), [(1, vec![9]), (2, vec![9, 9])]);
        assert_eq!(leave(&[]), []);
    }

    #[test]
    fn a_refused_send_is_told_by_its_own_length_and_not_by_an_earlier_ones() {
        let mut refused = Vec::new();
        leave_or(&[(1, 60), (9, 1500), (9, 1500), (9, 9000), (1, 70), (9, 40)], |len| refused.push(len));
        assert_eq!(refused, [1500, 9000, 40]);
    }

    #[test]
    fn long_datagrams_are_sent_at_once_and_a_batch_is_no_longer_than_the_buffer() {
        assert_eq!(leave(&[(1, 65_507), (1, 65_507)]), [(1, vec![65_507]), (1, vec![65_507])]);
        let batches = leave(&[(1, 8_000); 20]);
        assert_eq!(batches.iter().map(|(_, batch)| batch.len()).sum::<usize>(), 20);
        assert!(batches.iter().all(|(_, batch)| batch.len() == 8 || batch.len() == 4), "{batches:?}");
    }
}
