//! The exporter's end of posted writes, which are sent to a segment without waiting for an answer. It
//! executes the writes of each stream in their order, and each of them once.
//!
//! A stream is opened by a call, so no stream is opened twice. Writes that are posted to a forgotten stream
//! are not executed.

use std::collections::BTreeMap;

use std::net::IpAddr;

use super::Faults;

/// The streams of one segment. `R` is the reason for which a write is refused.
#[derive(Debug)]
pub struct Streams<R> {
    /// The most streams to remember.
    most: usize,
    faults: Faults,
    /// The number of the newest stream. Numbers are not used again.
    newest: u64,
    /// The streams; the one that was used last comes first.
    streams: Vec<Stream<R>>,
    /// How many of the streams each host has opened.
    hosts: BTreeMap<u64, usize>,
}

#[derive(Debug)]
struct Stream<R> {
    id: u64,
    host: u64,
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
        Streams { most, faults, newest: 0, streams: Vec::new(), hosts: BTreeMap::new() }
    }

    /// Opens a stream for an importer, whose address is given if it has one. The stream's first write has the
    /// number 0. If there are too many streams, forgets one of the host that has most.
    pub fn open(&mut self, importer: Option<IpAddr>) -> u64 {
        let host = importer.map_or(0, host_number);
        self.newest += 1;
        let id = if self.faults.reuses_streams { 1 + self.newest % self.most as u64 } else { self.newest };
        self.streams.insert(0, Stream { id, host, next: 0, refused: None });
        *self.hosts.entry(host).or_default() += 1;
        if self.streams.len() > self.most {
            self.forget_one();
        }
        id
    }

    /// Forgets the least recently used stream of the hosts that have most streams.
    fn forget_one(&mut self) {
        let most = self.hosts.values().max().copied();
        let is_of_those = |stream: &Stream<R>| self.hosts.get(&stream.host).copied() == most;
        let Some(place) = self.streams.iter().rposition(is_of_those) else { return };
        let host = self.streams.remove(place).host;
        let Some(left) = self.hosts.get_mut(&host) else { return };
        *left -= 1;
        if *left == 0 {
            self.hosts.remove(&host);
        }
    }

    /// Executes the write with this number if it is the stream's next and no earlier write was refused.
    pub fn post(&mut self, id: u64, number: u64, write: impl FnOnce() -> Write<R>) {
        let faults = self.faults;
        let Some(stream) = self.find(id) else { return };
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
    /// reason. Returns `None` for an unknown stream.
    pub fn posted(&mut self, id: u64) -> Option<(u64, Option<&R>)> {
        self.find(id).map(|stream| (stream.next, stream.refused.as_ref()))
    }

    /// Finds a stream, and marks it as used last.
    fn find(&mut self, id: u64) -> Option<&mut Stream<R>> {
        let place = self.streams.iter().position(|stream| stream.id == id)?;
        self.streams[..=place].rotate_right(1);
        self.streams.first_mut()
    }
}

