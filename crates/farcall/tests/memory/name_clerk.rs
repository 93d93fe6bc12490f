//! The segment name service: machines are runtimes with registries of their own, whose clerks know one
//! another by address.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use farcall::memory::clerk::{Clerk, Entry, Fault, MAX_NAME, Search, Settings};
use farcall::memory::{self, Beat, Memory, Pulse, Refused, Rights};
use farcall::{Error, Kind, Runtime, names, xdr};
use farcall_memory::clerk::{How, Names};

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
    let (there, home) = machine_with(Settings::default().places(12).most_places(12));
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

/// The three ways of section 4.2: read on, ask at once, and read a few times before asking.
#[test]
fn a_name_among_many_that_collide_is_found_in_each_way() {
    // The table is full, so most names are not in their own slots, and no free slot ends a search.
    const NAMES: u64 = 40;
    let (there, home) = machine_with(Settings::default().places(NAMES as usize).most_places(NAMES as usize));
    let segments: Vec<_> = (0..NAMES)
        .map(|n| there.export_segment(&format!("n{n}"), readable(n as usize + 1)).unwrap())
        .collect();
    for (search, most_reads) in
        [(Search::Read, 6), (Search::Ask, 0), (Search::ReadThenAsk(1), 1), (Search::ReadThenAsk(2), 2)]
    {
        let (_here, clerk) = machine_with(Settings::default().search(search));
        for n in 0..NAMES {
            let before = clerk.reads();
            assert_eq!(clerk.look_up(&format!("n{n}"), Some(home.address())).unwrap().size(), n + 1);
            assert!(clerk.reads() - before <= most_reads, "{search:?}: {} reads", clerk.reads() - before);
        }
        assert_eq!(fault(clerk.look_up("Nothing", Some(home.address()))), Fault::NoSuchName, "{search:?}");
    }
    drop(segments);
}

/// Returns an entry as another process may send it or write it into a table.
fn forged(name: &str, address: &str, generation: u64) -> Entry {
    let address: SocketAddr = address.parse().unwrap();
    let fields = [
        xdr::to_vec(&name.to_owned()).unwrap(),
        xdr::to_vec(&address).unwrap(),
        xdr::to_vec(&generation).unwrap(),
        xdr::to_vec(&64_u64).unwrap(),
        xdr::to_vec(&7_u32).unwrap(),
    ];
    xdr::from_slice(&fields.concat()).unwrap()
}

/// No clerk can make another machine send packets to a third one.
#[test]
fn a_clerk_that_lists_another_machine_is_not_believed() {
    let (_there, home) = machine_with(Settings::default());
    home.add(&forged("Load", "192.0.2.1:7000", 9)).unwrap();
    for search in [Search::Read, Search::Ask, Search::ReadThenAsk(1)] {
        let (here, clerk) = machine_with(Settings::default().search(search));
        let why = fault(clerk.look_up("Load", Some(home.address())));
        assert!(matches!(&why, Fault::Disbelieved(why) if why.contains("another machine")), "{why:?}");
        let why = here.import_segment_at("Load", home.address()).map(drop).unwrap_err();
        assert!(why.to_string().contains("192.0.2.1:7000, which is another machine"), "{why}");
    }
    // An address that is not specified means that of the clerk.
    home.add(&forged("Load", "0.0.0.0:7000", 9)).unwrap();
    let (_here, clerk) = machine_with(Settings::default());
    assert_eq!(clerk.look_up("Load", Some(home.address())).unwrap().url(), "udp://127.0.0.1:7000/Load");
}

#[test]
fn a_table_without_end_costs_a_bounded_number_of_reads() {
    const SLOTS: usize = 600;
    let (_there, home) = machine_with(Settings::default().places(SLOTS).most_places(SLOTS));
    (0..SLOTS).for_each(|n| drop(home.add(&forged(&format!("n{n}"), "127.0.0.1:7", 9))));
    for (search, most_reads) in [(Search::Read, 34), (Search::Ask, 0), (Search::ReadThenAsk(3), 3)] {
        let (_here, clerk) = machine_with(Settings::default().search(search));
        assert_eq!(fault(clerk.look_up("Load", Some(home.address()))), Fault::NoSuchName);
        assert!(clerk.reads() <= most_reads, "{search:?}: {} reads", clerk.reads());
    }
}

