//! A pool of threads that make blocking calls.
use std::sync::mpsc::{Receiver, Sender, channel};

use anyhow::{Result, anyhow};

/// Threads that are kept from block to block, each with the state that it needs for its calls.
pub struct Crew {
    orders: Vec<Sender<usize>>,
    done: Receiver<Result<()>>,
}

impl Crew {
    /// Returns the pool of the last block if it has as many threads, otherwise a new one in its place.
    /// `member` returns a function for each thread, which makes the given number of calls, one after the
    /// other.
    pub fn keep<C>(
        kept: &mut Option<Crew>,
        threads: usize,
        member: impl FnMut() -> Result<C>,
    ) -> Result<&Crew>
    where
        C: FnMut(usize) -> Result<()> + Send + 'static,
    {
        let crew = match kept.take() {
            Some(crew) if crew.orders.len() == threads => crew,
            _ => Crew::new(threads, member)?,
        };
        Ok(kept.insert(crew))
    }

    /// Makes `calls` calls, and waits for the last.
    pub fn run(&self, calls: usize) -> Result<()> {
        let threads = self.orders.len();
        for (n, order) in self.orders.iter().enumerate() {
            let share = calls / threads + usize::from(n < calls % threads);
            order.send(share).map_err(|_| anyhow!("a thread has ended"))?;
        }
        self.orders.iter().try_for_each(|_| self.done.recv()?)
    }

    fn new<C>(threads: usize, mut member: impl FnMut() -> Result<C>) -> Result<Crew>
    where
        C: FnMut(usize) -> Result<()> + Send + 'static,
    {
        let (sender, done) = channel();
        let mut orders = Vec::with_capacity(threads);
        for _ in 0..threads {
            let (order, ordered) = channel::<usize>();
            let (mut call, done) = (member()?, sender.clone());
            // If a thread ends by a panic, the next order to it fails.
            std::thread::Builder::new()
                .spawn(move || ordered.iter().all(|calls| done.send(call(calls)).is_ok()))?;
            orders.push(order);
        }
        Ok(Crew { orders, done })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use super::*;

    #[test]
    fn all_calls_are_made() {
        let made = Arc::new(AtomicUsize::new(0));
        let member = || {
            let made = made.clone();
            Ok(move |calls| {
                made.fetch_add(calls, Relaxed);
                Ok(())
            })
        };
        let mut kept = None;
        Crew::keep(&mut kept, 3, member).unwrap().run(10).unwrap();
        Crew::keep(&mut kept, 3, member).unwrap().run(1).unwrap();
        assert_eq!((kept.unwrap().orders.len(), made.load(Relaxed)), (3, 11));
    }
}
