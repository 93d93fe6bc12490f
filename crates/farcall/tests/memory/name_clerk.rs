//! The segment name service: machines are runtimes with registries of their own, whose clerks know one
//! another by address.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use farcall::memory::clerk::{Clerk, Fault, MAX_NAME, Settings};
use farcall::memory::{self, Beat, Memory, Pulse, Refused, Rights};
use farcall::{Error, Kind, Runtime, names};

/// Returns a machine of its own: it shares neither a registry nor memory with others.
fn machine() -> Runtime {
    Runtime::builder().registry(names::Memory::new()).shared_memory(false).build().unwrap()
}

/// Returns a machine of its own, and its clerk.
fn machine_with(settings: Settings) -> (Runtime, Clerk) {
    let runtime = machine();
    let clerk = Clerk::start(&runtime, settings).unwrap();
    (runtime, clerk)
}

fn readable(size: usize) -> memory::Settings {
    memory::Settings::new(size).anyone(Rights::READ)
}

fn fault<T>(outcome: farcall::Result<T, Fault>) -> Fault {
    match outcome {
        Err(Error::Declared(fault)) => fault,
        Err(Error::CallFailed(why)) => panic!("{why}"),
        Ok(_) => panic!("it was done"),
    }
}

fn kind<T>(outcome: farcall::Result<T>) -> Kind {
    outcome.map(drop).unwrap_err().call_failed().unwrap().kind()
}

#[test]
fn a_machine_finds_its_own_segments_by_name() {
    let machine = machine();
    let segment = machine.export_segment("Load", readable(64)).unwrap();
    segment.store(8, 7).unwrap();
    let remote = machine.import_segment("Load").unwrap();
    assert_eq!((remote.load(8).unwrap(), remote.generation()), (7, segment.generation().unwrap()));
    // This is another process of the same machine.
    let beside =
        Runtime::builder().registry(machine.registry().clone()).shared_memory(false).build().unwrap();
    assert_eq!(beside.import_segment("Load").unwrap().load(8).unwrap(), 7);
    let more = beside.export_segment("More", readable(64)).unwrap();
    machine.import_segment("More").unwrap();
    drop(more);
    assert_eq!(kind(beside.import_segment_anew("More", None)), Kind::NoSuchName);
    drop(segment);
    assert_eq!(kind(machine.import_segment("Load")), Kind::NoSuchName);
}

#[test]
fn a_look_up_elsewhere_is_one_read_and_none_the_next_time() {
    let (there, home) = machine_with(Settings::default());
    let (here, clerk) = machine_with(Settings::default());
    let segment = there.export_segment("Load", readable(64)).unwrap();
    segment.store(0, 42).unwrap();

    let entry = clerk.look_up("Load", Some(home.address())).unwrap();
    assert_eq!((entry.name(), entry.size(), entry.rights()), ("Load", 64, Rights::READ));
    assert_eq!((entry.url(), Some(entry.generation())), (segment.url(), segment.generation()));
    assert_eq!(clerk.reads(), 1);
    assert_eq!(clerk.look_up("Load", Some(home.address())).unwrap(), entry);
    assert_eq!(clerk.look_up("Load", None).unwrap(), entry);
    assert_eq!(clerk.reads(), 1);
    assert_eq!(clerk.look_up_anew("Load", Some(home.address())).unwrap(), entry);
    assert_eq!(clerk.reads(), 2);
    assert_eq!(fault(clerk.look_up("Nothing", Some(home.address()))), Fault::NoSuchName);
    assert_eq!(clerk.reads(), 3);

    let remote = here.import_segment_at("Load", home.address()).unwrap();
    assert_eq!((remote.load(0).unwrap(), clerk.reads()), (42, 3));
}

#[test]
fn machines_may_export_the_same_name() {
    let (there, home) = machine_with(Settings::default());
    let (here, clerk) = machine_with(Settings::default());
    let far = there.export_segment("Load", readable(64)).unwrap();
    let near = here.export_segment("Load", readable(64)).unwrap();
    far.store(0, 1).unwrap();
    near.store(0, 2).unwrap();
    assert_eq!(here.import_segment_at("Load", home.address()).unwrap().load(0).unwrap(), 1);
    assert_eq!(here.import_segment_at("Load", clerk.address()).unwrap().load(0).unwrap(), 2);
    assert_eq!(here.import_segment("Load").unwrap().load(0).unwrap(), 2);
    assert_eq!(there.import_segment_at("Load", clerk.address()).unwrap().load(0).unwrap(), 2);
}

