//! Farcall in programs on tokio: tasks that await calls, to a server of blocking procedures or of `async fn`s.
#![forbid(unsafe_code)]

use std::future::pending;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use farcall::names::Memory;
use farcall::{Export, Runtime};
use farcall_bench_method::alloc::Counting;
use farcall_bench_method::{Calling, Mode, Peer, Serving, Setup, cannot};
use farcall_bench_tokio::{Call, Client, Threads};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> ExitCode {
    farcall_bench_method::agent::run(|name| Some(Box::new(Tasks::of(name)?)))
}

#[farcall::interface(async)]
trait Echo {
    /// The null call.
    #[idempotent]
    fn null(&self) -> farcall::Result<()>;
    /// Returns all bytes.
    #[idempotent]
    fn echo(&self, data: &[u8]) -> farcall::Result<Vec<u8>>;
}

struct Server;

impl Echo for Server {
    fn null(&self) -> farcall::Result<()> {
        Ok(())
    }

    fn echo(&self, data: &[u8]) -> farcall::Result<Vec<u8>> {
        Ok(data.to_vec())
    }
}

impl EchoAsync for Server {
    async fn null(&self) -> farcall::Result<()> {
        Ok(())
    }

    async fn echo(&self, data: &[u8]) -> farcall::Result<Vec<u8>> {
        Ok(data.to_vec())
    }
}

/// A peer: `farcall-tasks`, and behind it any of `-async`, `-shm` and `-threads`, in this order.
struct Tasks {
    /// Whether the procedures are `async fn`s.
    is_async: bool,
    /// Whether calls go through shared memory, instead of over UDP.
    shared: bool,
    threads: Threads,
}

impl Tasks {
    fn of(name: &str) -> Option<Tasks> {
        let words = name.strip_prefix("farcall-tasks")?;
        let (words, threads) = match words.strip_suffix("-threads") {
            Some(words) => (words, Threads::Many),
            None => (words, Threads::One),
        };
        let (words, shared) = words.strip_suffix("-shm").map_or((words, false), |words| (words, true));
        let is_async = match words {
            "" => false,
            "-async" => true,
            _ => return None,
        };
        Some(Tasks { is_async, shared, threads })
    }

    /// Returns a runtime. Its registry stays within the process, because addresses suffice here.
    fn runtime(&self) -> farcall::Result<Runtime> {
        Runtime::builder().registry(Memory::new()).shared_memory(self.shared).build()
    }
}

impl Peer for Tasks {
    fn transport(&self) -> &'static str {
        if self.shared { "shared memory" } else { "udp" }
    }

    fn serve(&self, setup: &Setup) -> Result<Box<dyn Serving>> {
        if setup.mode == Mode::Spin {
            return cannot("it does not spin");
        }
        let runtime = self.runtime()?;
        if !self.is_async {
            return Ok(Box::new(Exported(runtime.export::<dyn Echo>("Echo", Arc::new(Server))?)));
        }
        let listen = async move || {
            let export = runtime.export_async("Echo", EchoAsyncServer::new(Server))?;
            let address = export.url();
            Ok((export, address))
        };
        farcall_bench_tokio::serve(self.threads, listen, async |_export| pending().await)
    }

    fn connect(&self, setup: &Setup, address: &str) -> Result<Box<dyn Calling>> {
        let name = if self.shared { address.replacen("udp://", "shm://", 1) } else { address.to_owned() };
        let echo = self.runtime()?.import::<dyn Echo>(&name)?;
        let caller = Caller { echo, data: vec![7; setup.bytes].into() };
        let call = |caller: Caller, call| async move { caller.call(call).await };
        farcall_bench_tokio::connect_on(self.threads, setup, async || Ok(caller), call)
    }
}

struct Exported(Export);

impl Serving for Exported {
    fn address(&self) -> String {
        self.0.url()
    }
}

#[derive(Clone)]
struct Caller {
    echo: EchoClient,
    data: Arc<[u8]>,
}

impl Client for Caller {
    async fn call(&self, call: Call) -> Result<()> {
        match call {
            Call::Null => self.echo.start().null().await?,
            Call::Echo => drop(std::hint::black_box(self.echo.start().echo(&self.data).await?)),
            Call::Slow | Call::Fetch(_) => return cannot("its server has no such procedure"),
        }
        Ok(())
    }
}
