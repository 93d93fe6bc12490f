//! gRPC by tonic: HTTP/2 over TCP, protobuf messages by prost.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use anyhow::{Result, ensure};
use bytes::Bytes;
use farcall_bench_method::alloc::Counting;
use farcall_bench_method::{Calling, Laps, Mode, Peer, SLOW, Serving, Setup, cannot, version_of};
use farcall_bench_tokio::{Call, Client, Threads};
use futures_util::stream::{self, BoxStream};
use tokio::net::TcpListener;
use tokio::runtime::LocalRuntime;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status};

use generated::echo_client::EchoClient;
use generated::echo_server::{Echo, EchoServer};

mod group;

#[allow(missing_docs, clippy::all)]
mod generated {
    //! The Rust that `build.rs` has generated.
    include!(concat!(env!("OUT_DIR"), "/bench.Echo.rs"));
    include!(concat!(env!("OUT_DIR"), "/bench.Member.rs"));
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> ExitCode {
    if std::env::args().nth(1).is_some_and(|word| word == "side") {
        return group::main();
    }
    farcall_bench_method::agent::run(|name| match name {
        "tonic" => Some(Box::new(Tonic::Calls(Threads::One))),
        "tonic-threads" => Some(Box::new(Tonic::Calls(Threads::Many))),
        "tonic-stream" => Some(Box::new(Tonic::Stream)),
        "tonic-channel" => Some(Box::new(Tonic::Channel)),
        _ => None,
    })
}

/// The payload of a call or of its result.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Payload {
    #[prost(bytes = "bytes", tag = "1")]
    data: Bytes,
}

/// A mean and a distribution of computation times.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Time {
    #[prost(uint32, tag = "1")]
    milliseconds: u32,
    #[prost(uint32, tag = "2")]
    distribution: u32,
}

/// The number of bytes, or of items, that the server returns.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Size {
    #[prost(uint32, tag = "1")]
    bytes: u32,
}

struct Server {
    data: Bytes,
    /// Whether the items of a stream come from another task, by a channel, as in tonic's own examples.
    channel: bool,
}

#[tonic::async_trait]
impl Echo for Server {
    async fn echo(&self, request: Request<Payload>) -> Result<Response<Payload>, Status> {
        Ok(Response::new(request.into_inner()))
    }

    async fn slow(&self, request: Request<Payload>) -> Result<Response<Payload>, Status> {
        tokio::time::sleep(SLOW).await;
        Ok(Response::new(request.into_inner()))
    }

    async fn fetch(&self, _: Request<Size>) -> Result<Response<Payload>, Status> {
        Ok(Response::new(Payload { data: self.data.clone() }))
    }

    type ItemsStream = BoxStream<'static, Result<Payload, Status>>;

    async fn items(&self, request: Request<Size>) -> Result<Response<Self::ItemsStream>, Status> {
        let (data, count) = (self.data.clone(), request.into_inner().bytes);
        let items = (0..count).map(move |_| Ok(Payload { data: data.clone() }));
        if !self.channel {
            return Ok(Response::new(Box::pin(stream::iter(items))));
        }
        let (send, mut receive) = tokio::sync::mpsc::channel(128);
        tokio::spawn(async move {
            for item in items {
                if send.send(item).await.is_err() {
                    return;
                }
            }
        });
        Ok(Response::new(Box::pin(stream::poll_fn(move |context| receive.poll_recv(context)))))
    }
}

enum Tonic {
    Calls(Threads),
    /// The items of one stream, which the server makes of an iterator, take the place of calls.
    Stream,
    /// The items of one stream take the place of calls. They come from another task of the server.
    Channel,
}

impl Tonic {
    fn threads(&self) -> Threads {
        match self {
            Tonic::Calls(threads) => *threads,
            Tonic::Stream | Tonic::Channel => Threads::One,
        }
    }
}

impl Peer for Tonic {
    fn transport(&self) -> &'static str {
        "http/2 tcp"
    }

    fn version(&self) -> String {
        version_of("tonic")
    }

    fn serve(&self, setup: &Setup) -> Result<Box<dyn Serving>> {
        if setup.mode == Mode::Spin {
            return cannot("it does not spin");
        }
        let listen = async || {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            let address = format!("http://{}", listener.local_addr()?);
            Ok((listener, address))
        };
        let server = Server { data: vec![7; setup.bytes].into(), channel: matches!(self, Tonic::Channel) };
        farcall_bench_tokio::serve(self.threads(), listen, async |listener| {
            let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
            let echo = EchoServer::new(server).max_decoding_message_size(usize::MAX);
            Ok(tonic::transport::Server::builder().add_service(echo).serve_with_incoming(incoming).await?)
        })
    }

    fn connect(&self, setup: &Setup, address: &str) -> Result<Box<dyn Calling>> {
        if !matches!(self, Tonic::Calls(_)) {
            let runtime = farcall_bench_tokio::runtime()?;
            let endpoint = Endpoint::from_shared(address.to_owned())?.tcp_nodelay(true);
            let echo = EchoClient::new(runtime.block_on(endpoint.connect())?);
            return Ok(Box::new(Items { runtime, echo }));
        }
        let connect = async || {
            let channel = Endpoint::from_shared(address.to_owned())?.tcp_nodelay(true).connect().await?;
            let echo = EchoClient::new(channel).max_decoding_message_size(usize::MAX);
            Ok(Caller { echo, data: vec![7; setup.bytes].into() })
        };
        let call = |caller: Caller, call| async move { caller.call(call).await };
        farcall_bench_tokio::connect_on(self.threads(), setup, connect, call)
    }
}

/// Takes items of streams.
struct Items {
    runtime: LocalRuntime,
    echo: EchoClient<Channel>,
}

impl Calling for Items {
    fn run(&mut self, laps: &mut Laps) -> Result<()> {
        while laps.next() {
            self.window(1, 1)?;
        }
        Ok(())
    }

    /// Takes `calls` items from one stream, whatever number would be outstanding.
    fn window(&mut self, _: usize, calls: usize) -> Result<()> {
        let Items { runtime, echo } = self;
        runtime.block_on(async {
            let mut items = echo.items(Size { bytes: calls as u32 }).await?.into_inner();
            let mut taken = 0;
            while let Some(item) = items.message().await? {
                taken += usize::from(item.data.len() == 32);
            }
            ensure!(taken == calls, "{taken} items of {calls}");
            Ok(())
        })
    }
}

#[derive(Clone)]
struct Caller {
    echo: EchoClient<Channel>,
    data: Bytes,
}

impl Client for Caller {
    /// Makes a call. In tonic, each concurrent call on one connection needs a clone of the client.
    async fn call(&self, call: Call) -> Result<()> {
        let mut echo = self.echo.clone();
        let payload = || Payload { data: self.data.clone() };
        let response = match call {
            Call::Null | Call::Echo => echo.echo(payload()).await?,
            Call::Slow => echo.slow(payload()).await?,
            Call::Fetch(bytes) => echo.fetch(Size { bytes: bytes as u32 }).await?,
        };
        std::hint::black_box(response);
        Ok(())
    }
}
