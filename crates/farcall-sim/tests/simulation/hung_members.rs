//! Tests that members of a group that hang hold no room, neither in the caller's socket buffer nor on the
//! path by which replies come: the others are called and answer, however long their results are.

use std::sync::Arc;
use std::time::Duration;

use farcall::multi::Fixed;
use farcall::{Group, Runtime};
use farcall_sim::{Sim, check, sim};

#[farcall::interface]
trait Member {
    fn work(&self, bytes: u32) -> farcall::Result<Vec<u8>>;
}

struct Server(Duration);

impl Member for Server {
    fn work(&self, bytes: u32) -> farcall::Result<Vec<u8>> {
        sim::sleep(self.0);
        Ok(vec![7; bytes as usize])
    }
}

/// The bytes that a Linux machine gives a socket's buffer if nobody has set more.
const STOCK_BUFFER: usize = 212_992;

/// A group whose first `hung` members answer no call for an hour, and the others after `takes`.
fn members(
    sim: &Sim,
    count: usize,
    hung: usize,
    takes: Duration,
) -> farcall::Result<Group<MemberClient, Fixed>> {
    for which in 0..count {
        let name = format!("Member/m{which:04}");
        let takes = if which < hung { Duration::from_secs(3600) } else { takes };
        sim.server(&name.clone(), move || {
            farcall::export::<dyn Member>(&name, Arc::new(Server(takes)))?.wait()
        });
    }
    let client = Runtime::builder().socket_buffer(STOCK_BUFFER).build()?;
    let group = client.import_all::<dyn Member>("Member")?.fixed();
    // The caller has seen how long results are, and every member is bound.
    let first = group.multi_each(|index, _, member| match index < hung {
        true => farcall::multi::Prepared::omitted(),
        false => member.work(0),
    });
    assert_eq!(first.all().results().count(), count - hung);
    Ok(group)
}

const SOON: Duration = Duration::from_secs(2);

#[test]
fn all_of_301_but_seven_that_hang_answer_soon() {
    check(2, |sim| {
        // More members than are called before the first reply shows how long results are.
        let group = members(sim, 301, 7, Duration::ZERO)?;
        let majority = group.multi().work(60_000).within(SOON).majority().expect("294 are well");
        assert!(majority.results().count() >= 151);
        let all = group.multi().work(60_000).within(SOON).all();
        assert_eq!(all.results().count(), 294);
        Ok::<(), farcall::Error>(())
    });
}

/// A caller that awaits the replies has no thread that would look whether there is room.
#[test]
fn all_but_seven_that_hang_answer_a_caller_that_awaits_them_soon() {
    check(2, |sim| {
        let group = members(sim, 301, 7, Duration::ZERO)?;
        let begun = sim::now();
        let majority = sim::block_on(group.multi().work(60_000).within(SOON).start().majority());
        assert!(majority.expect("294 are well").results().count() >= 151);
        assert!(sim::now() - begun < SOON);
        let all = sim::block_on(group.multi().work(60_000).within(SOON).start().all());
        assert_eq!(all.results().count(), 294);
        Ok::<(), farcall::Error>(())
    });
}

#[test]
#[cfg(feature = "soak")]
fn the_simulation_would_notice_that_members_that_hang_hold_room() {
    check(1, |sim| {
        let group = members(sim, 301, 7, Duration::ZERO)?;
        sim.breaks(farcall::driver_mutants::Rule::HungHoldsNoRoom);
        let all = group.multi().work(60_000).within(SOON).all();
        assert!(all.results().count() < 294);
        let started = group.multi().work(60_000).within(SOON).start();
        assert!(sim::block_on(started.all()).results().count() < 294);
        Ok::<(), farcall::Error>(())
    });
}

#[test]
fn the_others_answer_by_more_than_the_buffer_holds_while_one_hangs() {
    check(1, |sim| {
        let group = members(sim, 231, 1, Duration::ZERO)?;
        let all = group.multi().work(STOCK_BUFFER as u32 + 8).within(5 * SOON).all();
        assert_eq!(all.results().count(), 230);
        Ok::<(), farcall::Error>(())
    });
}

#[test]
fn as_many_members_as_there_are_work_at_the_same_time() {
    const SECOND: Duration = Duration::from_secs(1);
    check(1, |sim| {
        let group = members(sim, 500, 0, SECOND)?;
        let begun = sim::now();
        assert_eq!(group.multi().work(4).all().results().count(), 500);
        let took = sim::now() - begun;
        assert!(took < SECOND * 5 / 4, "{took:?}");
        Ok::<(), farcall::Error>(())
    });
}
