//! The traditional programs of a Unix host: rusersd, rstatd, statd, and the programs that call them.

use std::process::Command;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use farcall::multi::Next;
use farcall::xdr::ByteString;
use farcall_onc::routines::{self, Moment, RStat, RUsers, Statistics, User};
use farcall_onc::rpcbind::{Broadcast, Mapper, Rpcbind};
use farcall_onc::{Client, Server};

use crate::is_inside;
use crate::programs::{self, Daemon, NETWORKS, has, run, shown, skip, until};

/// Starts the host's rpcbind. Returns `None` if it is not installed.
pub fn rpcbind() -> Option<(Daemon, Rpcbind)> {
    let daemon = Daemon::start(Command::new("rpcbind").args(["-f", "-i", "-r"]));
    let Some(daemon) = daemon else {
        skip("rpcbind: it is not installed");
        return None;
    };
    let rpcbind = until(|| Rpcbind::of("127.0.0.1").ok());
    until(|| rpcbind.entries().ok().filter(|entries| !entries.is_empty()));
    Some((daemon, rpcbind))
}

#[test]
fn the_library_routines_ask_the_programs_of_a_host() {
    if !is_inside("hosts::the_library_routines_ask_the_programs_of_a_host") {
        return;
    }
    let Some((_daemon, rpcbind)) = rpcbind() else { return };
    routines::ping("127.0.0.1", 100_000, 4).unwrap();
    routines::ping("udp://127.0.0.1", 100_000, 2).unwrap();
    if let Some(_rusersd) = ready(&rpcbind, "rpc.rusersd", 100_002) {
        let names = routines::rusers("127.0.0.1").unwrap();
        let users = farcall_onc::import::<dyn RUsers>("127.0.0.1").unwrap();
        assert_eq!(users.number().unwrap() as usize, names.len());
        shown("rusersd", "udp", "call");
        // The port mapper forwards a broadcast call. Its reply comes from another port than 111.
        let all = Broadcast::of_interface::<dyn RUsers>(1)
            .to([127, 0, 0, 1].into())
            .within(Duration::from_secs(20));
        let mut heard = Vec::new();
        all.each::<u32>(|one| {
            heard.push((one.server.ip(), one.result.unwrap()));
            Next::Stop
        })
        .unwrap();
        assert_eq!(heard, [([127, 0, 0, 1].into(), users.number().unwrap())]);
        shown("rusersd, by a broadcast through rpcbind", "udp", "call");
    }
    if let Some(_rstatd) = ready(&rpcbind, "rpc.rstatd", 100_001) {
        // Rstatd answers the null call twice.
        routines::ping("udp://127.0.0.1", 100_001, 3).unwrap();
        let client = Client::builder().lenient().find("udp://127.0.0.1", 100_001, 3).unwrap();
        let rstat = client.bind::<dyn RStat>();
        for _ in 0..5 {
            let statistics = rstat.statistics().unwrap();
            assert!(statistics.now.seconds > 1_500_000_000, "{statistics:?}");
            rstat.have_disk().unwrap();
        }
        let statistics = routines::rstat("127.0.0.1").unwrap();
        assert!(statistics.load_averages().iter().all(|load| *load >= 0.0), "{statistics:?}");
        shown("rstatd", "udp", "call");
    }
}

/// A farcall server of these programs, for a host with one user.
struct Host;

impl RUsers for Host {
    fn number(&self) -> farcall::Result<u32> {
        Ok(1)
    }

    fn names(&self) -> farcall::Result<Vec<User>> {
        let (user, line, host) = ("birrell".into(), "tty7".into(), "grapevine".into());
        Ok(vec![User { user, line, host, kind: 7, time: 1_700_000_000, idle: 60 }])
    }

    fn all_names(&self) -> farcall::Result<Vec<User>> {
        RUsers::names(self)
    }
}

impl RStat for Host {
    fn statistics(&self) -> farcall::Result<Statistics> {
        let at = |seconds| Moment { seconds, microseconds: 0 };
        Ok(Statistics {
            cpu: [1, 2, 3, 4],
            disks: [0; 4],
            pages_in: 0,
            pages_out: 0,
            swapped_in: 0,
            swapped_out: 0,
            interrupts: 0,
            packets_in: 0,
            errors_in: 0,
            errors_out: 0,
            collisions: 0,
            switches: 0,
            load: [256, 512, 192],
            started: at(1_700_000_000),
            now: at(1_700_086_400 + 7200),
            packets_out: 0,
        })
    }