/// Two processes of one machine, neither of which has the clerk, and the clerk's address.
fn clients_of_a_clerk() -> (Clerk, Runtime, Runtime) {
    let registry = names::Memory::new();
    let process = || Runtime::builder().registry(registry.clone()).shared_memory(false).build().unwrap();
    (Clerk::start(&process(), Settings::default()).unwrap(), process(), process())
}

/// A process that is not trusted can have the clerk add and delete only what is true.
#[test]
fn a_hostile_client_changes_no_name_of_others() {
    let (clerk, honest, hostile) = clients_of_a_clerk();
    let segment = honest.export_segment("Load", readable(64)).unwrap();
    let (true_entry, address) = (clerk.look_up("Load", None).unwrap(), honest.address().unwrap());
    let names = hostile.import::<dyn Names>(&format!("udp://{}/Names", clerk.address())).unwrap();

    // It exports nothing, and says that it does; or that the name is at its own address.
    for entry in [
        forged("Other", &address.to_string(), 9),
        forged("Load", "127.0.0.1:9", 9),
        forged("Load", "192.0.2.1:7000", 9),
    ] {
        let why = names.add(entry);
        assert!(matches!(why, Err(Error::Declared(Fault::Disbelieved(_)))), "{why:?}");
    }
    assert!(matches!(names.add(forged("a/b", "127.0.0.1:9", 9)), Err(Error::Declared(Fault::NotAName(_)))));
    // It says of another's segment what is not true: the exporter is asked.
    names.add(forged("Load", &address.to_string(), 9)).unwrap();
    assert_eq!(clerk.look_up("Load", None).unwrap().generation(), true_entry.generation());
    assert_eq!(clerk.look_up("Load", None).unwrap().size(), 64);
    // It deletes another's segment.
    assert!(!names.delete("Load", 9).unwrap());
    assert!(!names.delete("Load", true_entry.generation()).unwrap());
    assert_eq!(Some(hostile.import_segment("Load").unwrap().generation()), segment.generation());

    // What is true is done: here the exporter itself has not told the clerk yet.
    clerk.delete("Load", true_entry.generation()).unwrap();
    names.add(forged("Load", &address.to_string(), 9)).unwrap();
    assert_eq!(clerk.look_up("Load", None).unwrap(), clerk.look_up_anew("Load", None).unwrap());
    // Whoever says it first: a segment that was revoked has no name.
    segment.revoke();
    let _ = names.delete("Load", true_entry.generation()).unwrap();
    assert_eq!(kind(hostile.import_segment("Load")), Kind::NoSuchName);
}

/// A process that is not trusted waits for many machines that do not answer. Others are served meanwhile. A
/// process of the clerk's user is known by its calls through shared memory, where there is such.
#[test]
fn a_client_that_has_the_clerk_wait_for_silent_machines_is_bounded() {
    wait_for_silent_machines(false, 8);
    wait_for_silent_machines(true, if cfg!(target_os = "linux") { 0 } else { 8 });
}

fn wait_for_silent_machines(shares_memory: bool, refused: usize) {
    const LOOKUPS: usize = 40;
    let registry = names::Memory::new();
    let process = || Runtime::builder().registry(registry.clone()).shared_memory(shares_memory);
    let impatient = process().patience(Duration::from_secs(2)).build().unwrap();
    let clerk = Clerk::start(&impatient, Settings::default()).unwrap();
    let (honest, hostile) = (process().build().unwrap(), process().build().unwrap());
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let hint = silent.local_addr().unwrap();
    let names = hostile.import::<dyn Names>(&format!("udp://{}/Names", clerk.address())).unwrap();
    let under_way: Vec<_> =
        (0..LOOKUPS).map(|_| names.start().look_up("Load", Some(hint), How::Anew)).collect();

    let segment = honest.export_segment("Load", readable(64)).unwrap();
    assert_eq!(Some(honest.import_segment("Load").unwrap().generation()), segment.generation());
    let faults: Vec<_> = under_way.into_iter().map(|pending| fault(pending.wait())).collect();
    let busy = faults.iter().filter(|fault| **fault == Fault::Busy).count();
    assert_eq!(busy, refused, "{faults:?}");
    assert!(faults.iter().all(|fault| matches!(fault, Fault::Busy | Fault::Silent(_))), "{faults:?}");
}

