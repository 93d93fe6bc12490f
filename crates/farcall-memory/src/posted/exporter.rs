//! The exporter's end of posted writes, which are sent to a segment without waiting for an answer. It
//! executes the writes of each stream in their order, and each of them once.
//!
//! A stream is opened by a call, so no stream is opened twice. Writes that are posted to a forgotten stream
//! are not executed.
//!
//! A stream belongs to the importer that opened it. Anybody else could have its next write refused, or post a
//! write in the place of the importer's own. If the importer has a key, the stream belongs to its principal.
//! An importer without a key cannot be recognized: processes of one host share its address, and the address
//! may change. Its stream is used by everybody without a key who knows the number. So the number must be
//! unpredictable.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use farcall_core::host::{Host, Network};

use super::Faults;

/// The streams of one segment. `R` is the reason for which a write is refused.
#[derive(Debug)]
pub struct Streams<R> {
    /// The most streams to remember.
    most: usize,
    faults: Faults,
    /// How many streams were opened.
    opened: u64,
    /// The streams; the one that was used last comes first.
    streams: Vec<Stream<R>>,
    /// How many of the streams each host has opened, and all hosts of each network.
    hosts: BTreeMap<Host, usize>,
    networks: BTreeMap<Network, usize>,
}

#[derive(Debug)]
struct Stream<R> {
    id: u64,
    host: Host,
    /// The name of the principal that opened the stream, if it has a key.
    owner: Option<Arc<str>>,
    /// The number of the write to execute next. All earlier ones were executed.
    next: u64,
    /// Why that write was refused, if it was. No later write will be executed either.
    refused: Option<R>,
}

/// The outcome of the next write of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write<R> {
    /// The write was executed.
    Done,
    /// The write was refused. Neither it nor any later write of the stream will ever be executed.
    Refused(R),
    /// The bytes were not a write. The write may arrive again.
    Nothing,
}

impl<R> Streams<R> {
    /// Returns an empty set that remembers at most `most` streams.
    pub fn new(most: usize, faults: Faults) -> Streams<R> {
        let (hosts, networks) = Default::default();
        Streams { most, faults, opened: 0, streams: Vec::new(), hosts, networks }
    }

    /// Opens a stream for an importer, and returns its number: `random`, which nobody must be able to guess.
    /// The importer's address is given if it has one, and its principal if it has a key. The stream's first
    /// write has the number 0. If there are too many streams, forgets one of the network that has most, and
    /// of its hosts of the one that has most.
    pub fn open(&mut self, importer: Option<IpAddr>, owner: Option<&Arc<str>>, random: u64) -> u64 {
        let host = importer.map_or(Host::User(None), Host::at);
        self.opened += 1;
        let id = if self.faults.reuses_streams { 1 + self.opened % self.most as u64 } else { random };
        self.streams.insert(0, Stream { id, host, owner: owner.cloned(), next: 0, refused: None });
        *self.hosts.entry(host).or_default() += 1;
        *self.networks.entry(host.network()).or_default() += 1;
        if self.streams.len() > self.most {
            self.forget_one();
        }
        id
    }

    /// Forgets the least recently used stream of the hosts that have most streams, in the networks that have
    /// most.
    fn forget_one(&mut self) {
        let rank = |host: &Host| (self.networks.get(&host.network()), self.hosts.get(host));
        let most = self.hosts.keys().map(rank).max();
        let is_of_those = |stream: &Stream<R>| Some(rank(&stream.host)) == most;
        let Some(place) = self.streams.iter().rposition(is_of_those) else { return };
        let host = self.streams.remove(place).host;
        remove_one(&mut self.hosts, host);
        remove_one(&mut self.networks, host.network());
    }

    /// Executes the write with this number if it is the next of the stream that `by` opened, and no earlier
    /// write was refused.
    pub fn post(&mut self, by: Option<&Arc<str>>, id: u64, number: u64, write: impl FnOnce() -> Write<R>) {
        let faults = self.faults;
        let Some(stream) = self.find(by, id) else { return };
        let in_order = number == stream.next
            || number > stream.next && faults.does_early
            || number < stream.next && faults.does_again;
        if !in_order || stream.refused.is_some() && !faults.does_behind_refused {
            return;
        }
        match write() {
            Write::Done => stream.next = stream.next.max(number + 1),
            Write::Refused(why) => {
                stream.refused = Some(why);
                stream.next += u64::from(faults.does_behind_refused);
            }
            Write::Nothing => {}
        }
    }