    fn have_disk(&self) -> farcall::Result<u32> {
        Ok(1)
    }
}

/// Version 2 of rusersd, which Debian's `rusers` calls.
#[farcall::interface(program = 100002, version = 2)]
trait RUsers2 {
    #[procedure(2)]
    fn names(&self) -> farcall::Result<Vec<User2>>;
}

/// A user who is logged in (`utmpidle`).
#[derive(Clone, Debug, farcall::Xdr)]
struct User2 {
    line: ByteString,
    user: ByteString,
    host: ByteString,
    time: i32,
    idle: u32,
}

impl RUsers2 for Host {
    fn names(&self) -> farcall::Result<Vec<User2>> {
        let (line, user, host) = ("tty7".into(), "birrell".into(), "grapevine".into());
        Ok(vec![User2 { line, user, host, time: 1_700_000_000, idle: 60 }])
    }
}

/// Rwalld, which shows a message to all users.
#[farcall::interface(program = 100008, version = 1)]
trait RWall {
    #[procedure(2)]
    fn wall(&self, message: &ByteString) -> farcall::Result<()>;
}

struct Wall(Mutex<mpsc::Sender<String>>);

impl RWall for Wall {
    fn wall(&self, message: &ByteString) -> farcall::Result<()> {
        let _ = self.0.lock().unwrap().send(message.to_string());
        Ok(())
    }
}

#[test]
fn the_programs_that_ask_a_host_ask_ours() {
    if !is_inside("hosts::the_programs_that_ask_a_host_ask_ours") {
        return;
    }
    let mapper = Mapper::default();
    let (sender, said) = mpsc::channel();
    let builder = Server::builder().mapper(&mapper).address("0.0.0.0:111".parse().unwrap());
    let builder = builder.address("[::]:111".parse().unwrap());
    let builder = builder.program::<dyn RUsers>(Arc::new(Host)).program::<dyn RStat>(Arc::new(Host));
    let builder = builder.program::<dyn RUsers2>(Arc::new(Host));
    let builder = builder.program::<dyn RWall>(Arc::new(Wall(Mutex::new(sender))));
    let _server = builder.register_at(&mapper).start().unwrap();
    if has("rusers") {
        let users = run(Command::new("rusers").args(["-l", "127.0.0.1"])).unwrap();
        assert!(
            users.contains("birrell") && users.contains("tty7") && users.contains("grapevine"),
            "{users}"
        );
        shown("rusers", "udp", "serve");
    }
    if has("rup") {
        let load = run(Command::new("rup").arg("127.0.0.1")).unwrap();
        assert!(load.contains("1 day") && load.contains("1.00 2.00 0.75"), "{load}");
        shown("rup", "udp", "serve");
    }
    if has("rwall") {
        for (network, host) in [("udp", "127.0.0.1"), ("udp6", "::1")] {
            let tell = format!("echo the tea is ready | rwall {host}");
            run(Command::new("sh").args(["-c", &tell])).unwrap();
            let message = said.try_recv().unwrap();
            assert!(message.contains("the tea is ready"), "{message}");
            shown("rwall", network, "serve");
        }
    }
}

/// Statd, which tells its clients that a host was restarted (the NSM of X/Open's XNFS, chapter 11).
#[farcall::interface(program = 100024, version = 1)]
trait Monitor {
    #[procedure(1)]
    fn is_watched(&self, host: &ByteString) -> farcall::Result<State>;
    fn watch(&self, host: &ByteString, by: &Watcher, private: [u8; 16]) -> farcall::Result<State>;
    fn forget(&self, host: &ByteString, by: &Watcher) -> farcall::Result<i32>;
    #[procedure(6)]
    fn has_started(&self, host: &ByteString, state: i32) -> farcall::Result<()>;
}

#[derive(Clone, Debug, PartialEq, farcall::Xdr)]
struct State {
    refused: u32,
    state: i32,
}

#[derive(Clone, Debug, farcall::Xdr)]
struct Watcher {
    host: ByteString,
    program: i32,
    version: i32,
    procedure: i32,
}

/// A lock manager, which statd calls. Statd watches hosts only for lock managers.
#[farcall::interface(program = 100021, version = 4)]
trait Watching {
    #[procedure(24)]
    fn has_started(&self, host: &ByteString, state: i32, private: [u8; 16]) -> farcall::Result<()>;
}