/// An exporter that a new clerk could not ask is found by a later refresh, and so is one whose deletion the
/// former clerk did not hear of.
#[test]
fn a_refresh_mends_the_table() {
    let (clerk, exporter, importer) = clients_of_a_clerk();
    let lost = exporter.export_segment("Lost", readable(64)).unwrap();
    let over = exporter.export_segment("Over", readable(64)).unwrap();
    let entry = clerk.look_up("Over", None).unwrap();
    clerk.delete("Lost", lost.generation().unwrap()).unwrap();
    over.revoke();
    importer.import_segment("Over").map(drop).unwrap_err();
    clerk.add(&entry).unwrap();
    clerk.refresh();
    assert_eq!(Some(clerk.look_up("Lost", None).unwrap().generation()), lost.generation());
    assert_eq!(fault(clerk.look_up("Over", None)), Fault::NoSuchName);
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

/// The automatic clerk's table has 1,024 slots at first. Clerks of other machines, and other programs of this
/// one, find what they found before, and what was added since.
#[test]
fn a_table_grows_and_every_name_is_found_from_near_and_far() {
    const NAMES: usize = 10_000;
    let there = machine();
    let first = there.export_segment("n0", readable(8)).unwrap();
    let home = Clerk::of_machine(&there).unwrap().expect("the machine's clerk was started");
    let beside = Runtime::builder().registry(there.registry().clone()).shared_memory(false).build().unwrap();
    let (_here, clerk) = machine_with(Settings::default());
    let former = clerk.look_up("n0", Some(home)).unwrap();
    let mut segments = vec![first];
    for n in 1..NAMES {
        segments.push(there.export_segment(&format!("n{n}"), readable(8)).unwrap());
        if n % 1_000 == 0 {
            let name = format!("n{n}");
            assert_eq!(clerk.look_up(&name, Some(home)).unwrap().url(), segments[n].url());
        }
    }
    assert_eq!(clerk.look_up_anew("n0", Some(home)).unwrap(), former);
    let before = clerk.reads();
    for n in (0..NAMES).step_by(7) {
        let entry = clerk.look_up_anew(&format!("n{n}"), Some(home)).unwrap();
        assert_eq!(Some(entry.generation()), segments[n].generation());
    }
    let reads = clerk.reads() - before;
    assert!(reads <= 2 * (NAMES as u64 / 7 + 1), "{reads} reads: most names are in their own slots");
    for n in (0..NAMES).step_by(501) {
        assert_eq!(beside.import_segment(&format!("n{n}")).unwrap().size(), 8);
    }
    let kept = segments.split_off(NAMES - 1);
    drop(segments);
    assert_eq!(fault(clerk.look_up_anew("n0", Some(home))), Fault::NoSuchName);
    assert_eq!(clerk.look_up_anew(&format!("n{}", NAMES - 1), Some(home)).unwrap().url(), kept[0].url());
}

#[test]
fn a_table_that_may_not_grow_any_more_says_how_many_slots_it_has() {
    let (machine, _clerk) = machine_with(Settings::default().places(1).most_places(8));
    let segments: Vec<_> =
        (0..8).map(|n| machine.export_segment(&format!("n{n}"), readable(8)).unwrap()).collect();
    let why = machine.export_segment("one-more", readable(8)).map(drop).unwrap_err();
    assert!(why.to_string().contains("table of 8 slots has no room"), "{why}");
    drop(segments);
    machine.export_segment("one-more", readable(8)).unwrap();
}
