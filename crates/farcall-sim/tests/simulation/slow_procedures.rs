//! Tests how often a slow procedure runs at a server of ONC RPC that remembers no calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use farcall_onc::{Client, Server};
use farcall_sim::{check, sim};

#[farcall::interface(program = 0x2000_0178, version = 1)]
trait Slow {
    #[procedure(0)]
    fn null(&self) -> farcall::Result<()>;
    #[procedure(1)]
    fn pay(&self) -> farcall::Result<u32>;
    #[procedure(2)]
    #[idempotent]
    fn look(&self) -> farcall::Result<u32>;
}

/// Counts its calls, each of which takes three seconds.
#[derive(Default)]
struct Shop(Arc<AtomicU32>);

impl Shop {
    fn run(&self) -> u32 {
        let count = self.0.fetch_add(1, Relaxed) + 1;
        sim::sleep(Duration::from_secs(3));
        count
    }
}

impl Slow for Shop {
    fn null(&self) -> farcall::Result<()> {
        self.run();
        Ok(())
    }

    fn pay(&self) -> farcall::Result<u32> {
        Ok(self.run())
    }

    fn look(&self) -> farcall::Result<u32> {
        Ok(self.run())
    }
}

#[test]
fn a_procedure_of_three_seconds_that_may_not_repeat_runs_once_without_a_duplicate_cache() {
    check(10, |sim| {
        let count = Arc::new(AtomicU32::new(0));
        let counted = count.clone();
        let server = sim.server("server", move || {
            let shop = Arc::new(Shop(counted.clone()));
            let server = Server::builder().program::<dyn Slow>(shop).retention(None);
            let _server = server.address(([0, 0, 0, 0], 1).into()).start().expect("a free port");
            sim::sleep(Duration::from_secs(3600));
        });
        sim.host("server.example", &[&server]);
        let shop = Client::connect("udp://server.example:1").expect("an address").bind::<dyn Slow>();
        shop.pay()?;
        shop.start().pay().wait()?;
        sim.sleep(Duration::from_secs(30));
        assert_eq!(count.swap(0, Relaxed), 2, "each of the two calls ran once");
        shop.look()?;
        shop.null()?;
        sim.sleep(Duration::from_secs(30));
        assert!(count.load(Relaxed) > 2, "what may repeat is sent again sooner");
        Ok::<(), farcall::Error>(())
    });
}
