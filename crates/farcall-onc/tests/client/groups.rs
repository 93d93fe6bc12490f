//! Tests of group calls whose members are reached in different ways: by ONC RPC over streams and datagrams,
//! by farcall's own protocol, and within this process.

use std::future::Future;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crate::common::{Echo, EchoClient, tcp};
use farcall::multi::{Fixed, Next, Outcome};
use farcall::{Group, Kind, Runtime};
use farcall_onc::{Client, Server};

/// The server of the member with this number. `next` adds the member's number to its argument. `again(n)`
/// waits until `let_go` has been called more than `n` times, but member 0 returns at once.
struct Adds(u32);

/// The number of calls of `let_go`.
static ROUNDS: (Mutex<u32>, Condvar) = (Mutex::new(0), Condvar::new());

fn let_go() {
    *ROUNDS.0.lock().unwrap() += 1;
    ROUNDS.1.notify_all();
}

impl Echo for Adds {
    fn null(&self) -> farcall::Result<()> {
        Ok(())
    }

    fn echo(&self, data: &[u8]) -> farcall::Result<Vec<u8>> {
        Ok(data.to_vec())
    }

    fn again(&self, number: u32) -> farcall::Result<u32> {
        let mut rounds = ROUNDS.0.lock().unwrap();
        while self.0 > 0 && *rounds <= number {
            rounds = ROUNDS.1.wait(rounds).unwrap();
        }
        Ok(self.0)
    }

    fn next(&self, number: u32) -> farcall::Result<u32> {
        Ok(number + self.0)
    }
}

fn onc(number: u32) -> Server {
    let builder = Server::builder().program::<dyn Echo>(Arc::new(Adds(number)));
    builder.address("127.0.0.1:0".parse().unwrap()).start().unwrap()
}

fn client(address: &str) -> EchoClient {
    Client::connect(address).unwrap().bind::<dyn Echo>()
}

/// Returns the members with their numbers, and a value that keeps their servers alive.
fn members() -> (impl Sized, Vec<(EchoClient, u32)>) {
    let runtime = Runtime::builder().registry(farcall::names::Memory::new()).build().unwrap();
    let servers = [onc(1), onc(2), onc(3)];
    let export = runtime.export::<dyn Echo>("Echo", Arc::new(Adds(4))).unwrap();
    let shared = Client::connect(&format!("tcp://{}", servers[2].tcp().unwrap())).unwrap();
    let members = vec![
        (client(&format!("tcp://{}", servers[0].tcp().unwrap())), 1),
        (client(&format!("udp://{}", servers[1].udp().unwrap())), 2),
        // Two members share one connection.
        (shared.bind::<dyn Echo>(), 3),
        (shared.bind::<dyn Echo>(), 3),
        (runtime.import::<dyn Echo>("Echo").unwrap(), 4),
        (farcall::stub::local::<dyn Echo>(Arc::new(Adds(5))), 5),
    ];
    ((servers, export, runtime), members)
}

fn group(members: &[(EchoClient, u32)]) -> Group<EchoClient, Fixed> {
    Group::of(
        members
            .iter()
            .enumerate()
            .map(|(place, (member, number))| (format!("{place}: {number}"), member.clone())),
    )
}

fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn every_member_answers_in_any_order_of_the_members() {
    let (_kept, mut members) = members();
    for _ in 0..members.len() {
        members.rotate_left(1);
        let group = group(&members);
        let expected = |n: u32| -> Vec<u32> { members.iter().map(|(_, number)| number + n).collect() };
        for n in 0..50 {
            let all = group.multi().next(n).all();
            assert_eq!(all.results().map(|(_, sum)| *sum).collect::<Vec<_>>(), expected(n));
            let all = block_on(group.multi().next(n).start().all());
            assert_eq!(all.results().map(|(_, sum)| *sum).collect::<Vec<_>>(), expected(n));
            let long = group.multi().echo(&[n as u8; 50_000]).all();
            assert!(long.results().all(|(_, bytes)| *bytes == [n as u8; 50_000]));
            assert_eq!(long.results().count(), members.len(), "{long:?}");
        }
    }
}

#[test]
fn every_member_is_usable_after_a_group_call_stops_early() {
    let (_kept, mut members) = members();
    for _ in 0..members.len() {
        members.rotate_left(1);
        let group = group(&members);
        for round in 0..200u32 {
            let mut seen = 0;
            let outcomes = group.multi().next(round).each(|reply| {
                assert_eq!(reply.result.unwrap(), members[reply.index].1 + round);
                seen += 1;
                if seen < 2 {
                    return Next::Continue;
                }
                // In every other round, waits until the other replies have arrived. Each member sends them
                // before it answers these calls.
                if round % 2 == 0 {
                    members.iter().for_each(|(member, _)| drop(member.null()));
                }
                Next::Stop
            });
            assert_eq!(outcomes.results().count(), 2);
            for (member, number) in &members {
                assert_eq!(member.next(1).unwrap(), number + 1);
            }
        }
    }
}

#[test]
fn a_slow_member_delays_no_group_call_and_a_broken_member_fails_alone() {
    let (_kept, mut members) = members();
    members.push((farcall::stub::local::<dyn Echo>(Arc::new(Adds(0))), 0));
    for round in 0..members.len() as u32 {
        members.rotate_left(1);
        let (who, _) = group(&members).multi().again(round).first().unwrap();
        assert!(who.ends_with(": 0"), "{who}");
        let short =
            group(&members).multi().again(round).within(Duration::from_millis(20)).quorum(2).unwrap_err();
        let abandoned = |outcome: &Outcome<(), ()>| matches!(outcome, Outcome::Abandoned(_));
        assert!(short.counted() <= 1, "{short}");
        assert!(
            short.outcomes().iter().filter(|(_, outcome)| abandoned(outcome)).count() >= members.len() - 1
        );
        let_go();
    }
    // One member accepts each connection and ends it at once.
    members.push((client(&tcp(|_, stream| drop(stream))), 9));
    members.rotate_right(1);
    let all = group(&members).multi().next(0).all();
    assert_eq!(all.results().count(), members.len() - 1);
    assert!(all.failures().all(|(who, why)| who == "0: 9" && why.kind() == Kind::Unreachable), "{all:?}");
}
