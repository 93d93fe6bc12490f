//! Datagrams that are ready together leave together: those of one size that go to one address, as a train.

use std::io;
use std::net::SocketAddr;

use farcall_proto::server::Insert;

use crate::env::Socket;

/// A datagram that was written.
pub(crate) struct Departing {
    pub(crate) to: SocketAddr,
    pub(crate) len: usize,
    /// What belongs into it and stands elsewhere.
    pub(crate) insert: Option<Insert>,
    /// There is, or may be, another one.
    pub(crate) more: bool,
}

/// Longer datagrams leave by themselves: to write the next one takes as long as to send this one.
const SHORT: usize = 8 << 10;

/// Bytes that are written before any leave, at most.
const TOGETHER: usize = 60 << 10;

/// How long the buffer is that datagrams are written into: one can be written where a train is already.
pub(crate) const ROOM: usize = TOGETHER + farcall_proto::MAX_DATAGRAM;

/// Sends all that `write` writes into `out`, of [`ROOM`] bytes, until it writes nothing or says that there is
/// no more. `failed` is told of what the system refuses: it is lost, like any datagram.
pub(crate) fn depart(
    socket: &dyn Socket,
    out: &mut [u8],
    mut write: impl FnMut(&mut [u8]) -> Option<Departing>,
    mut failed: impl FnMut(SocketAddr, io::Error),
) {
    // What was written and has not left: datagrams of `each` bytes from `start` to `end`.
    let (mut to, mut each, mut start, mut end) = (None, 0, 0, 0);
    let mut send = |to: Option<SocketAddr>, train: &[u8], each: usize, insert: Option<Insert>| {
        let Some(to) = to else { return };
        let sent = match insert {
            Some(insert) => send_around(socket, to, train, &insert),
            None if train.len() <= each => socket.send(to, train),
            None => socket.send_train(to, train, each),
        };
        if let Err(why) = sent {
            failed(to, why);
        }
    };
    while let Some(departing) = write(&mut out[end..]) {
        let apart = departing.insert.is_some();
        if to != Some(departing.to) || departing.len > each || apart {
            send(to, &out[start..end], each, None);
            (to, each, start) = (Some(departing.to), departing.len, end);
        }
        end += departing.len;
        let is_last = !departing.more || departing.len < each || each > SHORT || end >= TOGETHER || apart;
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

/// Sends a datagram that was written but for an insert.
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

    /// Notes what is sent: the sizes of the datagrams of each train, and to which port.
    #[derive(Default)]
    struct Noted(Mutex<Vec<(u16, Vec<usize>)>>);

    impl Socket for Noted {
        fn send(&self, to: SocketAddr, datagram: &[u8]) -> io::Result<()> {
            self.send_train(to, datagram, datagram.len())
        }

        fn send_train(&self, to: SocketAddr, train: &[u8], each: usize) -> io::Result<()> {
            self.0.lock().unwrap().push((to.port(), train.chunks(each).map(<[u8]>::len).collect()));
            Ok(())
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

    /// How datagrams leave that go to these ports and are that long.
    fn leave(datagrams: &[(u16, usize)]) -> Vec<(u16, Vec<usize>)> {
        let noted = Noted::default();
        let mut left = datagrams.iter();
        let write = |_: &mut [u8]| {
            let &(port, len) = left.next()?;
            Some(Departing { to: ([127, 0, 0, 1], port).into(), len, insert: None, more: left.len() > 0 })
        };
        depart(&noted, &mut vec![0; ROOM], write, |_, _| ());
        noted.0.into_inner().unwrap()
    }

    #[test]
    fn those_of_one_size_to_one_address_leave_as_a_train() {
        assert_eq!(leave(&[(1, 1200)]), [(1, vec![1200])]);
        assert_eq!(leave(&[(1, 1200), (1, 1200), (1, 7)]), [(1, vec![1200, 1200, 7])]);
        assert_eq!(leave(&[(1, 7), (1, 1200), (1, 1200)]), [(1, vec![7]), (1, vec![1200, 1200])]);
        assert_eq!(leave(&[(1, 9), (1, 8), (1, 8)]), [(1, vec![9, 8]), (1, vec![8])]);
        assert_eq!(leave(&[(1, 9), (2, 9), (2, 9)]), [(1, vec![9]), (2, vec![9, 9])]);
        assert_eq!(leave(&[]), []);
    }

    #[test]
    fn long_ones_leave_at_once_and_no_more_is_written_than_there_is_room_for() {
        assert_eq!(leave(&[(1, 65_507), (1, 65_507)]), [(1, vec![65_507]), (1, vec![65_507])]);
        let trains = leave(&[(1, 8_000); 20]);
        assert_eq!(trains.iter().map(|(_, train)| train.len()).sum::<usize>(), 20);
        assert!(trains.iter().all(|(_, train)| train.len() == 8 || train.len() == 4), "{trains:?}");
    }
}
