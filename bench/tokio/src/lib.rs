//! The common part of all peers on tokio: their runtime, and the loops that make calls.
//!
//! Both sides run on a runtime of one thread, unless a peer's name says otherwise. One call at a time on the
//! runtime of many threads takes 1.6 to 2.2 times as long.
#![forbid(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use farcall_bench_method::{Calling, Carry, Laps, Schedule, Serving, Setup, cannot};
use tokio::runtime::{Builder, LocalOptions, LocalRuntime, Runtime};

/// The threads of a side's runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// One: tokio's `current_thread`.
    One,
    /// As many as there are cores: tokio's default.
    Many,
}

/// The call that a client makes.
#[derive(Clone, Copy, Debug)]
pub enum Call {
    /// A call without payload.
    Null,
    /// A call that returns the payload.
    Echo,
    /// A call that returns this number of bytes.
    Fetch(usize),
    /// A call that returns the payload after [`farcall_bench_method::SLOW`].
    Slow,
}

/// A client with its connection.
pub trait Client: Clone + 'static {
    /// Makes one call, and examines the whole result.
    fn call(&self, call: Call) -> impl Future<Output = Result<()>>;
}

/// Serves in a thread of its own until the process ends. `listen` returns the server and its address; `serve`
/// then runs alone on the runtime.
pub fn serve<L, Listen, Serve, Served>(
    threads: Threads,
    listen: Listen,
    serve: Serve,
) -> Result<Box<dyn Serving>>
where
    Listen: AsyncFnOnce() -> Result<(L, String)> + Send + 'static,
    Serve: FnOnce(L) -> Served + Send + 'static,
    Served: Future<Output = Result<()>>,
{
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || -> Result<()> {
        let side = async move {
            let listener = match listen().await {
                Ok((listener, address)) => {
                    sender.send(Ok(address))?;
                    listener
                }
                Err(why) => return Ok(sender.send(Err(why))?),
            };
            serve(listener).await.inspect_err(|why| eprintln!("the server ended: {why:#}"))
        };
        match threads {
            Threads::One => runtime()?.block_on(side),
            Threads::Many => threaded()?.block_on(side),
        }
    });
    Ok(Box::new(Listening(receiver.recv()??)))
}

struct Listening(String);

impl Serving for Listening {
    fn address(&self) -> String {
        self.0.clone()
    }
}

/// Returns a client on a runtime of one thread. `connect` makes its connection.
pub fn connect<C: Client>(
    setup: &Setup,
    connect: impl AsyncFnOnce() -> Result<C>,
) -> Result<Box<dyn Calling>> {
    let runtime = runtime()?;
    let client = runtime.block_on(connect())?;
    Ok(Box::new(Loops { runtime, client, call: wanted(setup)? }))
}

/// Returns a client on a runtime with these threads. `call` makes a call with a clone of the client, which may
/// go on in another thread.
pub fn connect_on<C, F>(
    threads: Threads,
    setup: &Setup,
    connect: impl AsyncFnOnce() -> Result<C>,
    call: fn(C, Call) -> F,
) -> Result<Box<dyn Calling>>
where
    C: Client + Send + Sync,
    F: Future<Output = Result<()>> + Send + 'static,
{
    if threads == Threads::One {
        return self::connect(setup, connect);
    }
    let runtime = threaded()?;
    let client = runtime.block_on(connect())?;
    Ok(Box::new(Tasks { runtime, client, call, wanted: wanted(setup)? }))
}

/// Returns the call that a bench wants.
fn wanted(setup: &Setup) -> Result<Call> {
    Ok(match (setup.carry, setup.bytes) {
        (Carry::Result, bytes) => Call::Fetch(bytes),
        (Carry::Argument, _) => return cannot("it is not measured with long arguments"),
        (Carry::Both, 0) => Call::Null,
        (Carry::Both, _) => Call::Echo,
    })
}

/// Returns a runtime of one thread.
pub fn runtime() -> Result<LocalRuntime> {
    Ok(Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?)
}

/// Returns a runtime of as many threads as there are cores.
fn threaded() -> Result<Runtime> {
    Ok(Builder::new_multi_thread().enable_all().build()?)
}

struct Loops<C> {
    runtime: LocalRuntime,
    client: C,
    call: Call,
}

impl<C: Client> Calling for Loops<C> {
    fn run(&mut self, laps: &mut Laps) -> Result<()> {
        let (client, call) = (&self.client, self.call);
        self.runtime.block_on(async {
            while laps.next() {
                client.call(call).await?;
            }
            Ok(())
        })
    }

    /// Starts a task for each outstanding call.
    fn window(&mut self, outstanding: usize, calls: usize) -> Result<()> {
        let left = Rc::new(Cell::new(calls));
        let task = |client: C, call, left: Rc<Cell<usize>>| async move {
            while let Some(less) = left.get().checked_sub(1) {
                left.set(less);
                client.call(call).await?;
            }
            anyhow::Ok(())
        };
        self.runtime.block_on(async {
            let start = |_| tokio::task::spawn_local(task(self.client.clone(), self.call, left.clone()));
            let tasks: Vec<_> = (0..outstanding).map(start).collect();
            for task in tasks {
                task.await??;
            }
            Ok(())
        })
    }

    /// Starts a task for each call. The task that begins them never sleeps, because tokio's clock has steps
    /// of a millisecond. Instead it yields to the other tasks.
    fn open(&mut self, schedule: &mut Schedule) -> Result<()> {
        let shared = Rc::new(RefCell::new(std::mem::take(schedule)));
        self.runtime.block_on(async {
            while !shared.borrow().is_over() {
                while let Some(arrival) = { shared.borrow_mut().due() } {
                    let (client, shared) = (self.client.clone(), shared.clone());
                    let call = if arrival.slow { Call::Slow } else { self.call };
                    tokio::task::spawn_local(async move {
                        let result = client.call(call).await;
                        shared.borrow_mut().ended(arrival, &result);
                    });
                }
                tokio::task::yield_now().await;
            }
        });
        *schedule = shared.take();
        Ok(())
    }
}

/// A client whose calls are tasks on a runtime of many threads.
struct Tasks<C, F> {
    runtime: Runtime,
    client: C,
    call: fn(C, Call) -> F,
    wanted: Call,
}

impl<C, F> Calling for Tasks<C, F>
where
    C: Client + Send + Sync,
    F: Future<Output = Result<()>> + Send + 'static,
{
    fn run(&mut self, laps: &mut Laps) -> Result<()> {
        self.runtime.block_on(async {
            while laps.next() {
                (self.call)(self.client.clone(), self.wanted).await?;
            }
            Ok(())
        })
    }

    /// Starts a task for each outstanding call.
    fn window(&mut self, outstanding: usize, calls: usize) -> Result<()> {
        let left = Arc::new(AtomicUsize::new(calls));
        let start = |_| {
            let (client, call, wanted, left) = (self.client.clone(), self.call, self.wanted, left.clone());
            let take =
                move || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
            self.runtime.spawn(async move {
                while take().is_ok() {
                    call(client.clone(), wanted).await?;
                }
                anyhow::Ok(())
            })
        };
        let tasks: Vec<_> = (0..outstanding).map(start).collect();
        self.runtime.block_on(async {
            for task in tasks {
                task.await??;
            }
            Ok(())
        })
    }
}