    /// Returns the number of a stream's first write that was not executed and, if that write was refused, the
    /// reason. Returns `None` for a stream that is unknown or that `by` did not open.
    pub fn posted(&mut self, by: Option<&Arc<str>>, id: u64) -> Option<(u64, Option<&R>)> {
        self.find(by, id).map(|stream| (stream.next, stream.refused.as_ref()))
    }

    /// Finds a stream that `by` opened, and marks it as used last.
    fn find(&mut self, by: Option<&Arc<str>>, id: u64) -> Option<&mut Stream<R>> {
        let is_it = |stream: &Stream<R>| stream.id == id && stream.owner.as_ref() == by;
        let place = self.streams.iter().position(is_it)?;
        self.streams[..=place].rotate_right(1);
        self.streams.first_mut()
    }
}

fn remove_one<N: Ord>(counts: &mut BTreeMap<N, usize>, name: N) {
    let Some(left) = counts.get_mut(&name) else { return };
    *left -= 1;
    if *left == 0 {
        counts.remove(&name);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    const MOST: usize = 1024;
    const HOST: Option<IpAddr> = host(7);

    /// Returns the address of an importer at the host of that number, in the network of the number's upper
    /// bits.
    const fn host(number: u128) -> Option<IpAddr> {
        Some(IpAddr::V6(Ipv6Addr::from_bits(0x2001 << 112 | number << 64 | 1)))
    }

    /// Opens a stream for an importer without a key.
    fn open<R>(streams: &mut Streams<R>, importer: Option<IpAddr>) -> u64 {
        let number = streams.opened + 1;
        streams.open(importer, None, number)
    }

    #[test]
    fn writes_are_done_in_order_and_once() {
        let (mut streams, mut done) = (Streams::<()>::new(MOST, Faults::default()), Vec::new());
        let (one, other) = (open(&mut streams, HOST), open(&mut streams, HOST));
        for (stream, number) in
            [(one, 1), (one, 0), (one, 0), (one, 2), (one, 1), (other, 0), (one, 2), (7, 0), (one, 1)]
        {
            streams.post(None, stream, number, || {
                done.push((stream, number));
                Write::Done
            });
        }
        assert_eq!(done, [(one, 0), (one, 1), (other, 0), (one, 2)]);
        assert_eq!(streams.posted(None, one), Some((3, None)));
        assert_eq!(streams.posted(None, 7), None);
    }

    #[test]
    fn nothing_is_done_behind_what_was_refused() {
        let mut streams = Streams::new(MOST, Faults::default());
        let stream = open(&mut streams, HOST);
        streams.post(None, stream, 0, || Write::Refused("inhibited"));
        for number in [0, 1] {
            streams.post(None, stream, number, || unreachable!("an earlier write was refused"));
        }
        assert_eq!(streams.posted(None, stream), Some((0, Some(&"inhibited"))));
    }

    #[test]
    fn what_was_no_write_may_come_again() {
        let mut streams = Streams::<()>::new(MOST, Faults::default());
        let stream = open(&mut streams, HOST);
        streams.post(None, stream, 0, || Write::Nothing);
        assert_eq!(streams.posted(None, stream), Some((0, None)));
        streams.post(None, stream, 0, || Write::Done);
        assert_eq!(streams.posted(None, stream), Some((1, None)));
    }

    #[test]
    fn to_others_a_principals_stream_is_unknown_wherever_the_principal_is() {
        let (mut streams, [alice, bob]) =
            (Streams::<()>::new(MOST, Faults::default()), ["alice", "bob"].map(Arc::from));
        let (first, second) = (u64::MAX, u64::MAX - 1);
        let stream = streams.open(HOST, Some(&alice), first);
        for other in [None, Some(&bob)] {
            streams.post(other, stream, 0, || unreachable!("it is another importer's stream"));
            assert_eq!(streams.posted(other, stream), None);
        }
        let again = Arc::from("alice");
        streams.post(Some(&again), stream, 0, || Write::Done);
        assert_eq!(streams.posted(Some(&alice), stream), Some((1, None)));
        // Nor does a principal reach the stream of an importer without a key.
        let stream = streams.open(HOST, None, second);
        assert_eq!(streams.posted(Some(&alice), stream), None);
        // What others ask does not keep a stream from being forgotten.
        for _ in 2..MOST {
            open(&mut streams, HOST);
        }
        streams.posted(Some(&bob), first);
        open(&mut streams, HOST);
        assert_eq!(streams.posted(Some(&alice), first), None);
    }

    #[test]
    fn a_host_that_opens_many_streams_forgets_its_own() {
        let mut streams = Streams::<()>::new(MOST, Faults::default());
        let other = open(&mut streams, host(8));
        let own: Vec<u64> = (0..3 * MOST).map(|_| open(&mut streams, HOST)).collect();
        assert_eq!(streams.posted(None, other), Some((0, None)));
        assert_eq!(own.iter().filter(|id| streams.posted(None, **id).is_some()).count(), MOST - 1);
        // Each of many other hosts keeps the one stream that it opens.
        let many: Vec<u64> = (0..MOST as u128).map(|number| open(&mut streams, host(9 + number))).collect();
        assert_eq!(streams.posted(None, *many.last().unwrap()), Some((0, None)));
        assert_eq!((streams.hosts.len(), streams.hosts.values().sum()), (MOST, MOST));
    }

    #[test]
    fn a_network_whose_many_hosts_open_one_stream_each_leaves_another_network_its_own() {
        let mut streams = Streams::<()>::new(MOST, Faults::default());
        let others: Vec<u64> = (0..100).map(|_| open(&mut streams, host(1 << 16))).collect();
        for number in 0..3 * MOST as u128 {
            open(&mut streams, host(number));
        }
        assert!(others.iter().all(|id| streams.posted(None, *id).is_some()));
        assert_eq!((streams.networks.len(), streams.networks.values().sum()), (2, MOST));
    }

    #[test]
    fn the_stream_that_was_not_used_for_longest_is_forgotten() {
        let mut streams = Streams::<()>::new(MOST, Faults::default());
        let (first, second) = (open(&mut streams, HOST), open(&mut streams, HOST));
        for _ in 2..MOST {
            open(&mut streams, HOST);
        }
        streams.post(None, first, 0, || Write::Done);
        open(&mut streams, HOST);
        assert_eq!(streams.posted(None, first), Some((1, None)));
        assert_eq!(streams.posted(None, second), None);
        streams.post(None, second, 0, || unreachable!("the stream is forgotten"));
    }

    /// Posts writes with these numbers to one stream, under a deliberate fault; the second write is refused.
    /// Returns the numbers of the executed writes, and the number that the stream expects next.
    fn done_under(faults: Faults, numbers: &[u64]) -> (Vec<u64>, u64) {
        let mut streams = Streams::<()>::new(MOST, faults);
        let (stream, mut done) = (open(&mut streams, HOST), Vec::new());
        for number in numbers {
            streams.post(None, stream, *number, || {
                done.push(*number);
                if done.len() == 2 { Write::Refused(()) } else { Write::Done }
            });
        }
        (done, streams.posted(None, stream).unwrap().0)
    }

    #[test]
    fn a_deliberate_fault_breaks_its_rule_and_no_other() {
        let early = Faults { does_early: true, ..Faults::default() };
        assert_eq!(done_under(early, &[0, 2, 0, 1]), (vec![0, 2], 1));
        assert_eq!(done_under(early, &[2, 0, 1, 2, 3, 4]), (vec![2, 3], 3));
        let again = Faults { does_again: true, ..Faults::default() };
        assert_eq!(done_under(again, &[0, 2, 0, 1]), (vec![0, 0], 1));
        let behind_refused = Faults { does_behind_refused: true, ..Faults::default() };
        assert_eq!(done_under(behind_refused, &[0, 0, 1, 3, 1, 2]), (vec![0, 1, 2], 3));
        let reused = Faults { reuses_streams: true, ..Faults::default() };
        let mut streams = Streams::<()>::new(3, reused);
        assert_eq!([0; 5].map(|_| open(&mut streams, HOST)), [2, 3, 1, 2, 3]);
    }
}
