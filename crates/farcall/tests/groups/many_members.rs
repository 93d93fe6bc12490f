//! One call to very many members over real sockets, and stopping early, over and over.

use crate::common;
use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use farcall::multi::{Next, Outcome, Rest};
use farcall::names::{Entry, Memory, Registry};
use farcall::{Export, Runtime};

#[farcall::interface]
trait Member {
    fn add(&self, n: u64) -> farcall::Result<u64>;
}

struct Server {
    number: u64,
    calls: Arc<AtomicU64>,
}

impl Member for Server {
    fn add(&self, n: u64) -> farcall::Result<u64> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        Ok(self.number + n)
    }
}

/// Returns a client, and `members` members in `runtimes` runtimes, which have a socket each.
fn cluster(members: u64, runtimes: u64) -> (Runtime, Vec<Export>, Arc<AtomicU64>) {
    let registry = Memory::new();
    let runtime = || {
        let builder = Runtime::builder().registry(registry.clone()).shared_memory(false);
        builder.address("127.0.0.1:0".parse().unwrap()).build().unwrap()
    };
    let servers: Vec<Runtime> = (0..runtimes).map(|_| runtime()).collect();
    let calls = Arc::new(AtomicU64::new(0));
    let export = |number: u64| {
        let server = Server { number, calls: calls.clone() };
        let runtime = &servers[(number % runtimes) as usize];
        runtime.export::<dyn Member>(&format!("Member/m{number:05}"), Arc::new(server)).unwrap()
    };
    let exports = (0..members).map(export).collect();
    (runtime(), exports, calls)
}

/// Raises this process's limit of open files as far as it may. Returns whether it may open `files`.
#[cfg(unix)]
fn may_open(files: u64) -> bool {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    getrlimit(Resource::Nofile).current.is_none_or(|most| most >= files)
}

#[cfg(not(unix))]
fn may_open(_: u64) -> bool {
    true
}

#[test]
fn a_thousand_members_each_answer_each_call() {
    for runtimes in [4, 1000] {
        // The runtimes need as many files for their sockets, and as many again for the rest.
        if !may_open(2 * runtimes) {
            return common::skip("a thousand sockets: this process may not have so many");
        }
        let (client, _exports, calls) = cluster(1000, runtimes);
        let group = client.import_all::<dyn Member>("Member").unwrap();
        for round in 1..=20 {
            let all = group.multi().add(round).all();
            let sum: u64 = all.results().map(|(_, value)| value).sum();
            assert_eq!(
                sum,
                1000 * 999 / 2 + 1000 * round,
                "in {runtimes} runtimes: {:?}",
                all.failures().next()
            );
        }
        assert_eq!(calls.load(Ordering::SeqCst), 20_000, "each was called once each time");
    }
}

#[test]
fn to_stop_after_two_of_five_leaves_every_member_usable_at_once() {
    let (client, _exports, calls) = cluster(5, 5);
    let group = client.import_all::<dyn Member>("Member").unwrap();
    let members: Vec<_> = group.stubs().map(|(_, stub)| stub).collect();
    for round in 0..10_000 {
        // In every second round the caller stops only when the other three members have run the call too, so
        // that their replies are in the socket.
        let queued = round % 2 == 0;
        let rest = if round % 4 < 2 { Rest::Cancel } else { Rest::Finish };
        let before = calls.load(Ordering::SeqCst);
        let mut seen = 0;
        let outcomes = group.multi().add(round).rest(rest).each(|reply| {
            assert_eq!(reply.result.unwrap(), reply.index as u64 + round);
            seen += 1;
            if seen < 2 {
                return Next::Continue;
            }
            // If two replied before all were called, the others never are.
            let all_ran = || calls.load(Ordering::SeqCst) >= before + 5;
            for _ in (0..10_000).take_while(|_| queued && !all_ran()) {
                std::thread::yield_now();
            }
            Next::Stop
        });
        let results = outcomes.iter().filter(|(_, outcome)| matches!(outcome, Outcome::Result(()))).count();
        assert_eq!((seen, results), (2, 2));
        for (number, member) in members.iter().enumerate() {
            assert_eq!(member.add(1).unwrap(), number as u64 + 1, "round {round}");
        }
    }
}

/// Returns the names that servers at this socket were asked for.
fn asked(socket: &UdpSocket) -> BTreeSet<String> {
    let (mut asked, mut datagram) = (BTreeSet::new(), [0; 2048]);
    while let Ok(len) = socket.recv(&mut datagram) {
        let text = String::from_utf8_lossy(&datagram[..len]);
        let names =
            text.match_indices("Member/m").filter_map(|(at, _)| text.get(at..at + "Member/m00000".len()));
        asked.extend(names.map(str::to_owned));
    }
    asked
}

#[test]
fn an_import_of_ten_thousand_binds_nobody_and_a_balancer_of_them_binds_a_hundred() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    let client = Runtime::builder().registry(Memory::new()).shared_memory(false).build().unwrap();
    let publish = |number: u32| {
        let name = format!("m{number:05}");
        let address = socket.local_addr().unwrap().into();
        let entry = Entry::new("Member".parse().unwrap(), name.parse().unwrap(), address, u64::from(number));
        // The runtime's registry signs the entry, if the tests run with keys.
        client.registry().publish(&entry).unwrap()
    };
    let _published: Vec<_> = (0..10_000).map(publish).collect();
    let group = client.import_all::<dyn Member>("Member").unwrap();
    assert_eq!(asked(&socket), BTreeSet::new(), "an import reads the registry only");
    let balancer = group.balancer();
    assert_eq!(balancer.members().len(), 100);
    let names: BTreeSet<String> = balancer.members().iter().map(|member| member.name.to_string()).collect();
    let bound = asked(&socket);
    assert!(!bound.is_empty() && bound.is_subset(&names), "{} were asked", bound.len());
    assert!(balancer.members().iter().all(|member| member.on_this_machine));
}
