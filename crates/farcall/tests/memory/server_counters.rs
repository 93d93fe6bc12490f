//! The counters of a server, read from its memory.

use std::sync::{Arc, Condvar, Mutex};

use farcall::memory::{Counters, Memory, Rights, Settings};
use farcall::{Export, Kind, Pending, Runtime};

#[farcall::interface]
pub trait Door {
    /// Returns when the door is opened.
    fn pass(&self) -> farcall::Result<()>;

    fn knock(&self, hard: bool) -> farcall::Result<u32, String>;
}

#[derive(Default)]
struct Shut {
    open: Mutex<bool>,
    opened: Condvar,
}

impl Door for Shut {
    fn pass(&self) -> farcall::Result<()> {
        drop(self.opened.wait_while(self.open.lock().unwrap(), |open| !*open));
        Ok(())
    }

    fn knock(&self, hard: bool) -> farcall::Result<u32, String> {
        if hard { Err("ouch".to_owned().into()) } else { Ok(7) }
    }
}

fn builder() -> farcall::Builder {
    Runtime::builder().registry(farcall::names::Memory::new()).shared_memory(false)
}

fn export(runtime: &Runtime, door: &Arc<Shut>) -> Export {
    runtime.export::<dyn Door>("Door/front", door.clone()).unwrap()
}

#[test]
fn others_read_what_a_server_counts() {
    let (runtime, door) = (builder().build().unwrap(), Arc::new(Shut::default()));
    let exported = export(&runtime, &door);
    let importer = builder().build().unwrap();
    let client: DoorClient = importer.import::<dyn Door>(&exported.url()).unwrap();
    for hard in [false, false, true] {
        let _ = client.knock(hard);
    }
    let counters = Counters::import(&importer, exported.address()).unwrap();
    // A call's result leaves before the call is over.
    let over = |serving: &farcall::stats::Serving| serving.exports.iter().all(|export| export.running == 0);
    let serving = std::iter::repeat_with(|| counters.read().unwrap()).find(over).unwrap();
    assert_eq!((serving.process, serving.exports.len(), serving.untold), (std::process::id(), 1, 0));
    let [export] = &serving.exports[..] else { unreachable!() };
    assert_eq!((&export.name[..], export.running), ("Door/front", 0));
    let names: Vec<&str> = export.procedures.iter().map(|procedure| &*procedure.name).collect();
    assert_eq!(names, ["pass", "knock"]);
    let knock = &export.procedures[1];
    assert_eq!((knock.results, knock.exceptions, knock.failures, knock.ran.count()), (2, 1, 0, 3));
    assert!(serving.protocol.calls >= 3 && serving.protocol.received >= 3 && serving.conversations == 1);
    client.knock(false).unwrap();
    assert_eq!(counters.read().unwrap().exports[0].procedures[1].results, 3);
}

#[test]
fn a_call_of_them_that_is_no_access_is_answered() {
    let (runtime, door) = (builder().build().unwrap(), Arc::new(Shut::default()));
    let exported = export(&runtime, &door);
    let importer = builder().build().unwrap();
    let url = exported.url().replace("Door/front", "Memory/counters");
    assert_ne!(url, exported.url());
    let described = farcall::dynamic::describe(&importer, &url).unwrap();
    assert_eq!(described.interface.name, "Access");
}

#[test]
fn a_server_without_keys_shows_its_level_and_no_conversations() {
    let (runtime, door) = (builder().build().unwrap(), Arc::new(Shut::default()));
    let exported = export(&runtime, &door);
    let importer = builder().build().unwrap();
    importer.import::<dyn Door>(&exported.url()).unwrap().knock(false).unwrap();
    let within = std::time::Duration::from_secs(60);
    let shown = farcall::dynamic::conversations(&importer, exported.address(), within).unwrap();
    assert_eq!((shown.level.word(), shown.identity, shown.untold), ("open", None, 0));
    assert_eq!(shown.conversations, []);
}

#[test]
fn they_are_read_while_every_thread_is_stuck_in_a_procedure() {
    let runtime = builder().workers(3).threads(4).queue(2).build().unwrap();
    let door = Arc::new(Shut::default());
    let exported = export(&runtime, &door);
    let importer = builder().build().unwrap();
    let client: DoorClient = importer.import::<dyn Door>(&exported.url()).unwrap();
    let calls: Vec<Pending<()>> = (0..5).map(|_| client.start().pass()).collect();
    let refused = client.pass().unwrap_err();
    assert!(matches!(refused, farcall::Error::CallFailed(why) if why.kind() == Kind::Overloaded));

    // This client has not met the server before, and can make no call of it now.
    let counters = Counters::import(&builder().build().unwrap(), exported.address()).unwrap();
    let serving = counters.read().unwrap();
    assert_eq!((serving.executing, serving.queued), (3, 2));
    assert_eq!(serving.exports[0].running, 5);

    *door.open.lock().unwrap() = true;
    door.opened.notify_all();
    calls.into_iter().for_each(|call| call.wait().unwrap());
    assert_eq!(counters.read().unwrap().exports[0].procedures[0].results, 5);
}

#[test]
fn they_are_read_through_shared_memory_too() {
    let registry = || Runtime::builder().registry(farcall::names::Memory::new());
    let (runtime, door) = (registry().build().unwrap(), Arc::new(Shut::default()));
    let exported = export(&runtime, &door);
    let importer = registry().build().unwrap();
    let client: DoorClient = importer.import::<dyn Door>(&exported.url()).unwrap();
    let counters = Counters::import(&importer, exported.address()).unwrap();
    for knocks in 1..100 {
        client.knock(false).unwrap();
        assert_eq!(counters.read().unwrap().exports[0].procedures[1].results, knocks);
    }
}

#[test]
fn what_does_not_read_them_has_nothing_written_down() {
    let registry = || Runtime::builder().registry(farcall::names::Memory::new());
    let (runtime, door) = (registry().build().unwrap(), Arc::new(Shut::default()));
    let exported = export(&runtime, &door);
    let importer = registry().build().unwrap();
    let client: DoorClient = importer.import::<dyn Door>(&exported.url()).unwrap();
    client.knock(false).unwrap();
    let name = exported.url().replace("Door/front", "Memory/counters");
    let segment = importer.import_segment(&format!("udp://{}/counters", exported.address())).unwrap();
    let writings = || segment.load(0).unwrap();
    let (step, before) = loop {
        // Readings that come together see the same counters.
        let (first, second) = (writings(), writings());
        if second > first {
            break (second - first, second);
        }
    };
    (0..50).for_each(|_| drop(farcall::dynamic::describe(&importer, &name).unwrap()));
    // A repeated reading has the server write its counters again.
    assert!(writings() - before < 25 * step);
}

#[test]
fn a_server_that_says_nothing_of_itself_has_none() {
    let (runtime, door) = (builder().describe(false).build().unwrap(), Arc::new(Shut::default()));
    let exported = export(&runtime, &door);
    let why = Counters::import(&builder().build().unwrap(), exported.address()).unwrap_err();
    assert!(matches!(why, farcall::Error::CallFailed(why) if why.kind() == Kind::NotExported));
}

#[test]
fn others_may_only_read_them_and_nobody_takes_their_name() {
    let (runtime, door) = (builder().build().unwrap(), Arc::new(Shut::default()));
    let exported = export(&runtime, &door);
    let remote =
        builder().build().unwrap().import_segment(&format!("udp://{}/counters", exported.address())).unwrap();
    assert_eq!(remote.rights(), Rights::READ);
    assert!(remote.store(0, 1).is_err());
    assert!(runtime.export_segment("counters", Settings::new(8)).is_err());
}
