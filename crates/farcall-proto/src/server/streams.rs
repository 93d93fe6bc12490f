//! Posted writes at the exporter: each stream's are done in order, and once (docs/memory-protocol.md, "Posted writes").
//!
//! A stream is opened by a call, so it is never opened twice, and what was posted to one that is forgotten is not done.

use std::collections::BTreeMap;

use super::HostName;
use crate::{Mutant, Rule};

/// The streams of one segment. `R` is why a write is refused.
#[derive(Debug)]
pub struct Streams<R> {
    /// So many are remembered.
    most: usize,
    mutant: Mutant,
    /// The newest; numbers are not used again.
    newest: u64,
    /// The one used last in front.
    streams: Vec<Stream<R>>,
    /// How many of the streams each host has opened.
    hosts: BTreeMap<HostName, usize>,
}

#[derive(Debug)]
struct Stream<R> {
    id: u64,
    host: HostName,
    /// The write that is to be done next: all before it were.
    next: u64,
    /// Why that one was not, and none will be.
    refused: Option<R>,
}

/// What came of a write that was its stream's next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write<R> {
    /// It is done.
    Done,
    /// It never will be, nor any behind it.
    Refused(R),
    /// It was none. It may come again.
    Nothing,
}

impl<R> Streams<R> {
    /// None yet, and never more than `most`.
    pub fn new(most: usize, mutant: Mutant) -> Streams<R> {
        Streams { most, mutant, newest: 0, streams: Vec::new(), hosts: BTreeMap::new() }
    }

    /// Opens a stream of that host, whose first write has the number 0. If there are too many streams, one of
    /// the host that has most is forgotten.
    pub fn open(&mut self, host: HostName) -> u64 {
        self.newest += 1;
        let again = self.mutant.breaks(Rule::StreamReused);
        let id = if again { 1 + self.newest % self.most as u64 } else { self.newest };
        self.streams.insert(0, Stream { id, host, next: 0, refused: None });
        *self.hosts.entry(host).or_default() += 1;
        if self.streams.len() > self.most {
            self.forget_one();
        }
        id
    }

    /// Forgets the stream that was not used for longest, among the streams of the hosts that have most.
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

    /// Does the write of that number, if it is the stream's next and none was refused.
    pub fn post(&mut self, id: u64, number: u64, write: impl FnOnce() -> Write<R>) {
        let mutant = self.mutant;
        let Some(stream) = self.find(id) else { return };
        let in_order = number == stream.next
            || number > stream.next && mutant.breaks(Rule::PostEarly)
            || number < stream.next && mutant.breaks(Rule::PostAgain);
        if !in_order || stream.refused.is_some() && !mutant.breaks(Rule::PostBehindRefused) {
            return;
        }
        match write() {
            Write::Done => stream.next = stream.next.max(number + 1),
            Write::Refused(why) => {
                stream.refused = Some(why);
                stream.next += u64::from(mutant.breaks(Rule::PostBehindRefused));
            }
            Write::Nothing => {}
        }
    }

    /// The number of the first write of a stream that was not done, and why that was refused, if it was. `None` if the stream
    /// is not known.
    pub fn posted(&mut self, id: u64) -> Option<(u64, Option<&R>)> {
        self.find(id).map(|stream| (stream.next, stream.refused.as_ref()))
    }

    /// The stream, which is the one used last from now on.
    fn find(&mut self, id: u64) -> Option<&mut Stream<R>> {
        let place = self.streams.iter().position(|stream| stream.id == id)?;
        self.streams[..=place].rotate_right(1);
        self.streams.first_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 1024;
    const HOST: HostName = HostName::of([7, 0]);

    #[test]
    fn writes_are_done_in_order_and_once() {
        let (mut streams, mut done) = (Streams::<()>::new(MOST, Mutant::NONE), Vec::new());
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
        let mut streams = Streams::new(MOST, Mutant::NONE);
        let stream = streams.open(HOST);
        streams.post(stream, 0, || Write::Refused("inhibited"));
        for number in [0, 1] {
            streams.post(stream, number, || unreachable!("it comes behind"));
        }
        assert_eq!(streams.posted(stream), Some((0, Some(&"inhibited"))));
    }

    #[test]
    fn what_was_no_write_may_come_again() {
        let mut streams = Streams::<()>::new(MOST, Mutant::NONE);
        let stream = streams.open(HOST);
        streams.post(stream, 0, || Write::Nothing);
        assert_eq!(streams.posted(stream), Some((0, None)));
        streams.post(stream, 0, || Write::Done);
        assert_eq!(streams.posted(stream), Some((1, None)));
    }

    #[test]
    fn a_host_that_opens_many_streams_forgets_its_own() {
        let mut streams = Streams::<()>::new(MOST, Mutant::NONE);
        let other = streams.open(HostName::of([8, 0]));
        let own: Vec<u64> = (0..3 * MOST).map(|_| streams.open(HOST)).collect();
        assert_eq!(streams.posted(other), Some((0, None)));
        assert_eq!(own.iter().filter(|id| streams.posted(**id).is_some()).count(), MOST - 1);
        // Each of many other hosts keeps the one stream that it opens.
        let many: Vec<u64> = (0..MOST as u64).map(|host| streams.open(HostName::of([9 + host, 0]))).collect();
        assert_eq!(streams.posted(*many.last().unwrap()), Some((0, None)));
        assert_eq!((streams.hosts.len(), streams.hosts.values().sum()), (MOST, MOST));
    }

    #[test]
    fn the_stream_that_was_not_used_for_longest_is_forgotten() {
        let mut streams = Streams::<()>::new(MOST, Mutant::NONE);
        let (first, second) = (streams.open(HOST), streams.open(HOST));
        for _ in 2..MOST {
            streams.open(HOST);
        }
        streams.post(first, 0, || Write::Done);
        streams.open(HOST);
        assert_eq!(streams.posted(first), Some((1, None)));
        assert_eq!(streams.posted(second), None);
        streams.post(second, 0, || unreachable!("it is forgotten"));
    }

    /// Posts writes with these numbers to one stream, under a deliberate fault; the second write is refused.
    /// Returns the numbers of the executed writes, and the number that the stream expects next.
    #[cfg(feature = "mutants")]
    fn done_under(rule: Rule, numbers: &[u64]) -> (Vec<u64>, u64) {
        let mut streams = Streams::<()>::new(MOST, Mutant::of(rule));
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
    #[cfg(feature = "mutants")]
    fn a_deliberate_fault_breaks_its_rule_and_no_other() {
        assert_eq!(done_under(Rule::PostEarly, &[0, 2, 0, 1]), (vec![0, 2], 1));
        assert_eq!(done_under(Rule::PostEarly, &[2, 0, 1, 2, 3, 4]), (vec![2, 3], 3));
        assert_eq!(done_under(Rule::PostAgain, &[0, 2, 0, 1]), (vec![0, 0], 1));
        assert_eq!(done_under(Rule::PostBehindRefused, &[0, 0, 1, 3, 1, 2]), (vec![0, 1, 2], 3));
        let mut streams = Streams::<()>::new(3, Mutant::of(Rule::StreamReused));
        assert_eq!([0; 5].map(|_| streams.open(HOST)), [2, 3, 1, 2, 3]);
    }
}
