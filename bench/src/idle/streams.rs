//! The server's memory for each idle stream, and the datagrams while all streams are idle.
//!
//! This process is the server: it exports `async fn`s, and each call has a stream without items. Another
//! process has the callers, which receive all streams of all conversations without a thread for each.
//!
//! What depends on the user's executor is counted separately: its own bytes for a task, and the task with its
//! future.
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use farcall::names::Memory;
use farcall::stub::AsyncServer as _;
use farcall::{Runtime, Stream, Task};
use farcall_bench_method::{Row, alloc};

#[farcall::interface(async)]
pub trait Watches {
    /// Sends nothing, for ever.
    fn watch(&self) -> farcall::Result<Stream<u64>>;
    fn null(&self) -> farcall::Result<()>;
}

struct Server;

impl WatchesAsync for Server {
    async fn watch(&self) -> farcall::Result<Stream<u64>> {
        Ok(Stream::polled(|_| Poll::Pending))
    }

    async fn null(&self) -> farcall::Result<()> {
        Ok(())
    }
}

/// The command line of the process of callers. The bench writes it; it is not for people.
#[derive(Debug, clap::Args)]
pub struct Side {
    address: String,
    streams: usize,
    conversations: usize,
}

/// How long the streams are idle before the datagrams are counted, and meanwhile.
const SETTLE: Duration = Duration::from_secs(25);
const COUNTED: Duration = Duration::from_secs(40);

/// Measures `streams` idle streams, which `conversations` share evenly.
pub fn measure(streams: usize, conversations: usize) -> Result<Row> {
    let runtime = Runtime::builder().registry(Memory::new()).shared_memory(false).queue(streams).build()?;
    let executor = one_thread();
    let export = runtime.export_async_on("Watches", WatchesAsyncServer::new(Server), executor)?;
    let mut callers = Command::new(std::env::current_exe()?)
        .args(["idle-side", &export.url(), &streams.to_string(), &conversations.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start the process of callers")?;
    let (mut orders, answers) = (callers.stdin.take(), callers.stdout.take());
    let mut lines = BufReader::new(answers.context("a pipe")?).lines();
    let mut hear = |word: &str| -> Result<()> {
        let line = lines.next().context("the callers ended")??;
        ensure!(line == word, "the callers say {line:?}, not {word:?}");
        Ok(())
    };
    hear("bound")?;
    let before = alloc::live_bytes();
    writeln!(orders.as_mut().context("a pipe")?, "open")?;
    hear("open")?;
    thread::sleep(SETTLE);
    let (bytes, count) = (alloc::live_bytes() - before, || {
        let stats = runtime.stats().server.unwrap_or_default();
        (stats.received, stats.sent)
    });
    let (begun, (received, sent)) = (Instant::now(), count());
    thread::sleep(COUNTED);
    let (seconds, (later, answered)) = (begun.elapsed().as_secs_f64(), count());
    writeln!(orders.as_mut().context("a pipe")?, "check")?;
    hear("idle")?;
    drop(orders.take());
    ensure!(callers.wait()?.success(), "the callers failed");
    let own = (size_of::<Spawned>() + 2 * size_of::<usize>() + TASK.load(Relaxed)) as i64 + future_bytes();
    Ok(Row {
        bench: "idle".into(),
        peer: "farcall".into(),
        conversations: Some(conversations),
        streams: Some(streams),
        bytes_each: Some(bytes as f64 / streams as f64 - own as f64),
        task_bytes: Some(own as usize),
        datagrams_in: Some((later - received) as f64 / seconds / conversations as f64),
        datagrams_out: Some((answered - sent) as f64 / seconds / conversations as f64),
        ..Row::default()
    })
}

/// Returns the bytes of the future that executes a call, before it is polled.
fn future_bytes() -> i64 {
    let server = Arc::new(WatchesAsyncServer::new(Server));
    // Other threads allocate meanwhile, so the median counts.
    let mut bytes: Vec<i64> = Vec::with_capacity(101);
    for _ in 0..101 {
        let before = alloc::live_bytes();
        let future = server.clone().dispatch(1, Vec::new());
        bytes.push(alloc::live_bytes() - before);
        drop(future);
    }
    bytes.sort_unstable();
    bytes[bytes.len() / 2]
}

/// Runs the process of callers.
pub fn side(side: &Side) -> Result<()> {
    let runtimes = (0..side.conversations)
        .map(|_| Runtime::builder().registry(Memory::new()).shared_memory(false).build())
        .collect::<farcall::Result<Vec<_>>>()?;
    let stubs: Vec<_> = runtimes
        .iter()
        .map(|runtime| {
            let stub = runtime.import::<dyn Watches>(&side.address)?;
            stub.null()?;
            Ok(stub)
        })
        .collect::<farcall::Result<_>>()?;
    let mut orders = std::io::stdin().lines();
    // The server's threads have what each of them keeps, before anything is measured.
    drop(open(&stubs, side.streams / 5)?);
    stubs.iter().try_for_each(|stub| stub.null())?;
    println!("bound");
    orders.next().context("no order")??;
    let mut opened = open(&stubs, side.streams)?;
    let mut context = Context::from_waker(Waker::noop());
    let mut idle = || opened.iter_mut().all(|stream| stream.poll_item(&mut context).is_pending());
    ensure!(idle(), "a stream has ended");
    println!("open");
    orders.next().context("no order")??;
    ensure!(idle(), "a stream has ended");
    println!("idle");
    Ok(())
}

/// Opens so many streams, one at a time of each stub.
fn open(stubs: &[WatchesClient], streams: usize) -> Result<Vec<Stream<u64>>> {
    let mut opened = Vec::with_capacity(streams);
    for round in 0..streams.div_ceil(stubs.len()) {
        let left = stubs.len().min(streams - round * stubs.len());
        let pending: Vec<_> = stubs[..left].iter().map(|stub| stub.start().watch()).collect();
        for call in pending {
            opened.push(call.wait()?);
        }
    }
    Ok(opened)
}

/// The bytes of a task, without those of the future in it.
static TASK: AtomicUsize = AtomicUsize::new(0);

/// A task of the executor.
struct Spawned {
    task: Mutex<Option<Task>>,
    queue: mpsc::Sender<Arc<Spawned>>,
}

impl Wake for Spawned {
    fn wake(self: Arc<Self>) {
        let _ = self.queue.clone().send(self);
    }
}

/// Returns an executor of one thread.
fn one_thread() -> impl Fn(Task) + Send + Sync + 'static {
    let (queue, tasks) = mpsc::channel::<Arc<Spawned>>();
    thread::spawn(move || {
        for spawned in tasks {
            let waker = Waker::from(spawned.clone());
            let Ok(mut place) = spawned.task.lock() else { continue };
            let Some(mut task) = place.take() else { continue };
            if task.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
                *place = Some(task);
            }
        }
    });
    let queue = Mutex::new(queue);
    move |task: Task| {
        TASK.store(size_of_val(&*task), Relaxed);
        let Ok(queue) = queue.lock() else { return };
        Arc::new(Spawned { task: Mutex::new(Some(task)), queue: queue.clone() }).wake();
    }
}
