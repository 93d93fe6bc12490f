//! Members that hang keep no other member from answering, by a socket with the receive buffer that Linux
//! gives if nobody has set more.
//!
//! The members hang until a test has what it waits for, so a call that their hanging holds up never ends. No
//! test measures how long that takes: on a busy machine it is long. (`farcall-sim/tests/simulation/
//! hung_members.rs` does, in virtual time.)

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crate::common::{block_on, builder};
use farcall::multi::Fixed;
use farcall::{Export, Group, Runtime};

#[farcall::interface]
trait Member {
    /// Returns this many bytes.
    #[blocking]
    fn work(&self, bytes: u32) -> farcall::Result<Vec<u8>>;
}

/// The bytes that Linux gives a socket's buffer if nobody has set more.
const STOCK_BUFFER: usize = 212_992;

/// Members that hang until this is opened, or until as many calls have come as it awaits.
#[derive(Default)]
struct Gate {
    come: Mutex<usize>,
    changed: Condvar,
}

impl Gate {
    fn open(&self) {
        *self.come.lock().unwrap() = usize::MAX / 2;
        self.changed.notify_all();
    }

    fn pass(&self, awaited: usize) {
        let mut come = self.come.lock().unwrap();
        *come += 1;
        self.changed.notify_all();
        drop(self.changed.wait_while(come, |come| *come < awaited).unwrap());
    }
}

/// Opens a gate when it is dropped, so that a test which fails ends.
struct Opens(Arc<Gate>);

impl Drop for Opens {
    fn drop(&mut self) {
        self.0.open();
    }
}

struct Server {
    gate: Arc<Gate>,
    /// How many calls it waits for before it answers.
    awaited: usize,
}

impl Member for Server {
    fn work(&self, bytes: u32) -> farcall::Result<Vec<u8>> {
        self.gate.pass(self.awaited);
        Ok(vec![7; bytes as usize])
    }
}

/// A group of members, each of which waits for as many calls as `awaited` says of its index, and the members'
/// runtimes.
struct Members {
    group: Group<MemberClient, Fixed>,
    _open: Opens,
    _exports: Vec<Export>,
    _runtimes: Vec<Runtime>,
}

fn members(count: usize, awaited: impl Fn(usize) -> usize) -> Members {
    let gate = Arc::new(Gate::default());
    let local = || builder().shared_memory(false).address("127.0.0.1:0".parse().unwrap());
    let runtimes: Vec<Runtime> = (0..count).map(|_| local().workers(1).build().unwrap()).collect();
    let server = |index: usize| Arc::new(Server { gate: gate.clone(), awaited: awaited(index) });
    let exports: Vec<Export> = runtimes
        .iter()
        .enumerate()
        .map(|(index, runtime)| runtime.export::<dyn Member>("Member", server(index)).unwrap())
        .collect();
    let client = local().socket_buffer(STOCK_BUFFER).build().unwrap();
    let urls: Vec<String> = exports.iter().map(Export::url).collect();
    let urls: Vec<&str> = urls.iter().map(|url| &**url).collect();
    let group = client.import_each::<dyn Member>(&urls).unwrap();
    Members { group, _open: Opens(gate), _exports: exports, _runtimes: runtimes }
}

/// The first `hung` members wait until the gate is opened.
fn with_hung(count: usize, hung: usize) -> Members {
    members(count, |index| if index < hung { usize::MAX / 4 } else { 0 })
}

/// A test fails that has waited for this long. No machine is that slow.
const NEVER: Duration = Duration::from_secs(600);

#[test]
fn all_others_of_101_answer_by_60_kb_while_seven_hang() {
    let members = with_hung(101, 7);
    let call = || members.group.multi().work(60_000).within(NEVER);
    for _ in 0..5 {
        assert_eq!(call().quorum(94).expect("94 are well").results().count(), 94);
        let started = block_on(call().start().quorum(94));
        assert_eq!(started.expect("94 are well").results().count(), 94);
        assert!(call().majority().expect("94 are well").results().count() >= 51);
    }
}

#[test]
fn thirty_of_31_answer_by_a_mebibyte_while_one_hangs() {
    let members = with_hung(31, 1);
    for _ in 0..3 {
        let all = members.group.multi().work(1 << 20).within(NEVER).quorum(30);
        assert_eq!(all.expect("30 are well").results().count(), 30);
    }
}

/// More members than the buffer has room for answer only when all of them have been called.
#[test]
fn as_many_members_as_there_are_work_at_the_same_time() {
    const MEMBERS: usize = 260;
    const { assert!(MEMBERS > STOCK_BUFFER / 1024) };
    let together = members(MEMBERS, |_| MEMBERS);
    let all = together.group.multi().work(4).within(NEVER).all();
    assert_eq!(all.results().count(), MEMBERS);
    let together = members(MEMBERS, |_| MEMBERS);
    let all = block_on(together.group.multi().work(4).within(NEVER).start().all());
    assert_eq!(all.results().count(), MEMBERS);
}
