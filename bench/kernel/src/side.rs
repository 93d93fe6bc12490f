//! What the processes in the namespaces do: export a segment, send datagrams back, or measure.

use std::collections::HashMap;
use std::net::UdpSocket;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use farcall::Runtime;
use farcall::memory::{Memory as _, Remote, Rights, Settings};
use farcall::names::Memory;
use farcall_xdp::Kernel;

#[derive(clap::Args)]
pub struct Side {
    /// What to do.
    role: String,
    /// An address, an interface.
    words: Vec<String>,
}

/// The lengths of the datagrams of a 32-byte read and of its result.
const ASKED_BYTES: usize = 80;
const ANSWER_BYTES: usize = 88;

pub fn run(side: &Side) -> Result<()> {
    let word = |which: usize| side.words.get(which).map(String::as_str).unwrap_or_default();
    match side.role.as_str() {
        "exporter" => export(word(0), word(1)),
        "echo" => echo(),
        "importer" => import(word(0)),
        role => bail!("no role {role}"),
    }
}

/// Says that this side is ready, and answers orders from then on.
fn obey(mut act: impl FnMut(&[&str]) -> Result<String>) -> Result<()> {
    println!("ready");
    for line in std::io::stdin().lines() {
        println!("{}", act(&line?.split(' ').collect::<Vec<_>>())?);
    }
    Ok(())
}

fn export(address: &str, interface: &str) -> Result<()> {
    let mut builder = Runtime::builder().registry(Memory::new()).address(address.parse()?).open();
    if !interface.is_empty() {
        builder = builder.kernel_served(interface);
    }
    let runtime = builder.advertise(address.parse()?).build()?;
    let segment = runtime.export_segment("Load", Settings::new(4096).anyone(Rights::READ))?;
    let answered =
        || runtime.stats().exports.iter().filter_map(|export| export.answered_by_kernel).sum::<u64>();
    obey(|order| {
        Ok(match order {
            ["url"] => segment.url(),
            ["answered"] => answered().to_string(),
            ["kernel"] => format!("{:?}", runtime.stats().kernel),
            _ => bail!("no order {order:?}"),
        })
    })
}

/// Sends each datagram back, as long as an answer.
fn echo() -> Result<()> {
    let socket = UdpSocket::bind("0.0.0.0:7002")?;
    println!("ready");
    let mut datagram = [0; 2048];
    loop {
        let (_, from) = socket.recv_from(&mut datagram)?;
        socket.send_to(&datagram[..ANSWER_BYTES], from)?;
    }
}

fn import(interface: &str) -> Result<()> {
    // A veth pair delivers what a native program sends only if there is a program at this end, too.
    let passes = (!interface.is_empty()).then(|| Kernel::load(&[interface.to_owned()])).transpose()?;
    let runtime = Runtime::builder().registry(Memory::new()).build()?;
    let mut remotes: HashMap<String, Remote> = HashMap::new();
    let mut sockets = HashMap::new();
    for (way, address) in [("raw", "10.78.0.1:7002"), ("plain", "10.79.0.1:7002")] {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.connect(address)?;
        sockets.insert(way, socket);
    }
    obey(|order| match order {
        ["import", way, url] => {
            remotes.insert((*way).to_owned(), runtime.import_segment(url)?);
            Ok("imported".to_owned())
        }
        ["measure", way, trips] => {
            let trips: u32 = trips.parse()?;
            let begun = Instant::now();
            if let Some(socket) = sockets.get(way) {
                let mut answer = [0; 2048];
                for _ in 0..trips {
                    socket.send(&[7; ASKED_BYTES])?;
                    socket.recv(&mut answer)?;
                }
            } else {
                let remote = remotes.get(*way).context("no such way")?;
                let mut bytes = [0; 32];
                for trip in 0..u64::from(trips) {
                    remote.read(trip * 32 % 4096, &mut bytes)?;
                }
            }
            Ok((begun.elapsed().as_nanos() as f64 / f64::from(trips)).to_string())
        }
        _ => bail!("no order {order:?}"),
    })?;
    drop(passes);
    Ok(())
}
