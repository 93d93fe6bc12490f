//! Cap'n Proto RPC over TCP, unpacked.
use std::process::ExitCode;
use std::rc::Rc;

use anyhow::Result;
use capnp::message::ReaderOptions;
use capnp_rpc::rpc_twoparty_capnp::Side;
use capnp_rpc::twoparty::VatNetwork;
use capnp_rpc::{RpcSystem, new_client};
use farcall_bench_method::alloc::Counting;
use farcall_bench_method::{Calling, Mode, Peer, SLOW, Serving, Setup, cannot, version_of};
use farcall_bench_tokio::{Call, Client, Threads};
use futures::AsyncReadExt;
use futures::io::{BufReader, BufWriter};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::compat::TokioAsyncReadCompatExt;

use echo_capnp::echo;

#[allow(missing_docs, clippy::all)]
mod echo_capnp {
    //! The Rust that capnp has generated from `echo.capnp`.
    include!("../echo_capnp.inc");
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> ExitCode {
    farcall_bench_method::agent::run(|name| (name == "capnp").then_some(Box::new(Capnp)))
}

struct Server {
    data: Vec<u8>,
}

impl echo::Server for Server {
    async fn null(self: Rc<Self>, _: echo::NullParams, _: echo::NullResults) -> capnp::Result<()> {
        Ok(())
    }

    async fn echo(
        self: Rc<Self>,
        params: echo::EchoParams,
        mut results: echo::EchoResults,
    ) -> capnp::Result<()> {
        results.get().set_data(params.get()?.get_data()?);
        Ok(())
    }

    async fn fetch(
        self: Rc<Self>,
        _: echo::FetchParams,
        mut results: echo::FetchResults,
    ) -> capnp::Result<()> {
        results.get().set_data(&self.data);
        Ok(())
    }

    async fn slow(
        self: Rc<Self>,
        params: echo::SlowParams,
        mut results: echo::SlowResults,
    ) -> capnp::Result<()> {
        tokio::time::sleep(SLOW).await;
        results.get().set_data(params.get()?.get_data()?);
        Ok(())
    }
}

struct Capnp;

impl Peer for Capnp {
    fn transport(&self) -> &'static str {
        "tcp"
    }

    fn version(&self) -> String {
        version_of("capnp-rpc")
    }

    fn serve(&self, setup: &Setup) -> Result<Box<dyn Serving>> {
        if setup.mode == Mode::Spin {
            return cannot("it does not spin");
        }
        let listen = async || {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            let address = listener.local_addr()?.to_string();
            Ok((listener, address))
        };
        let server = Server { data: vec![7; setup.bytes] };
        farcall_bench_tokio::serve(Threads::One, listen, async |listener| {
            let echo: echo::Client = new_client(server);
            loop {
                let network = network(listener.accept().await?.0, Side::Server)?;
                tokio::task::spawn_local(RpcSystem::new(network, Some(echo.clone().client)));
            }
        })
    }

    fn connect(&self, setup: &Setup, address: &str) -> Result<Box<dyn Calling>> {
        farcall_bench_tokio::connect(setup, async || {
            let network = network(TcpStream::connect(address).await?, Side::Client)?;
            let mut system = RpcSystem::new(network, None);
            let echo: echo::Client = system.bootstrap(Side::Server);
            tokio::task::spawn_local(system);
            Ok(Caller { echo, data: vec![7; setup.bytes].into() })
        })
    }
}

/// Returns one side's network. The default limit of 64 MiB for a message suffices here.
fn network(
    stream: TcpStream,
    side: Side,
) -> Result<Box<VatNetwork<BufReader<impl futures::AsyncRead + Unpin>>>> {
    stream.set_nodelay(true)?;
    let (reader, writer) = stream.compat().split();
    let network = VatNetwork::new(BufReader::new(reader), BufWriter::new(writer), side, ReaderOptions::new());
    Ok(Box::new(network))
}

#[derive(Clone)]
struct Caller {
    echo: echo::Client,
    data: Rc<[u8]>,
}

impl Client for Caller {
    async fn call(&self, call: Call) -> Result<()> {
        match call {
            Call::Null => drop(self.echo.null_request().send().promise.await?),
            Call::Echo => {
                let mut request = self.echo.echo_request();
                request.get().set_data(&self.data);
                std::hint::black_box(request.send().promise.await?.get()?.get_data()?);
            }
            Call::Slow => {
                let mut request = self.echo.slow_request();
                request.get().set_data(&self.data);
                std::hint::black_box(request.send().promise.await?.get()?.get_data()?);
            }
            Call::Fetch(bytes) => {
                let mut request = self.echo.fetch_request();
                request.get().set_bytes(bytes as u32);
                std::hint::black_box(request.send().promise.await?.get()?.get_data()?);
            }
        }
        Ok(())
    }
}
