//! tarpc over TCP with bincode, its fastest format.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use farcall_bench_method::alloc::Counting;
use farcall_bench_method::{Calling, Mode, Peer, SLOW, Serving, Setup, cannot, version_of};
use farcall_bench_tokio::{Call, Client, Threads};
use futures::StreamExt;
use serde_bytes::ByteBuf;
use tarpc::serde_transport::tcp;
use tarpc::server::{BaseChannel, Channel};
use tarpc::tokio_serde::formats::Bincode;
use tarpc::{client, context};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> ExitCode {
    farcall_bench_method::agent::run(|name| match name {
        "tarpc" => Some(Box::new(Tarpc(Threads::One))),
        "tarpc-threads" => Some(Box::new(Tarpc(Threads::Many))),
        _ => None,
    })
}

/// The arguments are `ByteBuf`, because serde handles the bytes of a `Vec<u8>` one by one.
#[tarpc::service]
trait Echo {
    async fn null();
    async fn echo(data: ByteBuf) -> ByteBuf;
    async fn fetch(bytes: u32) -> ByteBuf;
    async fn slow(data: ByteBuf) -> ByteBuf;
}

#[derive(Clone)]
struct Server {
    data: Arc<[u8]>,
}

impl Echo for Server {
    async fn null(self, _: context::Context) {}

    async fn echo(self, _: context::Context, data: ByteBuf) -> ByteBuf {
        data
    }

    async fn fetch(self, _: context::Context, _: u32) -> ByteBuf {
        ByteBuf::from(self.data.to_vec())
    }

    async fn slow(self, _: context::Context, data: ByteBuf) -> ByteBuf {
        tokio::time::sleep(SLOW).await;
        data
    }
}

struct Tarpc(Threads);

impl Peer for Tarpc {
    fn transport(&self) -> &'static str {
        "tcp"
    }

    fn version(&self) -> String {
        version_of("tarpc")
    }

    fn serve(&self, setup: &Setup) -> Result<Box<dyn Serving>> {
        if setup.mode == Mode::Spin {
            return cannot("it does not spin");
        }
        let listen = async || {
            let mut incoming = tcp::listen("127.0.0.1:0", Bincode::default).await?;
            incoming.config_mut().max_frame_length(usize::MAX);
            let address = incoming.local_addr().to_string();
            Ok((incoming, address))
        };
        let server = Server { data: vec![7; setup.bytes].into() };
        farcall_bench_tokio::serve(self.0, listen, async move |mut incoming| {
            while let Some(transport) = incoming.next().await {
                let transport = transport?;
                transport.get_ref().set_nodelay(true)?;
                let requests = BaseChannel::with_defaults(transport).execute(server.clone().serve());
                tokio::spawn(requests.for_each(async |request| drop(tokio::spawn(request))));
            }
            Ok(())
        })
    }

    fn connect(&self, setup: &Setup, address: &str) -> Result<Box<dyn Calling>> {
        let connect = async || {
            let mut connect = tcp::connect(address, Bincode::default);
            connect.config_mut().max_frame_length(usize::MAX);
            let transport = connect.await?;
            transport.get_ref().set_nodelay(true)?;
            let echo = EchoClient::new(client::Config::default(), transport).spawn();
            Ok(Caller { echo, data: ByteBuf::from(vec![7; setup.bytes]) })
        };
        let call = |caller: Caller, call| async move { caller.call(call).await };
        farcall_bench_tokio::connect_on(self.0, setup, connect, call)
    }
}

#[derive(Clone)]
struct Caller {
    echo: EchoClient,
    data: ByteBuf,
}

impl Client for Caller {
    async fn call(&self, call: Call) -> Result<()> {
        let context = context::current();
        match call {
            Call::Null => self.echo.null(context).await?,
            Call::Echo => drop(std::hint::black_box(self.echo.echo(context, self.data.clone()).await?)),
            Call::Slow => drop(std::hint::black_box(self.echo.slow(context, self.data.clone()).await?)),
            Call::Fetch(bytes) => drop(std::hint::black_box(self.echo.fetch(context, bytes as u32).await?)),
        }
        Ok(())
    }
}