struct Notices(Mutex<mpsc::Sender<(String, i32, [u8; 16])>>);

impl Watching for Notices {
    fn has_started(&self, host: &ByteString, state: i32, private: [u8; 16]) -> farcall::Result<()> {
        let _ = self.0.lock().unwrap().send((host.to_string(), state, private));
        Ok(())
    }
}

#[test]
fn statd_is_called_and_calls() {
    if !is_inside("hosts::statd_is_called_and_calls") || !has("rpc.statd") {
        return;
    }
    let Some((_daemon, rpcbind)) = rpcbind() else { return };
    let place = tempfile::tempdir().unwrap();
    for name in ["sm", "sm.bak"] {
        std::fs::create_dir(place.path().join(name)).unwrap();
    }
    let _statd = Daemon::start(Command::new("rpc.statd").args(["-F", "-L", "-P"]).arg(place.path())).unwrap();
    until(|| rpcbind.entries().ok().filter(|all| all.iter().any(|entry| entry.program == 100_024)));
    for (network, host) in NETWORKS {
        let at = until(|| {
            let all = rpcbind.entries().ok()?;
            let entry = all.into_iter().find(|entry| entry.program == 100_024 && entry.netid == network)?;
            farcall_onc::rpcbind::from_universal(&entry.address)
        });
        let statd = Client::connect(&programs::address(network, &at.port().to_string())).unwrap();
        let statd = statd.bind::<dyn Monitor>();
        assert_eq!(statd.is_watched(&"127.0.0.1".into()).unwrap().refused, 0, "{network} {host}");
        shown("statd", network, "call");
    }
    let (sender, notices) = mpsc::channel();
    let builder = Server::builder().program::<dyn Watching>(Arc::new(Notices(Mutex::new(sender))));
    let _server = builder.address("127.0.0.1:0".parse().unwrap()).register(&rpcbind).start().unwrap();
    let statd = farcall_onc::import::<dyn Monitor>("udp://127.0.0.1").unwrap();
    let by = Watcher { host: "localhost".into(), program: 100_021, version: 4, procedure: 24 };
    let private = *b"sixteen bytes...";
    assert_eq!(statd.watch(&"127.0.0.1".into(), &by, private).unwrap().refused, 0);
    statd.has_started(&"127.0.0.1".into(), 7).unwrap();
    assert_eq!(notices.recv_timeout(Duration::from_secs(20)), Ok(("127.0.0.1".into(), 7, private)));
    shown("statd", "udp", "serve");
}

/// Starts a daemon, and waits until it has registered. Returns `None` if it is not installed.
fn ready(rpcbind: &Rpcbind, name: &str, program: u32) -> Option<Daemon> {
    // The daemon goes into the background by itself. So it runs in a PID namespace, whose end kills it.
    let script = format!("{name}; exec sleep 1000");
    let held = ["--pid", "--fork", "--kill-child", "sh", "-c", &script];
    if !has(name) {
        return None;
    }
    let daemon = Daemon::start(Command::new("unshare").args(held))?;
    until(|| rpcbind.entries().ok().filter(|all| all.iter().any(|entry| entry.program == program)));
    Some(daemon)
}

#[test]
fn the_local_port_mapper_is_there_or_said_to_be_missing() {
    if !is_inside("hosts::the_local_port_mapper_is_there_or_said_to_be_missing") {
        return;
    }
    let why = Rpcbind::local().expect_err("no port mapper runs");
    assert_eq!((why.kind(), why.ran()), (farcall::Kind::Unreachable, farcall::Ran::No), "{why}");
    assert!(Rpcbind::of("127.0.0.1").is_err());
    let mapper = Mapper::default();
    let mapping = Server::builder().mapper(&mapper).address("127.0.0.1:111".parse().unwrap());
    let _mapping = mapping.start().unwrap();
    // A registration from a privileged port belongs to the superuser.
    let server = Server::builder().program::<dyn RUsers>(Arc::new(Host));
    let server = server.address("127.0.0.1:0".parse().unwrap()).register(&Rpcbind::local().unwrap());
    let _server = server.start().unwrap();
    let ours: Vec<_> = mapper.entries().into_iter().filter(|entry| entry.program == 100_002).collect();
    assert!(!ours.is_empty() && ours.iter().all(|entry| entry.owner == "superuser"), "{ours:?}");
}
