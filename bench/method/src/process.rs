//! Processes that execute orders: each order is a line, and each answer a line of JSON, until standard input
//! ends.
use std::io::{BufRead, BufReader, Write};
use std::marker::PhantomData;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The longest time for the answer to an order. A process that exceeds it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// The longest time for a process to end.
const END: Duration = Duration::from_secs(1);

/// The socket buffers that farcall is to ask for in processes, in bytes; 0 for its own default.
static SOCKET_BUFFER: AtomicUsize = AtomicUsize::new(0);

/// Makes farcall ask for socket buffers of this many bytes in all processes that are started from now on.
pub fn set_socket_buffer(bytes: usize) {
    SOCKET_BUFFER.store(bytes, Relaxed);
}

/// Returns the socket buffers that farcall is to ask for in processes, in bytes, if not its own default.
pub fn socket_buffer() -> Option<usize> {
    Some(SOCKET_BUFFER.load(Relaxed)).filter(|bytes| *bytes > 0)
}

/// The answers of such a process.
pub trait Answer: Serialize + DeserializeOwned {
    /// Returns the answer, or the failure that it reports.
    fn checked(self) -> Result<Self>;
}

/// Such a process, as its parent sees it. When this is dropped, the process is told to end, and killed if it
/// does not.
pub struct Process<A> {
    child: Child,
    /// `None` once the process has been told to end.
    orders: Option<ChildStdin>,
    answers: Receiver<String>,
    says: PhantomData<fn() -> A>,
}

impl<A: Answer> Process<A> {
    /// Starts `program` with these arguments.
    pub fn start(program: &Path, words: &[String]) -> Result<Process<A>> {
        let mut command = Command::new(program);
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        // The user's environment must not influence the measurement.
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("FARCALL_"))
        {
            command.env_remove(name);
        }
        if let Some(bytes) = socket_buffer() {
            command.env("FARCALL_SOCKET_BUFFER", bytes.to_string());
        }
        let mut child = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        let orders = Some(child.stdin.take().context("no pipe")?);
        let mut lines = BufReader::new(child.stdout.take().context("no pipe")?).lines();
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            while let Some(Ok(line)) = lines.next() {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Process { child, orders, answers, says: PhantomData })
    }

    /// Sends an order, and waits for the answer.
    pub fn order(&mut self, order: &str) -> Result<A> {
        self.order_within(order, PATIENCE)
    }

    /// Sends an order, and waits for the answer for this long at most.
    pub fn order_within(&mut self, order: &str, patience: Duration) -> Result<A> {
        self.tell(order)?;
        self.hear_within(patience).with_context(|| format!("told to `{order}`"))
    }

    /// Sends an order without waiting.
    pub fn tell(&mut self, order: &str) -> Result<()> {
        let orders = self.orders.as_mut().context("it is told to end")?;
        orders.write_all(format!("{order}\n").as_bytes()).context("it is gone")
    }

    /// Returns the next answer.
    pub fn hear(&mut self) -> Result<A> {
        self.hear_within(PATIENCE)
    }

    /// Returns the next answer, which must come within this time.
    pub fn hear_within(&mut self, patience: Duration) -> Result<A> {
        self.answer_within(patience)?.context("it hangs")
    }

    /// Returns the next answer, or `None` if none comes within this time.
    ///
    /// # Errors
    /// The process has ended, or its answer is a failure.
    pub fn answer_within(&mut self, patience: Duration) -> Result<Option<A>> {
        let line = match self.answers.recv_timeout(patience) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => return Ok(None),
            Err(RecvTimeoutError::Disconnected) => bail!("it has ended"),
        };
        serde_json::from_str::<A>(&line).with_context(|| format!("it said {line:?}"))?.checked().map(Some)
    }
}

impl<A> Process<A> {
    /// Waits until the process has ended. Without orders it ends, and closes its standard output.
    pub fn end(mut self) -> Result<()> {
        self.orders = None;
        while self.answers.recv_timeout(PATIENCE).is_ok() {}
        self.child.wait().map(drop).context("it does not end")
    }

    /// Returns the operating system's process.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Returns the process number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

impl<A> Drop for Process<A> {
    fn drop(&mut self) {
        // Without orders the process ends, and its answers end too.
        self.orders = None;
        while self.answers.recv_timeout(END).is_ok() {}
        // Both fail only if the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Executes the orders of the process that started this one until there are no more, on one core if one is
/// named. Says `ready` first, then the answer to each order; `failed` makes an answer of a failure.
pub fn obey<A: Answer>(
    core: Option<usize>,
    ready: &A,
    failed: impl Fn(String) -> A,
    mut execute: impl FnMut(&str) -> Result<A>,
) -> Result<()> {
    end_with_parent()?;
    core.map_or(Ok(()), stay_on)?;
    say(ready)?;
    for order in std::io::stdin().lines() {
        say(&execute(&order?).unwrap_or_else(|why| failed(format!("{why:#}"))))?;
    }
    Ok(())
}

/// Makes this process end when the one that started it ends, even if it executes an order.
#[cfg(target_os = "linux")]
fn end_with_parent() -> Result<()> {
    use rustix::process::{Signal, set_parent_process_death_signal};
    set_parent_process_death_signal(Some(Signal::KILL)).context("cannot follow the parent")
}

/// Does nothing: elsewhere a process ends when it has no more orders.
#[cfg(not(target_os = "linux"))]
fn end_with_parent() -> Result<()> {
    Ok(())
}

/// Returns the exit code of a program that has ended so. Says why it failed, if it did.
pub fn exit_code(program: &str, ended: Result<()>) -> ExitCode {
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{program}: {why:#}");
            ExitCode::FAILURE
        }
    }
}

/// Writes an answer of this process.
pub fn say(answer: &impl Answer) -> Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, answer)?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}

/// Binds this thread, and the threads that it will start, to one core.
#[cfg(target_os = "linux")]
pub fn stay_on(core: usize) -> Result<()> {
    use rustix::thread::{CpuSet, sched_setaffinity};
    anyhow::ensure!(core < CpuSet::MAX_CPU, "there is no core {core}");
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).with_context(|| format!("cannot stay on core {core}"))
}

/// Binds this thread, and the threads that it will start, to one core.
#[cfg(not(target_os = "linux"))]
pub fn stay_on(core: usize) -> Result<()> {
    anyhow::bail!("cannot stay on core {core}: pinning is done on Linux only; use --pin none")
}
