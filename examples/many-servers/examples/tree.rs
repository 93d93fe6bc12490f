//! A tree of servers in the simulation, and the cost of a call of all of them. Run it by `cargo run --profile
//! soak --example tree -- 100 1000` for 100 nodes with 1000 leaves each, or with `-- 1 10000` for one caller
//! with 10,000 members.
//!
//! One simulated process exports all leaves of a node, because a process for each would need too many
//! threads. Each leaf is still an export of its own, with its own binding and calls.

use std::io::{Write as _, stdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use farcall::Runtime;
use farcall_many_servers::tree::{Census, Counted, Leaf, Node};
use farcall_sim::{Sim, replay, sim};

/// The measurements, summed over all processes where that makes sense.
#[derive(Default)]
struct Figures {
    set_up_ms: AtomicU64,
    virtual_us: AtomicU64,
    real_us: AtomicU64,
    datagrams: AtomicU64,
    again: AtomicU64,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut numbers = std::env::args().skip(1).map(|number| number.parse());
    let nodes: u64 = numbers.next().unwrap_or(Ok(10))?;
    let leaves: u64 = numbers.next().unwrap_or(Ok(100))?;
    let seed: u64 = numbers.next().unwrap_or(Ok(1))?;
    let figures = Arc::new(Figures::default());
    let began = Instant::now();
    let passed = {
        let figures = figures.clone();
        replay(seed, move |sim| census(sim, nodes, leaves, &figures))?
    };
    let get = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
    writeln!(stdout(), "{nodes} nodes with {leaves} leaves each, seed {seed}: {} members", nodes * leaves)?;
    writeln!(stdout(), "to export and bind them: {} ms virtual", get(&figures.set_up_ms))?;
    writeln!(
        stdout(),
        "the call of all: {} us virtual, {} us real",
        get(&figures.virtual_us),
        get(&figures.real_us)
    )?;
    writeln!(
        stdout(),
        "datagrams for that: {}, of them sent again: {}",
        get(&figures.datagrams),
        get(&figures.again)
    )?;
    writeln!(stdout(), "all of it: {:?} virtual, {:?} real, {}", passed.time, began.elapsed(), peak())?;
    Ok(())
}

fn census(sim: &Sim, nodes: u64, leaves: u64, figures: &Arc<Figures>) -> farcall::Result<()> {
    let ready = Arc::new(AtomicU64::new(0));
    let runtimes = Arc::new(std::sync::Mutex::new(vec![Runtime::current()?]));
    for node in 0..nodes {
        let (ready, keep) = (ready.clone(), runtimes.clone());
        sim.server(&format!("leaves of {node}"), move || {
            keep.lock().unwrap().push(Runtime::current()?);
            let names = (0..leaves).map(|leaf| format!("Census/{node}-{leaf}"));
            let exports = names.map(|name| farcall::export::<dyn Census>(&name, Arc::new(Leaf)));
            let exports: Vec<_> = exports.collect::<farcall::Result<_>>()?;
            exports.into_iter().next().map_or(Ok(()), |first| first.wait())
        });
        let keep = runtimes.clone();
        sim.server(&format!("node {node}"), move || {
            keep.lock().unwrap().push(Runtime::current()?);
            let names: Vec<String> = (0..leaves).map(|leaf| format!("Census/{node}-{leaf}")).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let below = farcall::import_each::<dyn Census>(&names)?;
            let export = farcall::export::<dyn Census>(&format!("Census/{node}"), Arc::new(Node(below)))?;
            ready.fetch_add(1, Ordering::SeqCst);
            export.wait()
        });
    }
    while ready.load(Ordering::SeqCst) < nodes {
        sim.sleep(Duration::from_millis(1));
    }
    let names: Vec<String> = (0..nodes).map(|node| format!("Census/{node}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let root = Node(farcall::import_each::<dyn Census>(&names)?);
    figures.set_up_ms.store(sim::now().as_millis() as u64, Ordering::Relaxed);
    measure(&root, nodes * leaves, &runtimes, figures)
}

/// Measures the second call, because the first one sets up all conversations.
fn measure(
    root: &Node,
    members: u64,
    runtimes: &std::sync::Mutex<Vec<Runtime>>,
    figures: &Figures,
) -> farcall::Result<()> {
    // The callers count both directions: datagrams, and retransmitted calls.
    let sent = || {
        let stats = runtimes.lock().unwrap().iter().map(Runtime::stats).collect::<Vec<_>>();
        let conversations = stats.iter().flat_map(|stats| &stats.peers).map(|peer| peer.conversation);
        conversations.fold((0, 0), |(datagrams, again), one| {
            (datagrams + one.sent + one.received, again + one.retransmitted)
        })
    };
    root.count()?;
    let (before, real, (datagrams, again)) = (sim::now(), Instant::now(), sent());
    let counted = root.count()?;
    figures.virtual_us.store((sim::now() - before).as_micros() as u64, Ordering::Relaxed);
    figures.real_us.store(real.elapsed().as_micros() as u64, Ordering::Relaxed);
    figures.datagrams.store(sent().0 - datagrams, Ordering::Relaxed);
    figures.again.store(sent().1 - again, Ordering::Relaxed);
    assert_eq!(counted, Counted { present: members, missing: 0 });
    Ok(())
}

/// Returns the most memory that this process has had, if the system reports it.
fn peak() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    line.map_or_else(
        || "memory unknown".to_owned(),
        |line| line.split_whitespace().skip(1).collect::<Vec<_>>().join(" ") + " at most",
    )
}
