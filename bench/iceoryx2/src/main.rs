//! iceoryx2's request-response over shared memory. Both sides poll.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use farcall_bench_method::agent;
use farcall_bench_method::alloc::Counting;
use farcall_bench_method::{Calling, Carry, Gate, Laps, Mode, Peer, Serving, Setup, cannot, version_of};
use iceoryx2::pending_response::PendingResponse;
use iceoryx2::port::client::Client;
use iceoryx2::prelude::*;
use iceoryx2::service::port_factory::request_response::PortFactory;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> ExitCode {
    agent::run(|name| (name == "iceoryx2").then_some(Box::new(Iceoryx2)))
}

type Service = PortFactory<ipc::Service, [u8], (), [u8], ()>;

struct Iceoryx2;

impl Peer for Iceoryx2 {
    fn transport(&self) -> &'static str {
        "shared memory"
    }

    fn version(&self) -> String {
        version_of("iceoryx2")
    }

    fn serve(&self, setup: &Setup) -> Result<Box<dyn Serving>> {
        if setup.mode == Mode::Block {
            return cannot("it polls: --mode spin");
        }
        if setup.carry == Carry::Argument {
            return cannot("it is not measured with long arguments");
        }
        set_log_level(LogLevel::Fatal);
        let name = format!("farcall-bench-{}", std::process::id());
        let (gate, stop) = (Gate::new(setup), Arc::new(AtomicBool::new(false)));
        let (sender, ready) = std::sync::mpsc::channel();
        let serve = {
            let (name, setup, gate, stop) = (name.clone(), *setup, gate.clone(), stop.clone());
            move || {
                let (_node, service) = service(&name, &setup)?;
                let server = service.server_builder().initial_max_slice_len(setup.bytes.max(1)).create()?;
                let data = vec![7; setup.bytes];
                sender.send(())?;
                while !stop.load(Relaxed) {
                    gate.pass();
                    while let Some(request) = server.receive()? {
                        let response = request.loan_slice_uninit(setup.bytes.max(1))?;
                        match setup.carry {
                            Carry::Both => response.write_from_slice(request.payload()).send()?,
                            _ => response.write_from_slice(&data).send()?,
                        }
                    }
                }
                anyhow::Ok(())
            }
        };
        let thread =
            std::thread::spawn(move || serve().inspect_err(|why| eprintln!("the server ended: {why:#}")));
        ready.recv().context("no server")?;
        Ok(Box::new(Polling { name, gate, stop, thread: Some(thread) }))
    }

    fn connect(&self, setup: &Setup, address: &str) -> Result<Box<dyn Calling>> {
        set_log_level(LogLevel::Fatal);
        let (node, service) = service(address, setup)?;
        let data = vec![7; if setup.carry == Carry::Both { setup.bytes.max(1) } else { 1 }];
        let client = service.client_builder().initial_max_slice_len(data.len()).create()?;
        Ok(Box::new(Caller { client, data, _node: node }))
    }
}

/// Opens the service with room for as many requests as can be outstanding. A server looks at all places: with
/// 256 places instead of 2, a call takes several times as long.
fn service(name: &str, setup: &Setup) -> Result<(Node<ipc::Service>, Service)> {
    let node = NodeBuilder::new().create::<ipc::Service>()?;
    let service = node.service_builder(&name.try_into()?).request_response::<[u8], [u8]>();
    let service =
        service.max_active_requests_per_client(setup.outstanding).max_loaned_requests(2).open_or_create()?;
    Ok((node, service))
}

/// A server that ends in order, because its shared memory would otherwise outlive it.
struct Polling {
    name: String,
    gate: Gate,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Serving for Polling {
    fn address(&self) -> String {
        self.name.clone()
    }

    fn active(&mut self, active: bool) {
        self.gate.open(active);
        self.thread.iter().for_each(|thread| thread.thread().unpark());
    }
}

impl Drop for Polling {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        self.active(true);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

struct Caller {
    client: Client<ipc::Service, [u8], (), [u8], ()>,
    data: Vec<u8>,
    _node: Node<ipc::Service>,
}

type Pending = PendingResponse<ipc::Service, [u8], (), [u8], ()>;

impl Caller {
    #[inline]
    fn start(&self) -> Result<Pending> {
        Ok(self.client.loan_slice_uninit(self.data.len())?.write_from_slice(&self.data).send()?)
    }
}

#[inline]
fn wait(pending: &Pending) -> Result<()> {
    loop {
        if let Some(response) = pending.receive()? {
            std::hint::black_box(response.payload());
            return Ok(());
        }
    }
}

impl Calling for Caller {
    fn run(&mut self, laps: &mut Laps) -> Result<()> {
        while laps.next() {
            wait(&self.start()?)?;
        }
        Ok(())
    }

    fn window(&mut self, outstanding: usize, calls: usize) -> Result<()> {
        let mut under_way: VecDeque<Pending> = VecDeque::with_capacity(outstanding);
        for _ in 0..calls {
            if under_way.len() == outstanding {
                under_way.pop_front().iter().try_for_each(wait)?;
            }
            under_way.push_back(self.start()?);
        }
        under_way.iter().try_for_each(wait)
    }
}
