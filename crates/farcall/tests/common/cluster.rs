//! A group of servers for tests, each in a runtime of its own, and a client.
#![allow(dead_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use farcall::names::{Memory, Registry};
use farcall::{Builder, Export, Group, Runtime};

#[farcall::interface]
pub trait Member {
    /// Returns the member's number plus `n`.
    fn add(&self, n: u64) -> farcall::Result<u64, String>;
    /// Returns `len` bytes.
    fn bytes(&self, len: u32) -> farcall::Result<Vec<u8>>;
    /// Waits until the call is cancelled.
    #[blocking]
    fn hang(&self) -> farcall::Result<()>;
    /// Returns `len` bytes; without `len` it waits until the call is cancelled.
    #[blocking]
    fn bytes_or_hang(&self, len: Option<u32>) -> farcall::Result<Vec<u8>>;
    /// Panics.
    fn panic(&self) -> farcall::Result<()>;
    /// Returns a greeting.
    fn greet(&self, name: &str) -> farcall::Result<String>;
}

/// A member, which counts its calls of `add`, and those of `hang` that were cancelled.
#[derive(Default)]
pub struct Server {
    pub number: u64,
    pub calls: Arc<AtomicUsize>,
    pub cancelled: Arc<AtomicUsize>,
}

impl Member for Server {
    fn add(&self, n: u64) -> farcall::Result<u64, String> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        if n == u64::MAX {
            return Err(format!("{} has no room", self.number).into());
        }
        Ok(self.number + n)
    }

    fn bytes(&self, len: u32) -> farcall::Result<Vec<u8>> {
        Ok(vec![self.number as u8; len as usize])
    }

    fn hang(&self) -> farcall::Result<()> {
        let context = farcall::context();
        while !context.is_cancelled() {
            std::thread::yield_now();
        }
        self.cancelled.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn bytes_or_hang(&self, len: Option<u32>) -> farcall::Result<Vec<u8>> {
        match len {
            Some(len) => self.bytes(len),
            None => self.hang().map(|()| Vec::new()),
        }
    }

    fn panic(&self) -> farcall::Result<()> {
        std::panic::resume_unwind(Box::new("as was asked"));
    }

    fn greet(&self, name: &str) -> farcall::Result<String> {
        Ok(format!("{name}, from {}", self.number))
    }
}

/// Servers, each in a runtime of its own, and a client.
pub struct Cluster {
    pub registry: Arc<dyn Registry>,
    pub client: Runtime,
    pub exports: Vec<Export>,
    pub calls: Arc<AtomicUsize>,
    pub cancelled: Arc<AtomicUsize>,
}

impl Cluster {
    pub fn of(members: u64) -> Cluster {
        Cluster::called_by(members, |client| client)
    }

    /// Makes a cluster whose client has further settings.
    pub fn called_by(members: u64, set: impl FnOnce(Builder) -> Builder) -> Cluster {
        let registry: Arc<dyn Registry> = Arc::new(Memory::new());
        let client = set(builder(&registry)).build().unwrap();
        let mut cluster = Cluster {
            registry,
            client,
            exports: Vec::new(),
            calls: Arc::default(),
            cancelled: Arc::default(),
        };
        (0..members).for_each(|number| cluster.join(number));
        cluster
    }

    pub fn join(&mut self, number: u64) {
        let server = Server { number, calls: self.calls.clone(), cancelled: self.cancelled.clone() };
        let export =
            runtime(&self.registry).export::<dyn Member>(&format!("Member/m{number:03}"), Arc::new(server));
        self.exports.push(export.unwrap());
    }

    /// Returns the group of all members, which follows the registry.
    pub fn group(&self) -> Group<MemberClient> {
        self.client.import_all::<dyn Member>("Member").unwrap()
    }

    /// Calls until members have noticed `count` times that a call of `hang` is cancelled. Calling once does
    /// not show it: if a member hears of the cancellation before the call has begun, it never begins.
    pub fn until_cancelled(&self, count: usize, mut call: impl FnMut()) {
        while self.cancelled.load(Ordering::SeqCst) < count {
            call();
        }
    }
}

pub fn runtime(registry: &Arc<dyn Registry>) -> Runtime {
    builder(registry).build().unwrap()
}

fn builder(registry: &Arc<dyn Registry>) -> Builder {
    // A caller waits this long before it takes a member for dead. It must be longer than any pause of a
    // living member.
    let builder = Runtime::builder().registry(registry.clone()).patience(Duration::from_secs(3));
    builder.address("127.0.0.1:0".parse().unwrap())
}