#[test]
fn names_that_collide_are_found_also_from_afar() {
    let (there, home) = machine_with(Settings::default().places(12));
    let (_here, clerk) = machine_with(Settings::default());
    let segments: Vec<_> =
        (0..12).map(|n| there.export_segment(&format!("n{n}"), readable(n + 1)).unwrap()).collect();
    for n in 0..12 {
        assert_eq!(clerk.look_up(&format!("n{n}"), Some(home.address())).unwrap().size(), n + 1);
    }
    assert!(clerk.reads() <= 4 * 12, "{} reads", clerk.reads());
    assert_eq!(kind(there.export_segment("one-more", readable(8))), Kind::Overloaded);
    drop(segments);
    there.export_segment("one-more", readable(8)).unwrap();
}

#[test]
fn a_clerk_that_is_asked_answers() {
    let (there, home) = machine_with(Settings::default());
    let (_here, clerk) = machine_with(Settings::default());
    let segment = there.export_segment("Load", readable(64)).unwrap();
    for _ in 0..3 {
        let entry = clerk.look_up_asking("Load", home.address()).unwrap();
        assert_eq!((entry.url(), Some(entry.generation())), (segment.url(), segment.generation()));
        assert_eq!(fault(clerk.look_up_asking("Nothing", home.address())), Fault::NoSuchName);
    }
    assert_eq!(clerk.reads(), 0);
    std::thread::scope(|threads| {
        for _ in 0..8 {
            threads
                .spawn(|| (0..20).for_each(|_| drop(clerk.look_up_asking("Load", home.address()).unwrap())));
        }
    });
}

#[test]
fn after_a_refresh_what_is_stale_fails_at_the_source() {
    let (there, home) = machine_with(Settings::default());
    let (here, clerk) = machine_with(Settings::default());
    let segment = there.export_segment("Load", readable(64)).unwrap();
    let former = here.import_segment_at("Load", home.address()).unwrap();
    let lasting = there.export_segment("Lasting", readable(64)).unwrap();
    let kept = here.import_segment_at("Lasting", home.address()).unwrap();
    segment.export_again();

    // A clerk believes what it learnt until an import shows that it is wrong; then the clerk looks the name
    // up again.
    let stale = clerk.look_up("Load", Some(home.address())).unwrap();
    assert_eq!(stale.generation(), former.generation());
    assert_eq!(former.load(0), Err(Refused::Stale.into()));
    let remote = here.import_segment_at("Load", home.address()).unwrap();
    assert_eq!(Some(remote.generation()), segment.generation());

    segment.export_again();
    clerk.refresh();
    let known = clerk.look_up("Load", Some(home.address())).unwrap();
    assert_eq!(Some(known.generation()), segment.generation());
    drop((segment, there));
    // The clerk asks no other clerk about this segment any more.
    assert_eq!(remote.load(0), Err(Refused::Stale.into()));
    assert_eq!(kept.load(0).unwrap(), 0);
    drop(lasting);
    clerk.refresh();
    assert_eq!(kept.load(0), Err(Refused::Stale.into()));
    assert_eq!(fault(clerk.look_up("Lasting", Some(home.address()))), Fault::NoSuchName);
}

#[test]
fn a_segment_that_is_revoked_has_no_name_until_it_is_exported_again() {
    let machine = machine();
    let segment = machine.export_segment("Load", readable(64)).unwrap();
    segment.revoke();
    assert_eq!(kind(machine.import_segment("Load")), Kind::NoSuchName);
    segment.export_again();
    assert_eq!(Some(machine.import_segment("Load").unwrap().generation()), segment.generation());
}

#[test]
fn names_that_are_none_are_refused() {
    let machine = machine();
    let long = "x".repeat(MAX_NAME);
    machine.export_segment(&long, readable(8)).unwrap();
    for name in [&format!("{long}x"), "", "a/b", "a b", "clerk", "clerk-post", "udp://127.0.0.1:7/Load"] {
        assert_eq!(kind(machine.export_segment(name, readable(8))), Kind::NoSuchName, "{name:?}");
    }
    let segment = machine.export_segment("Load", readable(8)).unwrap();
    let why = machine.import_segment(&format!("{long}x")).map(drop).unwrap_err().to_string();
    assert_eq!(why, "no such name: a segment's name has at most 64 bytes, this one 65");
    drop(segment);
}

