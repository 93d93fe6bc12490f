//! Processes that obey: one is told a line and answers with a line of JSON, until nobody is there to tell it
//! more.
use std::io::{BufRead, BufReader, Write};
use std::marker::PhantomData;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// No order takes this long, unless something hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Nor does an end.
const END: Duration = Duration::from_secs(1);

/// What such a process says.
pub trait Answer: Serialize + DeserializeOwned {
    /// Itself, or the failure that it reports.
    fn checked(self) -> Result<Self>;
}

/// One such process, from without. Dropped, it is told to end, and killed if it does not.
pub struct Process<A> {
    child: Child,
    /// None at the end.
    orders: Option<ChildStdin>,
    answers: Receiver<String>,
    says: PhantomData<fn() -> A>,
}

impl<A: Answer> Process<A> {
    /// Starts `program` with these words.
    pub fn start(program: &Path, words: &[String]) -> Result<Process<A>> {
        let mut command = Command::new(program);
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        // The user's settings are not the bench's conditions.
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("FARCALL_"))
        {
            command.env_remove(name);
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

    /// Tells it, and hears what it answers.
    pub fn order(&mut self, order: &str) -> Result<A> {
        self.tell(order)?;
        self.hear().with_context(|| format!("told to `{order}`"))
    }

    /// Tells it, and does not wait.
    pub fn tell(&mut self, order: &str) -> Result<()> {
        let orders = self.orders.as_mut().context("it is told to end")?;
        orders.write_all(format!("{order}\n").as_bytes()).context("it is gone")
    }

    /// What it says next.
    pub fn hear(&mut self) -> Result<A> {
        let line = self.answers.recv_timeout(PATIENCE).map_err(|_| anyhow!("it ended, or hangs"))?;
        serde_json::from_str::<A>(&line).with_context(|| format!("it said {line:?}"))?.checked()
    }
}

impl<A> Process<A> {
    /// Waits until it has ended by itself: without orders it ends, and its answers do.
    pub fn end(mut self) -> Result<()> {
        self.orders = None;
        while self.answers.recv_timeout(PATIENCE).is_ok() {}
        self.child.wait().map(drop).context("it does not end")
    }

    /// The system's process.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

impl<A> Drop for Process<A> {
    fn drop(&mut self) {
        // Without orders it ends, and its answers do.
        self.orders = None;
        while self.answers.recv_timeout(END).is_ok() {}
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Such a process says something.
pub fn say(answer: &impl Answer) -> Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, answer)?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}

/// Keeps this thread, and those that it will start, on one core.
#[cfg(target_os = "linux")]
pub fn stay_on(core: usize) -> Result<()> {
    use rustix::thread::{CpuSet, sched_setaffinity};
    anyhow::ensure!(core < CpuSet::MAX_CPU, "there is no core {core}");
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).with_context(|| format!("cannot stay on core {core}"))
}

/// Keeps this thread, and those that it will start, on one core.
#[cfg(not(target_os = "linux"))]
pub fn stay_on(core: usize) -> Result<()> {
    anyhow::bail!("cannot stay on core {core}: pinning is done on Linux only; use --pin none")
}
