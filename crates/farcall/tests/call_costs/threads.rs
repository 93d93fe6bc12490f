//! Counts the threads that blocking calls start at the client.

use std::io;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crate::common::builder;
use crate::ends::{Probe, ProbeClient, alone, run, start_servers, urls};
use farcall::env::Env;
use farcall::multi::{Fixed, Rest};
use farcall::{Group, System};

const SERVERS: usize = 20;
/// As many of the servers answer a call that the others let wait.
const PROMPT: usize = 15;

/// The operating system, except that it notes which threads are started.
#[derive(Default)]
struct Threads {
    started: Mutex<Vec<String>>,
    /// How many of them have ended.
    ended: Arc<(Mutex<usize>, Condvar)>,
}

#[test]
fn blocking_calls_over_udp_start_no_thread_at_the_client() {
    let _alone = alone();
    let (_servers, urls) = start_servers(SERVERS, false);
    run("caller over UDP that counts threads", &urls);
}

#[test]
fn blocking_calls_through_shared_memory_start_no_thread_at_the_client() {
    let _alone = alone();
    let (_servers, urls) = start_servers(SERVERS, true);
    run("caller through shared memory that counts threads", &urls);
}

/// Runs in a process that calls over UDP.
pub fn count_over_udp() {
    let env = Arc::new(Threads::default());
    let runtime = builder().env(env.clone()).shared_memory(false).build().unwrap();
    let before = tasks();
    let (urls, imported) = (urls(), of_keys());
    let probes: Vec<ProbeClient> = urls.iter().map(|url| runtime.import::<dyn Probe>(url).unwrap()).collect();
    let names: Vec<&str> = urls.iter().map(|url| &url[..]).collect();
    let together = runtime.import_each::<dyn Probe>(&names).unwrap();
    assert_eq!(env.started(), imported, "imports over UDP");
    call_each(&probes);
    call_at_once(&together);
    call_at_once(&group_of(probes));
    assert_eq!(env.started(), imported, "blocking calls over UDP");
    // No thread was started without `Env` either.
    assert_eq!(tasks(), before + imported.len(), "threads of this process");

    leave_calls(&together);
    leave_calls(&together);
    assert_eq!(
        env.started(),
        [&imported[..], &["farcall-service"]].concat(),
        "group calls that leave calls to finish"
    );

    let by_host = urls[0].replace("127.0.0.1", "localhost");
    runtime.import::<dyn Probe>(&by_host).unwrap().null().unwrap();
    let resolved = [&imported[..], &["farcall-service", "farcall-aside"]].concat();
    assert_eq!(env.started(), resolved, "an import by the name of a host");
}

/// Runs in a process that calls through shared memory.
pub fn count_through_shared_memory() {
    let env = Arc::new(Threads::default());
    let runtime = builder().env(env.clone()).shared_memory(true).build().unwrap();
    let probes: Vec<ProbeClient> =
        urls().iter().map(|url| runtime.import::<dyn Probe>(url).unwrap()).collect();
    let imported = [of_keys(), vec!["farcall-meet"; SERVERS]].concat();
    assert_eq!(env.started(), imported, "imports through shared memory");
    env.wait_for_ends(SERVERS);
    call_each(&probes);
    call_at_once(&group_of(probes));
    assert_eq!(env.started(), imported, "blocking calls through shared memory");
}

fn call_each(probes: &[ProbeClient]) {
    for probe in probes {
        (0..100).for_each(|_| probe.null().unwrap());
        assert_eq!(probe.take(&[7; 1000]), Ok(1000));
        assert_eq!(probe.copy(&[7; 100_000]).unwrap().len(), 100_000);
        probe.block().unwrap();
        probe.within(Duration::from_secs(3600)).null().unwrap();
    }
}

/// Makes group calls of all kinds that leave no call to finish.
fn call_at_once(group: &Group<ProbeClient, Fixed>) {
    for _ in 0..100 {
        assert_eq!(group.multi().null().all().results().count(), SERVERS);
    }
    assert_eq!(
        group.multi().copy(&[7; 10_000]).within(Duration::from_secs(3600)).all().results().count(),
        SERVERS
    );
    group.multi().null().hedged(Duration::from_secs(3600), 3).unwrap();
    // The calls of the members that let them wait are cancelled.
    group.multi().wait_from(PROMPT as u32).first().unwrap();
    let most = group.multi().wait_from(PROMPT as u32).rest(Rest::Cancel).majority();
    assert!(most.is_ok());
}

/// Makes a group call that leaves the calls of some members to finish.
fn leave_calls(group: &Group<ProbeClient, Fixed>) {
    assert!(group.multi().wait_from(PROMPT as u32).majority().is_ok());
}

fn group_of(probes: Vec<ProbeClient>) -> Group<ProbeClient, Fixed> {
    Group::of(probes.into_iter().enumerate().map(|(number, probe)| (number.to_string(), probe)))
}

/// Returns how many threads this process has.
fn tasks() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

impl Threads {
    fn started(&self) -> Vec<String> {
        self.started.lock().unwrap().clone()
    }

    /// Waits until so many threads have ended.
    fn wait_for_ends(&self, count: usize) {
        let (ended, changed) = &*self.ended;
        drop(changed.wait_while(ended.lock().unwrap(), |ended| *ended < count).unwrap());
    }
}

impl Env for Threads {
    system_does! { now, bind, event, entropy, shares_memory }

    fn spawn(&self, name: &str, run: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        self.started.lock().unwrap().push(name.to_owned());
        let ended = self.ended.clone();
        let counted = move || {
            run();
            *ended.0.lock().unwrap() += 1;
            ended.1.notify_all();
        };
        System.spawn(name, Box::new(counted))
    }
}

/// Returns the threads of an end with keys: one that watches them.
fn of_keys() -> Vec<&'static str> {
    std::env::var_os("FARCALL_KEYS").map(|_| "farcall-keys").into_iter().collect()
}