#[test]
fn a_machine_whose_clerk_is_gone_gets_another() {
    let registry = names::Memory::new();
    let process = || Runtime::builder().registry(registry.clone()).shared_memory(false).build().unwrap();
    let (first, second) = (process(), process());
    let clerk = Clerk::start(&first, Settings::default()).unwrap();
    let segment = second.export_segment("Load", readable(64)).unwrap();
    second.import_segment("Load").unwrap();
    drop((clerk, first));
    // This process's own clerk has found out what is exported.
    let third = process();
    assert_eq!(Some(third.import_segment("Load").unwrap().generation()), segment.generation());
    let _more = second.export_segment("More", readable(64)).unwrap();
    third.import_segment("More").unwrap();
}

#[test]
fn nobody_elsewhere_writes_a_table() {
    let (there, home) = machine_with(Settings::default());
    let _segment = there.export_segment("Load", readable(64)).unwrap();
    let table = machine().import_segment(&format!("udp://{}/clerk", home.address())).unwrap();
    assert_eq!(table.rights(), Rights::READ);
    assert_eq!(table.write(0, &[0; 8]), Err(Refused::NotPermitted.into()));
}

/// A process that may write the mailbox writes anything there, and proper requests are answered nevertheless.
#[test]
fn letters_that_no_clerk_wrote_harm_nobody() {
    let (there, home) = machine_with(Settings::default());
    let (here, clerk) = machine_with(Settings::default());
    let segment = there.export_segment("Load", readable(64)).unwrap();
    let post = here.import_segment(&format!("udp://{}/clerk-post", home.address())).unwrap();
    for round in 0..200_u64 {
        let letter: Vec<u8> = (0..64).map(|n| (round * 31 + n * n) as u8).collect();
        post.write_notify(round * 41 % (post.size() - 64), &letter).unwrap();
    }
    post.write_notify(0, &vec![0xff; post.size() as usize]).unwrap();
    post.flush().unwrap();
    let entry = clerk.look_up_asking("Load", home.address()).unwrap();
    assert_eq!(Some(entry.generation()), segment.generation());
}

#[test]
fn a_hint_at_which_there_is_no_clerk_says_so() {
    let (_here, clerk) = machine_with(Settings::default());
    // This machine exports, but no segments.
    let other = machine();
    let _export = other.export::<dyn Idle>("Idle", Arc::new(Nobody)).unwrap();
    let hint: SocketAddr = other.address().unwrap();
    assert!(
        matches!(fault(clerk.look_up("Load", Some(hint))), Fault::Silent(why) if why.contains("not exported"))
    );
    assert!(matches!(fault(clerk.look_up_asking("Load", hint)), Fault::Silent(_)));
}

#[farcall::interface]
trait Idle {
    fn rest(&self) -> farcall::Result<()>;
}

struct Nobody;

impl Idle for Nobody {
    fn rest(&self) -> farcall::Result<()> {
        Ok(())
    }
}

#[test]
fn who_is_watched_lives_while_its_counter_moves() {
    const EVERY: Duration = Duration::from_millis(5);
    let (there, here) = (machine(), machine());
    let segment = Arc::new(there.export_segment("Load", readable(64)).unwrap());
    let import = || here.import_segment(&segment.url()).unwrap();
    let beat = Beat::start(&there, segment.clone(), 56, EVERY).unwrap();
    let patient = Pulse::watch(&here, import(), 56, EVERY, Duration::from_secs(3600)).unwrap();
    let watched = Pulse::watch(&here, import(), 56, EVERY, Duration::from_millis(200)).unwrap();
    patient.check().unwrap();

    drop(beat);
    let why = watched.wait();
    assert_eq!(why.kind(), Kind::Unreachable);
    assert!(why.detail().contains("has not changed"), "{why}");
    patient.check().unwrap();
    segment.export_again();
    assert_eq!(patient.wait().kind(), Kind::NotExported);
    assert_eq!(kind(patient.check()), Kind::NotExported);

    assert_eq!(kind(Pulse::watch(&here, import(), 60, EVERY, EVERY)), Kind::NotPermitted);
    assert_eq!(kind(Beat::start(&there, segment.clone(), 60, EVERY)), Kind::NotPermitted);
}
