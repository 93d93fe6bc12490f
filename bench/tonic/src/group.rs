//! The members of a group by tonic: a channel to each member, and one outstanding call for each.
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use anyhow::{Result, bail};
use clap::Parser;
use farcall_bench_group::{Calls, Draws, Kind, Server, Side, Work};
use farcall_bench_method::version_of;
use futures_util::future::try_join_all;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status};

use crate::generated::member_client::MemberClient;
use crate::generated::member_server::{Member, MemberServer};
use crate::{Payload, Time};

/// Runs one side of the peer.
pub fn main() -> ExitCode {
    #[derive(Parser)]
    enum Command {
        Side(Side),
    }
    let Command::Side(side) = Command::parse();
    farcall_bench_group::main(&side, serve, connect)
}

fn runtime() -> Result<LocalRuntime> {
    Ok(Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?)
}

struct Sleeper(Mutex<Draws>);

#[tonic::async_trait]
impl Member for Sleeper {
    async fn null(&self, _: Request<Payload>) -> Result<Response<Payload>, Status> {
        Ok(Response::new(Payload::default()))
    }

    /// Computes with tokio's clock, which has steps of a millisecond.
    async fn work(&self, request: Request<Time>) -> Result<Response<Payload>, Status> {
        let Time { milliseconds, distribution } = request.into_inner();
        let time = {
            let mut draws = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            draws.next(Work::from_wire(milliseconds, distribution))
        };
        tokio::time::sleep(time).await;
        Ok(Response::new(Payload::default()))
    }
}

/// Starts a thread with a runtime for each server.
fn serve(seeds: &[u64]) -> Result<Box<dyn Server>> {
    let mut addresses = Vec::new();
    for &seed in seeds {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        addresses.push(format!("http://{}", listener.local_addr()?));
        std::thread::spawn(move || -> Result<()> {
            runtime()?.block_on(async {
                let incoming = TcpIncoming::from(TcpListener::from_std(listener)?).with_nodelay(Some(true));
                let member = MemberServer::new(Sleeper(Mutex::new(Draws::new(seed))));
                Ok(tonic::transport::Server::builder()
                    .add_service(member)
                    .serve_with_incoming(incoming)
                    .await?)
            })
        });
    }
    Ok(Box::new(Servers(addresses)))
}

struct Servers(Vec<String>);

impl Server for Servers {
    fn addresses(&self) -> Vec<String> {
        self.0.clone()
    }
}

fn connect(addresses: &[String]) -> Result<Box<dyn Calls>> {
    let runtime = runtime()?;
    let mut members = Vec::new();
    for address in addresses {
        let endpoint = Endpoint::from_shared(address.clone())?.tcp_nodelay(true);
        members.push(MemberClient::new(runtime.block_on(endpoint.connect())?));
    }
    Ok(Box::new(Client { runtime, members }))
}

struct Client {
    runtime: LocalRuntime,
    members: Vec<MemberClient<Channel>>,
}

impl Calls for Client {
    fn one(&mut self, member: usize, kind: Kind) -> Result<()> {
        self.runtime.block_on(call(self.members[member].clone(), kind))
    }

    fn all(&mut self, (first, many): (usize, usize), kind: Kind, _: Option<usize>) -> Result<()> {
        let calls = self.members[first..first + many].iter().map(|member| call(member.clone(), kind));
        self.runtime.block_on(try_join_all(calls)).map(drop)
    }

    fn version(&self) -> String {
        version_of("tonic")
    }
}

/// Makes a call. In tonic, each concurrent call needs a clone of the client.
async fn call(mut member: MemberClient<Channel>, kind: Kind) -> Result<()> {
    match kind {
        Kind::Null => drop(member.null(Payload::default()).await?),
        Kind::Work(work) => {
            let (milliseconds, distribution) = work.to_wire();
            drop(member.work(Time { milliseconds, distribution }).await?);
        }
        Kind::Fetch(_) | Kind::Store(_) => bail!("it is measured with short calls only"),
    }
    Ok(())
}
