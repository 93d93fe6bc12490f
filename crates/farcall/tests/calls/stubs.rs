//! Tests of stubs over the in-process channel: which values cross, which calls are refused, and how failures
//! are reported.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::mpsc;
use std::sync::{Arc, Barrier, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use farcall::stub::{Binding, Interface, local};
use farcall::xdr::{Decoder, Encoder};
use farcall::{Bytes, CallFailed, Error, Kind, Ran, ResultExt};

/// An interface with every kind of argument and result.
#[farcall::interface]
trait Kitchen {
    /// Takes text that borrows from the packet.
    fn text(&self, text: &str) -> farcall::Result<String>;
    /// Takes bytes that borrow from the packet.
    fn opaque(&self, bytes: &[u8]) -> farcall::Result<Vec<u8>>;
    fn lent(&self, dish: &Dish) -> farcall::Result<Dish>;
    fn slice(&self, dishes: &[Dish]) -> farcall::Result<u32>;
    fn owned(&self, dish: Dish, count: u8, more: Option<Box<Dish>>) -> farcall::Result<Vec<Dish>>;
    fn shared(&self, bytes: Bytes) -> farcall::Result<Bytes>;
    fn map(&self, map: &BTreeMap<String, u64>) -> farcall::Result<BTreeMap<String, u64>>;
    fn nothing(&self) -> farcall::Result<()>;
    #[deprecated]
    fn r#type(&self, r#in: u32) -> farcall::Result<u32>;
}

#[derive(Clone, Debug, PartialEq, farcall::Xdr)]
struct Dish {
    #[xdr(max = 8)]
    name: String,
    price: u16,
}

struct Cook;

impl Kitchen for Cook {
    fn text(&self, text: &str) -> farcall::Result<String> {
        Ok(text.to_uppercase())
    }
    fn opaque(&self, bytes: &[u8]) -> farcall::Result<Vec<u8>> {
        Ok(bytes.iter().rev().copied().collect())
    }
    fn lent(&self, dish: &Dish) -> farcall::Result<Dish> {
        Ok(Dish { price: dish.price + 1, ..dish.clone() })
    }
    fn slice(&self, dishes: &[Dish]) -> farcall::Result<u32> {
        Ok(dishes.iter().map(|dish| u32::from(dish.price)).sum())
    }
    fn owned(&self, dish: Dish, count: u8, more: Option<Box<Dish>>) -> farcall::Result<Vec<Dish>> {
        let mut dishes = vec![dish; count.into()];
        dishes.extend(more.map(|dish| *dish));
        Ok(dishes)
    }
    fn shared(&self, bytes: Bytes) -> farcall::Result<Bytes> {
        Ok(bytes.slice(1..))
    }
    fn map(&self, map: &BTreeMap<String, u64>) -> farcall::Result<BTreeMap<String, u64>> {
        Ok(map.clone())
    }
    fn nothing(&self) -> farcall::Result<()> {
        Ok(())
    }
    fn r#type(&self, r#in: u32) -> farcall::Result<u32> {
        Ok(r#in)
    }
}

fn dish(name: &str, price: u16) -> Dish {
    Dish { name: name.into(), price }
}

#[test]
fn every_kind_of_argument_crosses() {
    let kitchen = local::<dyn Kitchen>(Arc::new(Cook));
    assert_eq!(kitchen.text("tea"), Ok("TEA".to_string()));
    assert_eq!(kitchen.opaque(b"abc"), Ok(b"cba".to_vec()));
    assert_eq!(kitchen.lent(&dish("tea", 2)), Ok(dish("tea", 3)));
    assert_eq!(kitchen.slice(&[dish("tea", 2), dish("pie", 5)]), Ok(7));
    let owned = kitchen.owned(dish("tea", 2), 2, Some(Box::new(dish("pie", 5))));
    assert_eq!(owned, Ok(vec![dish("tea", 2), dish("tea", 2), dish("pie", 5)]));
    assert_eq!(kitchen.shared(Bytes::from_static(b"xyz")), Ok(Bytes::from_static(b"yz")));
    let map = BTreeMap::from([("one".to_string(), 1)]);
    assert_eq!(kitchen.map(&map), Ok(map.clone()));
    assert_eq!(kitchen.nothing(), Ok(()));
    #[allow(deprecated)]
    let raw = kitchen.r#type(9);
    assert_eq!(raw, Ok(9));
}

#[test]
fn started_calls_take_the_same_arguments_as_blocking_calls() {
    let kitchen = local::<dyn Kitchen>(Arc::new(Cook));
    let start = kitchen.start();
    let pending = {
        let text = "tea".to_string();
        // The argument is encoded before this returns, so it can be dropped.
        start.text(&text)
    };
    let slice = start.slice(&[dish("pie", 5)]);
    assert_eq!(slice.wait(), Ok(5));
    assert_eq!(pending.wait(), Ok("TEA".to_string()));
}

#[test]
fn a_user_stub_can_be_used_as_a_server() {
    fn order(kitchen: &dyn Kitchen) -> farcall::Result<String> {
        kitchen.text("tea")
    }
    fn can_be_shared<T: Clone + Send + Sync + 'static>(_: &T) {}
    let client = local::<dyn Kitchen>(Arc::new(Cook));
    can_be_shared(&client);
    assert_eq!(order(&Cook), order(&client));
    // So a user-stub can itself be exported as a server.
    let twice = local::<dyn Kitchen>(Arc::new(client.clone()));
    assert_eq!(order(&Cook), order(&twice));
}

#[test]
fn arguments_over_their_maximum_are_not_sent() {
    let kitchen = local::<dyn Kitchen>(Arc::new(Cook));
    let Err(Error::CallFailed(why)) = kitchen.slice(&[dish("tea", 1), dish("long gone", 1)]) else {
        panic!("an argument over its maximum was accepted");
    };
    assert_eq!((why.kind(), why.ran()), (Kind::BadArguments, Ran::No));
    assert!(why.detail().contains("slice.dishes[1].name"), "{why}");
    let started = kitchen.start().lent(&dish("long gone", 1)).wait();
    assert_eq!(started.unwrap_err().ran(), Ran::No);
}

#[test]
fn a_call_whose_result_is_over_its_maximum_ran() {
    struct Verbose;
    #[farcall::interface]
    trait Short {
        fn say(&self) -> farcall::Result<Dish>;
    }
    impl Short for Verbose {
        fn say(&self) -> farcall::Result<Dish> {
            Ok(dish("long-winded", 1))
        }
    }
    let Err(Error::CallFailed(why)) = local::<dyn Short>(Arc::new(Verbose)).say() else { panic!() };
    assert_eq!((why.kind(), why.ran()), (Kind::BadResult, Ran::Yes));
}

#[farcall::interface]
trait Store {
    #[idempotent]
    #[deadline(ms = 500)]
    fn get(&self, key: &str) -> farcall::Result<u64, NoSuchKey>;
    #[procedure(7)]
    #[blocking]
    fn sum(&self, keys: &[String]) -> farcall::Result<u64, String>;
    fn fail(&self) -> farcall::Result<()>;
}

#[derive(Debug, PartialEq, farcall::Xdr)]
struct NoSuchKey;

struct Memory(Box<dyn Store>);

struct Base;

impl Store for Base {
    fn get(&self, key: &str) -> farcall::Result<u64, NoSuchKey> {
        if key != "answer" {
            return Err(NoSuchKey.into());
        }
        Ok(42)
    }
    fn sum(&self, _: &[String]) -> farcall::Result<u64, String> {
        panic!("out of {}", "memory");
    }
    fn fail(&self) -> farcall::Result<()> {
        Err(CallFailed::new(Kind::Unreachable, Ran::No).into())
    }
}

/// Passes each outcome on with `?`.
impl Store for Memory {
    fn get(&self, key: &str) -> farcall::Result<u64, NoSuchKey> {
        self.0.fail().or_else(|_| Ok::<(), Error>(()))?;
        self.0.get(key)
    }
    fn sum(&self, keys: &[String]) -> farcall::Result<u64, String> {
        let mut sum = 0;
        for key in keys {
            sum += self.0.get(key).map_declared(|NoSuchKey| format!("no {key}"))?;
        }
        Ok(sum)
    }
    fn fail(&self) -> farcall::Result<()> {
        self.0.fail()
    }
}

#[test]
fn exceptions_and_failures_are_distinguished() {
    let base = local::<dyn Store>(Arc::new(Base));
    let store = local::<dyn Store>(Arc::new(Memory(Box::new(base))));
    assert_eq!(store.get("answer"), Ok(42));
    assert_eq!(store.get("question"), Err(Error::Declared(NoSuchKey)));
    assert_eq!(store.sum(&["answer".into(), "answer".into()]), Ok(84));
    assert_eq!(store.sum(&["question".into()]), Err(Error::Declared("no question".into())));
}

#[test]
fn a_failure_of_a_call_that_a_procedure_makes_becomes_nested() {
    let base = local::<dyn Store>(Arc::new(Base));
    let Err(Error::CallFailed(why)) = base.fail() else { panic!() };
    assert_eq!((why.kind(), why.ran()), (Kind::Nested, Ran::Yes));
    assert!(std::error::Error::source(&why).is_some());
    assert!(why.to_string().contains("did not run"), "{why}");
}

#[test]
fn a_panic_fails_its_own_call_and_the_server_goes_on() {
    let store = local::<dyn Store>(Arc::new(Base));
    for outcome in [store.sum(&[]), store.start().sum(&[]).wait()] {
        let Err(Error::CallFailed(why)) = outcome else { panic!() };
        assert_eq!((why.kind(), why.ran(), why.detail()), (Kind::Panicked, Ran::Yes, "out of memory"));
    }
    assert_eq!(store.get("answer"), Ok(42));
}

#[test]
fn the_interface_describes_itself() {
    let facts = <dyn Store as Interface>::PROCEDURES;
    assert_eq!(facts.iter().map(|facts| facts.number).collect::<Vec<_>>(), [1, 7, 8]);
    assert!(facts[0].idempotent && facts[1].blocking && !facts[2].blocking);
    assert_eq!(facts[0].deadline, Some(Duration::from_millis(500)));

    let model = <dyn Kitchen as Interface>::interface();
    assert_eq!(
        (&*model.name, &*model.docs),
        ("Kitchen", "An interface with every kind of argument and result.")
    );
    let text = model.by_name("text").unwrap();
    assert_eq!(text.docs, "Takes text that borrows from the packet.");
    assert_eq!(model.signature(text), "text(text: string<>) -> string<>");
    assert_eq!(
        model.signature(model.by_name("owned").unwrap()),
        "owned(dish: Dish, count: u8, more: Dish?) -> Dish<>"
    );
    assert!(model.by_name("type").is_some_and(|found| found.arguments[0].name == "in"));
    let store = <dyn Store as Interface>::interface();
    assert_eq!(store.signature(&store.procedures[0]), "get(key: string<>) -> u64 raises NoSuchKey");

    let packet = farcall::xdr::to_vec(model).unwrap();
    assert_eq!(&farcall::xdr::from_slice::<farcall::idl::Interface>(&packet).unwrap(), model);
    assert_eq!(<dyn Kitchen as Interface>::NAME, "Kitchen");
}

#[test]
fn malformed_arguments_are_not_served() {
    fn dispatch(procedure: u32, packet: &[u8]) -> CallFailed {
        let server: &dyn Kitchen = &Cook;
        let mut reply = Vec::new();
        let dispatched = server.dispatch(procedure, &mut Decoder::new(packet), &mut Encoder::new(&mut reply));
        assert!(reply.is_empty());
        dispatched.failure().expect("a failure")
    }
    for (procedure, packet, kind) in [
        (99, &[][..], Kind::NoSuchProcedure),
        (0, &[], Kind::NoSuchProcedure),
        (1, &[], Kind::BadArguments),
        (1, &[0, 0, 0, 9, b'a', 0, 0, 0], Kind::BadArguments),
        (8, &[0, 0, 0, 0], Kind::BadArguments), // the procedure has no arguments
    ] {
        let why = dispatch(procedure, packet);
        assert_eq!((why.kind(), why.ran()), (kind, Ran::No));
    }
    assert!(dispatch(1, &[0, 0, 0, 9]).detail().contains("text.text"));
}

/// A server whose procedure waits until the test lets it go.
struct Gate {
    entered: Mutex<mpsc::Sender<()>>,
    open: Barrier,
    calls: AtomicU32,
}

#[farcall::interface]
trait Wait {
    fn wait(&self) -> farcall::Result<u32>;
}

impl Wait for Gate {
    fn wait(&self) -> farcall::Result<u32> {
        self.entered.lock().unwrap().send(()).unwrap();
        self.open.wait();
        Ok(self.calls.fetch_add(1, SeqCst))
    }
}

fn gate() -> (Arc<Gate>, mpsc::Receiver<()>) {
    let (entered, entries) = mpsc::channel();
    let gate = Gate { entered: Mutex::new(entered), open: Barrier::new(2), calls: AtomicU32::new(0) };
    (Arc::new(gate), entries)
}

#[test]
fn a_started_call_runs_before_it_is_awaited() {
    let (server, entries) = gate();
    let client = local::<dyn Wait>(server.clone());
    let mut pending = client.start().wait();
    entries.recv().unwrap();
    let (woken, wakes) = mpsc::channel();
    let waker = Waker::from(Arc::new(Wakes(Mutex::new(woken))));
    let mut context = Context::from_waker(&waker);
    assert!(std::pin::Pin::new(&mut pending).poll(&mut context).is_pending());
    server.open.wait();
    wakes.recv().unwrap();
    assert_eq!(std::pin::Pin::new(&mut pending).poll(&mut context), Poll::Ready(Ok(0)));
}

struct Wakes(Mutex<mpsc::Sender<()>>);

impl std::task::Wake for Wakes {
    fn wake(self: Arc<Self>) {
        let _ = self.0.lock().unwrap().send(());
    }
}

#[test]
fn a_detached_call_runs_although_client_and_handle_are_dropped() {
    let (server, entries) = gate();
    let client = local::<dyn Wait>(server.clone());
    client.start().wait().detach();
    drop(client);
    entries.recv().unwrap();
    server.open.wait();
}

#[test]
fn cancelling_a_running_call_ends_it_and_discards_its_result() {
    let (server, entries) = gate();
    let client = local::<dyn Wait>(server.clone());
    let mut pending = client.start().wait();
    entries.recv().unwrap();
    pending.cancel();
    // The call has ended, although its procedure still runs.
    let Err(Error::CallFailed(why)) = pending.wait() else { panic!() };
    assert_eq!((why.kind(), why.ran()), (Kind::Cancelled, Ran::Maybe));
    server.open.wait();
}

/// Calls itself by `start`, to the depth that the argument says. The test uses more levels than there are
/// threads.
struct Recursive(Mutex<Option<DiveClient>>);

#[farcall::interface]
trait Dive {
    fn dive(&self, depth: u32) -> farcall::Result<u32>;
}

impl Dive for Recursive {
    fn dive(&self, depth: u32) -> farcall::Result<u32> {
        let client = self.0.lock().unwrap().clone();
        match (depth, client) {
            (0, _) | (_, None) => Ok(0),
            (_, Some(client)) => Ok(1 + client.start().dive(depth - 1).wait()?),
        }
    }
}

#[test]
fn started_calls_that_wait_for_started_calls_do_not_deadlock() {
    let server = Arc::new(Recursive(Mutex::new(None)));
    let client = local::<dyn Dive>(server.clone());
    *server.0.lock().unwrap() = Some(client.clone());
    let dives: Vec<_> = (0..100).map(|_| client.start().dive(20)).collect();
    for dive in dives {
        assert_eq!(dive.wait(), Ok(20));
    }
    // The server and the stub refer to each other. This breaks the cycle.
    server.0.lock().unwrap().take();
}

#[test]
fn the_earliest_deadline_counts() {
    use farcall::stub::{Call, Channel, PendingCall, Reply, Sink};
    struct Asks(Mutex<Vec<Option<Duration>>>);
    impl Channel for Asks {
        fn call(&self, call: Call<'_>, sink: Sink<'_>) {
            self.0.lock().unwrap().push(call.within);
            sink(Reply::Failed(CallFailed::new(Kind::Stopped, Ran::No)));
        }
        fn start(&self, _: Call<'_>) -> Box<dyn PendingCall> {
            Box::new(CallFailed::new(Kind::Overloaded, Ran::No))
        }
    }
    let channel = Arc::new(Asks(Mutex::default()));
    let store = StoreClient::from(Binding::new(channel.clone()));
    let (short, long) = (Duration::from_millis(1), Duration::from_secs(1));
    assert_eq!(store.fail().unwrap_err().ran(), Ran::No);
    let _ = store.get("");
    let _ = store.within(short).get("");
    let _ = store.within(long).get("");
    let _ = store.within(long).fail();
    let declared = Some(Duration::from_millis(500));
    assert_eq!(*channel.0.lock().unwrap(), [None, declared, Some(short), declared, Some(long)]);
    let Err(Error::CallFailed(why)) = store.start().fail().wait() else { panic!() };
    assert_eq!(why.kind(), Kind::Overloaded);
}
