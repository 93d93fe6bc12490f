//! What the owner of a registry can do to those that ask it, by answers that no honest registry gives.
#![allow(missing_docs)]

use std::collections::BTreeSet;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farcall::names::{Entry, Label, Listing, Registration, Registry, Result};
use farcall::{Error, Kind, Ran, Runtime};

#[farcall::interface]
trait Store {
    fn number(&self) -> farcall::Result<u64>;
}

struct Server(u64);

impl Store for Server {
    fn number(&self) -> farcall::Result<u64> {
        Ok(self.0)
    }
}

/// A registry whose answers the test chooses, whatever is asked. It keeps what is published.
#[derive(Clone, Default)]
struct Hostile(Arc<Mutex<Answers>>);

#[derive(Default)]
struct Answers {
    version: u64,
    published: Vec<Entry>,
    answer: Vec<Entry>,
}

impl Hostile {
    fn answer(&self, answer: Vec<Entry>) {
        let mut answers = self.0.lock().unwrap();
        (answers.version, answers.answer) = (answers.version + 1, answer);
    }

    fn published(&self) -> Vec<Entry> {
        self.0.lock().unwrap().published.clone()
    }
}

impl Registry for Hostile {
    fn publish(&self, entry: &Entry) -> Result<Registration> {
        self.0.lock().unwrap().published.push(entry.clone());
        Ok(Registration::new(entry.name(), || Ok(true)))
    }

    fn withdraw(&self, _: &Label, _: &Label) -> Result<bool> {
        Ok(true)
    }

    fn instances(&self, _: &Label) -> Result<Vec<Entry>> {
        Ok(self.0.lock().unwrap().answer.clone())
    }

    fn lookup(&self, _: &Label, _: &Label) -> Result<Option<Entry>> {
        Ok(self.0.lock().unwrap().answer.first().cloned())
    }

    fn list(&self) -> Result<Listing> {
        let answers = self.0.lock().unwrap();
        Ok(Listing::new(answers.version, answers.answer.clone()))
    }

    fn version(&self) -> Result<u64> {
        Ok(self.0.lock().unwrap().version)
    }

    fn keeps_deadlines(&self) -> bool {
        true
    }
}

fn label(text: &str) -> Label {
    text.parse().unwrap()
}

fn failure<T>(result: farcall::Result<T>) -> (Kind, Ran) {
    let Err(Error::CallFailed(why)) = result else { panic!("a failure is expected") };
    (why.kind(), why.ran())
}

/// Returns a runtime with such a registry.
fn runtime() -> (Hostile, Runtime) {
    let registry = Hostile::default();
    (registry.clone(), Runtime::builder().registry(registry).build().unwrap())
}

/// Returns so many instances, which a server at this address has never asked for.
fn invented(count: usize, at: SocketAddr) -> Vec<Entry> {
    let address: farcall::names::Address = format!("udp://{at}").parse().unwrap();
    (0..count).map(|which| Entry::new(label("Store"), label(&format!("i{which:05}")), address, 7)).collect()
}

#[test]
fn a_member_that_is_listed_often_is_called_and_counted_once() {
    let (registry, runtime) = runtime();
    let _a = runtime.export::<dyn Store>("Store/a", Arc::new(Server(1))).unwrap();
    let _b = runtime.export::<dyn Store>("Store/b", Arc::new(Server(2))).unwrap();
    let [a, b] = &registry.published()[..] else { panic!("two are published") };
    registry.answer([a, b, a, a, b].map(Entry::clone).to_vec());
    let group = runtime.import_all::<dyn Store>("Store").unwrap();
    let members = |group: &farcall::Group<StoreClient>| {
        let answers = group.multi().number().all();
        answers.into_iter().map(|(member, _)| member.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(members(&group), ["Store/a", "Store/b"]);
    // The group reads the registry again.
    registry.answer([b, b, a].map(Entry::clone).to_vec());
    assert_eq!(members(&group), ["Store/b", "Store/a"]);
}

#[test]
fn an_answer_about_another_name_leads_nobody_there() {
    let (registry, runtime) = runtime();
    let _a = runtime.export::<dyn Store>("Store/a", Arc::new(Server(1))).unwrap();
    let _b = runtime.export::<dyn Store>("Other/b", Arc::new(Server(2))).unwrap();
    let [a, b] = &registry.published()[..] else { panic!("two are published") };
    for answer in [a, b] {
        registry.answer(vec![answer.clone()]);
        assert_eq!(failure(runtime.import::<dyn Store>("Store/main")), (Kind::NoSuchName, Ran::No));
    }
    registry.answer(vec![b.clone(), a.clone()]);
    assert_eq!(runtime.import::<dyn Store>("Store").unwrap().number().unwrap(), 1);
    assert_eq!(runtime.import_all::<dyn Store>("Store").unwrap().multi().number().all().len(), 1);
}

/// An import of a type asked all that the registry listed at once: 20,000 names at one address cost its host
/// 24 MB, and the importer, whose deadline was 100 ms, 51 s.
#[test]
fn a_long_list_makes_an_import_ask_few_servers() {
    let (registry, runtime) = runtime();
    let victim = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = victim.local_addr().unwrap();
    registry.answer(invented(2_000, address));
    let asked = std::thread::scope(|scope| {
        let watching = scope.spawn(|| names_asked(&victim));
        let imported = runtime.import_within::<dyn Store>("Store", Duration::from_millis(100));
        assert_eq!(failure(imported), (Kind::Deadline, Ran::No));
        // The queue of the socket may be full.
        let other = UdpSocket::bind("127.0.0.1:0").unwrap();
        while !watching.is_finished() {
            other.send_to(b"end", address).unwrap();
            std::thread::yield_now();
        }
        watching.join().unwrap()
    });
    assert!((1..=128).contains(&asked.len()), "{} names were asked for", asked.len());
}

/// Receives datagrams until one says that it is the end. Returns the names that the others ask for.
fn names_asked(victim: &UdpSocket) -> BTreeSet<Vec<u8>> {
    let (mut names, mut buffer) = (BTreeSet::new(), [0; 2_000]);
    loop {
        let len = victim.recv(&mut buffer).unwrap();
        if buffer[..len] == *b"end" {
            return names;
        }
        let name = b"Store/i00000";
        let at = buffer[..len].windows(7).position(|some| some == &name[..7]);
        names.extend(at.map(|at| buffer[at..at + name.len()].to_vec()));
    }
}
