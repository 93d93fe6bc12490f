//! Both ends of the calls that are counted: a server in a process of its own, and processes that call it.

use std::env;
use std::io::Read as _;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::common::builder;
use crate::counting;
use crate::execution_log::Mortal;

/// What a process is that a test starts.
pub const ROLE: &str = "FARCALL_TEST_ROLE";
/// Where the server is that a process calls, or all servers, separated by spaces.
pub const URLS: &str = "FARCALL_TEST_URLS";
/// How many servers a process has.
const SERVERS: &str = "FARCALL_TEST_SERVERS";
/// Whether a process may use shared memory.
const MEMORY: &str = "FARCALL_TEST_MEMORY";
/// Says whether any process may use shared memory. Here each test decides.
const ANY_MEMORY: &str = "FARCALL_SHM";

const PROCESS: &str = "a_process_that_a_test_starts";

#[farcall::interface]
pub trait Probe {
    fn null(&self) -> farcall::Result<()>;
    /// Returns how many bytes there are.
    fn take(&self, bytes: &[u8]) -> farcall::Result<u32>;
    fn give_32(&self) -> farcall::Result<[u8; 32]>;
    fn give_1000(&self) -> farcall::Result<[u8; 1000]>;
    /// Returns the bytes. Each end allocates them once.
    fn copy(&self, bytes: &[u8]) -> farcall::Result<Vec<u8>>;
    fn refuse(&self, code: u32) -> farcall::Result<(), Refused>;
    #[blocking]
    fn block(&self) -> farcall::Result<()>;
    /// Returns at once if the server's number is smaller, and otherwise when the call is cancelled.
    #[blocking]
    fn wait_from(&self, number: u32) -> farcall::Result<()>;
    /// Returns how many allocations the server's process has made.
    fn allocations(&self) -> farcall::Result<u64>;
}

#[derive(Debug, PartialEq, Eq, farcall::Xdr)]
pub struct Refused {
    pub code: u32,
}

/// A server with a number.
struct Server(u32);

impl Probe for Server {
    fn null(&self) -> farcall::Result<()> {
        Ok(())
    }
    fn take(&self, bytes: &[u8]) -> farcall::Result<u32> {
        Ok(bytes.len() as u32)
    }
    fn give_32(&self) -> farcall::Result<[u8; 32]> {
        Ok([32; 32])
    }
    fn give_1000(&self) -> farcall::Result<[u8; 1000]> {
        Ok([100; 1000])
    }
    fn copy(&self, bytes: &[u8]) -> farcall::Result<Vec<u8>> {
        Ok(bytes.to_vec())
    }
    fn refuse(&self, code: u32) -> farcall::Result<(), Refused> {
        Err(Refused { code }.into())
    }
    fn block(&self) -> farcall::Result<()> {
        Ok(())
    }
    fn wait_from(&self, number: u32) -> farcall::Result<()> {
        if self.0 >= number {
            farcall::context().cancelled().wait(Duration::from_secs(3600));
        }
        Ok(())
    }
    fn allocations(&self) -> farcall::Result<u64> {
        Ok(counting::allocations())
    }
}

/// Starts a process with this many servers, and returns it and their URLs.
pub fn start_servers(servers: usize, memory: bool) -> (Mortal, String) {
    Mortal::start(PROCESS, |command| {
        command.env(ROLE, "server").env(SERVERS, servers.to_string()).env(MEMORY, memory.to_string());
        command.env_remove(ANY_MEMORY);
    })
}

/// Serves until the standard input ends.
pub fn serve() {
    let servers = env::var(SERVERS).unwrap().parse().unwrap();
    let memory = env::var(MEMORY).unwrap() == "true";
    let serve = |number: u32| {
        let runtime = builder().shared_memory(memory).build().unwrap();
        let export =
            runtime.export::<dyn Probe>(&format!("Probe/p{number}"), Arc::new(Server(number))).unwrap();
        (export.url(), export, runtime)
    };
    let servers: Vec<_> = (0..servers).map(serve).collect();
    let urls: Vec<_> = servers.iter().map(|(url, ..)| &url[..]).collect();
    println!("\nready {}", urls.join(" "));
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// Waits until no other test of this program runs. They would disturb one another on a machine with few
/// processors: a call that waits for 20 ms is sent again.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets a command run this program as a process with this role. The process calls these servers.
pub fn in_role(command: &mut Command, role: &str, urls: &str) -> Output {
    command.args(["--exact", PROCESS, "--nocapture"]).env(ROLE, role).env(URLS, urls).env_remove(ANY_MEMORY);
    command.output().unwrap()
}

/// Runs a process with this role. Fails if the process fails.
pub fn run(role: &str, urls: &str) {
    let ended = in_role(&mut Command::new(env::current_exe().unwrap()), role, urls);
    let [said, complained] = [&ended.stdout, &ended.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    println!("{said}");
    assert!(ended.status.success(), "{said}{complained}");
}

/// Returns the URLs of the servers that this process calls.
pub fn urls() -> Vec<String> {
    env::var(URLS).unwrap().split(' ').map(str::to_owned).collect()
}