/// Returns a number that identifies the host of an address: the upper half of the IPv6 address, or the lower
/// half if the upper is zero, as for mapped IPv4 addresses. (No host has an address in `0:ffff::/32`.)
fn host_number(ip: IpAddr) -> u64 {
    let bits = match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
    .to_bits();
    if bits >> 64 == 0 { bits as u64 } else { (bits >> 64) as u64 }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    const MOST: usize = 1024;
    const HOST: Option<IpAddr> = host(7);

    /// Returns the address of an importer at the host of that number.
    const fn host(number: u128) -> Option<IpAddr> {
        Some(IpAddr::V6(Ipv6Addr::from_bits(number << 64 | 1)))
    }

    #[test]
    fn addresses_of_one_host_have_its_number() {
        let v6 = |bits| host_number(IpAddr::V6(Ipv6Addr::from_bits(bits)));
        assert_eq!(v6(7 << 64 | 1), v6(7 << 64 | 2));
        assert_ne!(v6(7 << 64 | 1), v6(8 << 64 | 1));
        let v4 = Ipv4Addr::new(10, 0, 0, 7);
        assert_eq!(host_number(v4.into()), host_number(v4.to_ipv6_mapped().into()));
        assert_ne!(host_number(v4.into()), host_number(Ipv4Addr::new(10, 0, 0, 8).into()));
    }

    #[test]
    fn writes_are_done_in_order_and_once() {
        let (mut streams, mut done) = (Streams::<()>::new(MOST, Faults::default()), Vec::new());
        let (one, other) = (streams.open(HOST), streams.open(HOST));
        for (stream, number) in
            [(one, 1), (one, 0), (one, 0), (one, 2), (one, 1), (other, 0), (one, 2), (7, 0), (one, 1)]
        {
            streams.post(stream, number, || {
                done.push((stream, number));
                Write::Done
            });
        }
        assert_eq!(done, [(one, 0), (one, 1), (other, 0), (one, 2)]);
        assert_eq!(streams.posted(one), Some((3, None)));
        assert_eq!(streams.posted(7), None);
    }

    #[test]
    fn nothing_is_done_behind_what_was_refused() {
        let mut streams = Streams::new(MOST, Faults::default());
        let stream = streams.open(HOST);
        streams.post(stream, 0, || Write::Refused("inhibited"));
        for number in [0, 1] {
            streams.post(stream, number, || unreachable!("an earlier write was refused"));
        }
        assert_eq!(streams.posted(stream), Some((0, Some(&"inhibited"))));
    }

    #[test]
    fn what_was_no_write_may_come_again() {
        let mut streams = Streams::<()>::new(MOST, Faults::default());
        let stream = streams.open(HOST);
        streams.post(stream, 0, || Write::Nothing);
        assert_eq!(streams.posted(stream), Some((0, None)));
        streams.post(stream, 0, || Write::Done);
        assert_eq!(streams.posted(stream), Some((1, None)));
    }

    #[test]
    fn a_host_that_opens_many_streams_forgets_its_own() {
        let mut streams = Streams::<()>::new(MOST, Faults::default());
        let other = streams.open(host(8));
        let own: Vec<u64> = (0..3 * MOST).map(|_| streams.open(HOST)).collect();
        assert_eq!(streams.posted(other), Some((0, None)));
        assert_eq!(own.iter().filter(|id| streams.posted(**id).is_some()).count(), MOST - 1);
        // Each of many other hosts keeps the one stream that it opens.
        let many: Vec<u64> = (0..MOST as u128).map(|number| streams.open(host(9 + number))).collect();
        assert_eq!(streams.posted(*many.last().unwrap()), Some((0, None)));
        assert_eq!((streams.hosts.len(), streams.hosts.values().sum()), (MOST, MOST));
    }

    #[test]
    fn the_stream_that_was_not_used_for_longest_is_forgotten() {
        let mut streams = Streams::<()>::new(MOST, Faults::default());
        let (first, second) = (streams.open(HOST), streams.open(HOST));
        for _ in 2..MOST {
            streams.open(HOST);
        }
        streams.post(first, 0, || Write::Done);
        streams.open(HOST);
        assert_eq!(streams.posted(first), Some((1, None)));
        assert_eq!(streams.posted(second), None);
        streams.post(second, 0, || unreachable!("the stream is forgotten"));
    }

    /// Posts writes with these numbers to one stream, under a deliberate fault; the second write is refused.
    /// Returns the numbers of the executed writes, and the number that the stream expects next.
    fn done_under(faults: Faults, numbers: &[u64]) -> (Vec<u64>, u64) {
        let mut streams = Streams::<()>::new(MOST, faults);
        let (stream, mut done) = (streams.open(HOST), Vec::new());
        for number in numbers {
            streams.post(stream, *number, || {
                done.push(*number);
                if done.len() == 2 { Write::Refused(()) } else { Write::Done }
            });
        }
        (done, streams.posted(stream).unwrap().0)
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
        assert_eq!([0; 5].map(|_| streams.open(HOST)), [2, 3, 1, 2, 3]);
    }
}
