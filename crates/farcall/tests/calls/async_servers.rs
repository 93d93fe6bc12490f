//! Tests of servers of `async fn`s that a stub of the same process calls, without an executor.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};

use farcall::stub::{Interface, local_async};
use farcall::{CallFailed, Error, Kind, Ran};

#[farcall::interface(async, name = "store-2")]
trait Store {
    /// Returns the value under `key`.
    fn get(&self, key: &str, of: &[u32]) -> farcall::Result<u64, NoSuchKey>;
    fn fail(&self) -> farcall::Result<()>;
    fn panics(&self, bytes: &[u8]) -> farcall::Result<()>;
    fn never(&self) -> farcall::Result<()>;
}

#[derive(Debug, PartialEq, farcall::Xdr)]
struct NoSuchKey;

#[derive(Default)]
struct Memory {
    ended: Arc<AtomicBool>,
}

struct SetOnDrop(Arc<AtomicBool>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

impl StoreAsync for Memory {
    async fn get(&self, key: &str, of: &[u32]) -> farcall::Result<u64, NoSuchKey> {
        // The arguments stay borrowed while the future is suspended.
        yield_once().await;
        if key != "answer" {
            return Err(NoSuchKey.into());
        }
        Ok(of.iter().map(|&part| u64::from(part)).sum())
    }
    async fn fail(&self) -> farcall::Result<()> {
        Err(CallFailed::new(Kind::Unreachable, Ran::No).into())
    }
    async fn panics(&self, _: &[u8]) -> farcall::Result<()> {
        yield_once().await;
        panic!("too much")
    }
    async fn never(&self) -> farcall::Result<()> {
        let _ended = SetOnDrop(self.ended.clone());
        std::future::pending().await
    }
}

async fn yield_once() {
    let mut yielded = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

#[test]
fn an_async_server_answers_like_any_other_server() {
    let store: StoreClient = local_async(StoreAsyncServer::new(Memory::default()));
    assert_eq!(store.get("answer", &[40, 2]), Ok(42));
    assert_eq!(store.get("question", &[]), Err(Error::Declared(NoSuchKey)));
    assert_eq!(store.start().get("answer", &[1]).wait(), Ok(1));
    let Err(Error::CallFailed(why)) = store.fail() else { panic!() };
    assert_eq!((why.kind(), why.ran()), (Kind::Nested, Ran::Yes));
    let Err(Error::CallFailed(why)) = store.panics(b"x") else { panic!() };
    assert_eq!((why.kind(), why.detail()), (Kind::Panicked, "too much"));
    assert_eq!(<dyn Store as Interface>::NAME, "store-2");
}

#[test]
fn an_async_server_can_be_shared_with_its_program() {
    let memory = Arc::new(Memory::default());
    let store = local_async(StoreAsyncServer::from(memory.clone()));
    assert_eq!(store.get("answer", &[7]), Ok(7));
}

#[test]
fn cancelling_a_call_drops_the_servers_future() {
    let memory = Memory::default();
    let ended = memory.ended.clone();
    let store = local_async(StoreAsyncServer::new(memory));
    let mut pending = store.start().never();
    let mut context = Context::from_waker(Waker::noop());
    assert!(std::pin::Pin::new(&mut pending).poll(&mut context).is_pending());
    pending.cancel();
    assert!(ended.load(SeqCst));
    let Err(Error::CallFailed(why)) = pending.wait() else { panic!() };
    assert_eq!((why.kind(), why.ran()), (Kind::Cancelled, Ran::Maybe));

    let mut unbegun = store.start().never();
    unbegun.cancel();
    assert_eq!(unbegun.wait().unwrap_err().ran(), Ran::No);
}
