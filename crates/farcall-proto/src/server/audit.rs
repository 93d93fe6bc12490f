//! For tests: reports what the server keeps for a host, and checks all counts.

use std::collections::HashSet;
use std::net::IpAddr;

use super::Server;
use super::hosts::{Amounts, HostName, Kept, SHORT_RESULT, counted_result};
use super::memory::ASSEMBLY;
use super::work::{GIVEN_UP, Phase, Work};
use crate::scheme::Scheme;

/// What a server keeps for one host.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeptForHost {
    /// Bytes of arguments that are arriving, and a fixed cost for each call.
    pub arguments: usize,
    /// Bytes of results that fit one datagram each. A result of at most 64 bytes is a part of its call.
    pub results: usize,
    /// Bytes of results that are being sent in fragments.
    pub sending: usize,
    /// The number of calls for which anything is kept.
    pub calls: usize,
    /// Bytes for activities beyond the first.
    pub activities: usize,
    /// Bytes of memory of exchanges.
    pub exchanges: usize,
    /// The number of entries in the host's lists: of calls whose arguments are arriving, and of conversations
    /// with several activities.
    pub listed: usize,
    /// The number of entries in the host's list of calls for which anything is kept.
    pub listed_calls: usize,
}

impl KeptForHost {
    /// Returns the sum of all, in bytes.
    pub fn bytes(&self) -> usize {
        self.arguments
            + self.results
            + self.sending
            + self.calls * (size_of::<Work>() + SHORT_RESULT + 16)
            + self.activities
            + self.exchanges
    }
}

impl Server {
    /// Returns what is kept for a host.
    #[doc(hidden)]
    pub fn kept_for(&self, host: IpAddr) -> KeptForHost {
        let place = self.hosts.find(HostName::at(&(host, 0).into()));
        let kept = |kind| place.map_or(0, |place| self.hosts.kept(place, kind));
        KeptForHost {
            arguments: kept(Kept::Arguments),
            results: kept(Kept::Results),
            sending: kept(Kept::Sending),
            calls: kept(Kept::Calls),
            activities: 16 * kept(Kept::Activities),
            exchanges: kept(Kept::Exchanges),
            listed: place
                .map_or(0, |place| self.hosts.at(place).receiving.len() + self.hosts.at(place).wide.len()),
            listed_calls: place.map_or(0, |place| self.hosts.at(place).calls.len()),
        }
    }

    /// Returns the bytes of the buffers that calls keep for their results.
    #[doc(hidden)]
    pub fn result_buffers(&self) -> usize {
        let all = self.table.entries().filter_map(|entry| entry.more.as_ref());
        all.flat_map(|more| more.activities.works()).map(|work| work.payload.capacity()).sum()
    }

    /// Returns whether the server has an entry for a host.
    #[doc(hidden)]
    pub fn knows_host(&self, host: IpAddr) -> bool {
        self.hosts.find(HostName::at(&(host, 0).into())).is_some()
    }

    /// Returns the number of short answers that wait to be sent.
    #[doc(hidden)]
    pub fn replies(&self) -> usize {
        self.answers.queue.len()
    }

    /// Returns the largest number of unacknowledged bytes of fragmented results, among the clients in the
    /// local scheme.
    #[doc(hidden)]
    pub fn local_in_flight(&self) -> u32 {
        let local = self.table.entries().filter(|entry| entry.scheme() == Scheme::Local);
        local.filter_map(|entry| Some(entry.more.as_ref()?.path.in_flight)).max().unwrap_or(0)
    }

    /// Counts everything again.
    ///
    /// # Panics
    /// When a count is wrong.
    #[doc(hidden)]
    pub fn audit(&self) {
        let (mut total, mut receiving, mut lent) = (Amounts::default(), 0, 0);
        let mut of_hosts = std::collections::BTreeMap::<u32, (Amounts, usize, usize)>::new();
        let mut lists: [HashSet<(u32, u64, u32)>; 3] = Default::default();
        for place in 0..self.hosts.len() as u32 {
            let host = self.hosts.at(place);
            lists[0].extend(host.calls.iter().map(|(id, activity)| (place, *id, *activity)));
            lists[1].extend(host.receiving.iter().map(|(id, activity)| (place, *id, *activity)));
            lists[2].extend(host.wide.iter().map(|id| (place, *id, 0)));
        }
        let [listed, arriving, wide] = lists;
        for entry in self.table.entries() {
            let Some(more) = &entry.more else { continue };
            assert_eq!(self.hosts.find(entry.host()), Some(more.host), "a conversation's host");
            let is_idle = more.works == 0 && more.activities.used == 0 && more.refused_through == 0;
            assert!(!is_idle, "something is kept of an idle conversation");
            let mut kept = Amounts::default();
            let (mut running, mut in_flight) = (0, 0);
            for work in more.activities.works() {
                let call = (more.host, entry.id, work.position.activity);
                kept[Kept::Calls as usize] += 1;
                match work.outgoing {
                    Some(_) => kept[Kept::Sending as usize] += work.len(),
                    None => kept[Kept::Results as usize] += counted_result(work.len()),
                }
                kept[Kept::Accessed as usize] += if work.is_accessed() { work.len() } else { 0 };
                running += u32::from(work.phase == Phase::Running);
                in_flight += work.outgoing.as_ref().map_or(0, |outgoing| outgoing.in_flight);
                if let Some(inside) = &work.inside {
                    assert!(work.marks & GIVEN_UP == 0, "exchanges of a call that was given up");
                    in_flight += inside.in_flight();
                    kept[Kept::Exchanges as usize] += inside.counted();
                    let timer = inside.timer().map(|timer| (timer, entry.id, work.position.activity));
                    assert!(timer.is_none_or(|timer| self.all_inside.timers.contains(&timer)), "a timer");
                }
                if let Some(incoming) = &work.incoming {
                    kept[Kept::Arguments as usize] += incoming.memory() + ASSEMBLY;
                    (receiving, lent) = (receiving + 1, lent + incoming.lent);
                    assert!(arriving.contains(&call), "a call that nobody could let go");
                }
                assert!(listed.contains(&call), "a call that nobody looks at");
            }
            kept[Kept::Activities as usize] = more.activities.cost();
            let is_wide = wide.contains(&(more.host, entry.id, 0));
            assert!(more.activities.is_empty() || is_wide, "activities that cannot be forgotten");
            assert_eq!(
                (more.kept, more.works as usize),
                (kept, kept[Kept::Calls as usize]),
                "what a conversation keeps"
            );
            assert_eq!(more.running, running, "calls that are being executed");
            assert_eq!(more.path.in_flight, in_flight, "bytes of results in flight");
            let host = of_hosts.entry(more.host).or_default();
            add(&mut host.0, &kept);
            host.1 += 1;
            host.2 += more.activities.works().filter(|work| work.incoming.is_some()).count();
            add(&mut total, &kept);
        }
        assert_eq!((receiving, lent), (self.spare.receiving, self.spare.lent), "arguments that are arriving");
        for (place, (kept, conversations, arriving)) in &of_hosts {
            let host = self.hosts.at(*place);
            let of_host = Kept::ALL.map(|kind| self.hosts.kept(*place, kind));
            assert_eq!(
                (&of_host[..], host.conversations, host.arriving),
                (&kept[..of_host.len()], *conversations, *arriving),
                "a host"
            );
        }
        assert_eq!(self.hosts.audit(), (of_hosts.len(), total), "all hosts");
    }
}

fn add(sum: &mut Amounts, more: &Amounts) {
    sum.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
}
