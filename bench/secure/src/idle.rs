//! The server's memory per idle secure conversation, and the resumption of conversations that it has
//! forgotten.
use std::collections::HashSet;
use std::time::Duration;

use anyhow::{Result, ensure};
use farcall_bench_method::{alloc, conditions};
use farcall_proto::{Ran, ServerConfig};

use crate::world::{Client, Ended, World};

/// The least number of conversations. With fewer, the server's fixed memory counts too much.
const FIRST_SAMPLE: usize = 10_000;

/// The most bytes that an idle conversation may take.
const MOST: f64 = 250.0;

#[derive(Debug, clap::Args)]
pub struct Idle {
    /// The number of conversations.
    #[arg(long, default_value_t = 100_000)]
    conversations: usize,
    /// How many conversations are begun between two times at which the memory is looked at.
    #[arg(long, default_value_t = 100)]
    step: usize,
}

/// Measures, prints, and fails if a requirement is not met.
pub fn run(idle: &Idle) -> Result<()> {
    let mean = memory(idle)?;
    alloc::counting(false);
    resumptions(idle.conversations)?;
    conditions::conditions(&[]).iter().for_each(|line| println!("{line}"));
    ensure!(mean <= MOST, "an idle conversation takes {mean:.1} bytes, not {MOST}");
    Ok(())
}

/// Begins conversations, each by a client that makes one call and is gone, and looks at the server's memory
/// when the server waits for nothing. Returns the bytes for each of all conversations.
fn memory(idle: &Idle) -> Result<f64> {
    alloc::counting(true);
    let mut world = World::new(ServerConfig::default());
    let (mut worst, mut peak) = ((0, 0.0), 0.0_f64);
    for n in 1..=idle.conversations {
        world.converse()?;
        world.executed = Default::default();
        if n % idle.step == 0 {
            let most = alloc::peak_bytes();
            world.settle()?;
            let each = world.each(alloc::live_bytes(), n);
            if n >= FIRST_SAMPLE {
                peak = peak.max(world.each(most, n));
                worst = if each > worst.1 { (n, each) } else { worst };
            }
        }
    }
    world.settle()?;
    world.all_there(idle.conversations)?;
    let mean = world.each(alloc::live_bytes(), idle.conversations);
    println!(
        "idle secure conversations: {}; {mean:.1} bytes each at the server; worst {:.1} at {}; peak while \
         conversations begin {peak:.1}; each client has a key of its own",
        idle.conversations, worst.1, worst.0
    );
    Ok(mean)
}

/// Has a server forget the older half of its conversations. Then the clients of all of them call again, until
/// they get a result.
fn resumptions(count: usize) -> Result<()> {
    let mut world = World::new(ServerConfig::default());
    let mut clients = (0..count).map(|_| world.converse()).collect::<Result<Vec<Client>>>()?;
    let old: HashSet<[u8; 32]> = clients[..count / 2].iter().map(|client| client.key).collect();
    let (now, handshakes) = (world.now, world.handshakes());
    world.server.forget_revoked(now, |principal| !old.contains(&principal.key));
    ensure!(world.server.conversations() == count - old.len());
    // The server can say of the calls that follow that they began after it had forgotten.
    world.now = now + Duration::from_secs(1);
    world.executed.clear();
    let mut refused = 0;
    for client in &mut clients {
        let mut ended = world.call(client)?;
        while let Ended::Failed(kind, Ran::No) = ended {
            ensure!(refused < count, "clients are refused again and again: {kind:?}");
            refused += 1;
            ended = world.call(client)?;
        }
        ensure!(ended == Ended::Returned, "a client's call ended so: {ended:?}");
    }
    let (computed, executed) = (world.handshakes() - handshakes, world.executed.len());
    println!(
        "resumption: the server forgot the {} oldest conversations of {count}; then all clients called again: all \
         got a result, after {refused} calls that were refused, `No`; {executed} calls were executed, {} of them \
         twice; {computed} handshakes; {} conversations at the end",
        old.len(),
        world.executed_twice(),
        world.server.conversations()
    );
    ensure!(world.executed_twice() == 0 && executed == count && computed == 0);
    world.settle()?;
    world.all_there(count)
}
