//! Prints how soon calls begin that all wait: 600 that sleep, and 300 that wait for one more call.
//!
//! `cargo run --release -p farcall --example waiting_calls`

use std::io::{self, Write as _};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use farcall::Runtime;
use farcall::names::Memory;

#[farcall::interface]
trait Waits {
    /// Sleeps for two seconds.
    fn sleep(&self) -> farcall::Result<()>;
    /// Waits until `wake` is called.
    fn wait(&self) -> farcall::Result<()>;
    fn wake(&self) -> farcall::Result<()>;
}

struct Server {
    begun: Mutex<Sender<Instant>>,
    awake: Mutex<bool>,
    woken: Condvar,
}

impl Waits for Server {
    fn sleep(&self) -> farcall::Result<()> {
        let _ = self.begun.lock().unwrap().send(Instant::now());
        std::thread::sleep(Duration::from_secs(2));
        Ok(())
    }

    fn wait(&self) -> farcall::Result<()> {
        drop(self.woken.wait_while(self.awake.lock().unwrap(), |awake| !*awake).unwrap());
        Ok(())
    }

    fn wake(&self) -> farcall::Result<()> {
        *self.awake.lock().unwrap() = true;
        self.woken.notify_all();
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for shared in [false, true] {
        let (begun, begins) = channel();
        let of = || {
            let builder = Runtime::builder().registry(Memory::new()).address(([127, 0, 0, 1], 0).into());
            builder.shared_memory(shared).build()
        };
        let (there, here) = (of()?, of()?);
        let server =
            Arc::new(Server { begun: Mutex::new(begun), awake: Mutex::default(), woken: Condvar::new() });
        let export = there.export::<dyn Waits>("Waits", server)?;
        let waits = here.import::<dyn Waits>(&export.url())?;
        let start = Instant::now();
        let sleeping: Vec<_> = (0..600).map(|_| waits.start().sleep()).collect();
        let last = (0..600).filter_map(|_| begins.recv().ok()).max().unwrap_or(start);
        let carrier = if shared { "shared memory" } else { "UDP" };
        writeln!(io::stdout(), "{carrier}: the last of 600 sleeps began after {:?}", last - start)?;
        sleeping.into_iter().try_for_each(|call| call.wait())?;
        let start = Instant::now();
        let waiting: Vec<_> = (0..300).map(|_| waits.start().wait()).collect();
        waits.wake()?;
        waiting.into_iter().try_for_each(|call| call.wait())?;
        writeln!(io::stdout(), "{carrier}: 300 waits and their end took {:?}", start.elapsed())?;
    }
    Ok(())
}
