//! Our client calls what we did not write: programs in C made by rpcgen, rpcbind, rusersd, rstatd.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use farcall::multi::Next;
use farcall::{Calls, Kind, Ran};
use farcall_onc::routines::{self, RStat, RUsers};
use farcall_onc::rpcbind::{Broadcast, Rpcbind};
use farcall_onc::{AuthSys, Client};

use crate::calc::{self, Calc, CalcClient, Entry, Listing, Point, Sample, Shape};
use crate::{is_inside, programs};

#[test]
fn our_client_calls_a_server_made_by_rpcgen() {
    let Some(programs) = programs("a server made by rpcgen") else { return };
    let mut child = Command::new(programs.join("serve")).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
    let ports: Vec<&str> = said.split_whitespace().filter(|word| word.parse::<u16>().is_ok()).collect();
    assert_eq!(ports.len(), 2, "{said}");
    for (network, port) in [("udp", ports[0]), ("tcp", ports[1])] {
        let client = Client::builder().auth(AuthSys::of_process()).connect(&format!("{network}://127.0.0.1:{port}"));
        let client = client.unwrap();
        check(&client.bind::<dyn Calc>());
        refusals(&client);
        calc::shown("libtirpc, rpcgen -C -N", network, "calls libtirpc");
    }
    drop(child.stdin.take());
    child.wait().unwrap();
}

/// Calls each procedure, in each of the ways.
fn check(calc: &CalcClient) {
    calc.nothing().unwrap();
    assert_eq!(calc.add(40, 2).unwrap(), 42);
    let shapes = vec![Shape::Red, Shape::Green(Point { x: 1, y: 2 }), Shape::Blue("sky".into())];
    let sample = Sample {
        flag: true,
        count: 7,
        total: 1 << 40,
        single: 1.5,
        twice: -2.25,
        digest: std::array::from_fn(|n| n as u8),
        data: vec![1, 2, 3, 4, 5],
        numbers: vec![-1, 0, 1],
        fixed: [1, 2, 3],
        shapes,
    };
    let turned = calc.turn(sample.clone()).unwrap();
    assert_eq!(turned.data, [5, 4, 3, 2, 1]);
    assert_eq!(turned.shapes[1], Shape::Green(Point { x: 2, y: 1 }));
    assert_eq!(calc.join("a", "bc", 3).unwrap(), "abcbcbc");
    let listing = calc.count_down(100).unwrap();
    assert_eq!((listing.entries.len(), &listing.entries[0].name[..]), (100, "100"));
    let entries = (1..=50).map(|n| Entry { name: format!("{n}"), size: n }).collect();
    assert_eq!(calc.total(Listing { entries }).unwrap(), 50 * 51 / 2);
    let started: Vec<_> = (0..20).map(|n| calc.start().add(n, n)).collect();
    for (n, pending) in started.into_iter().enumerate() {
        assert_eq!(pending.wait().unwrap(), 2 * n as i32);
    }
    let mut calls = Calls::new();
    (0..20).for_each(|n| calls.add(n, calc.start().add(n, 1)));
    while let Some((n, sum)) = calls.wait() {
        assert_eq!(sum.unwrap(), n + 1);
    }
}

/// What libtirpc says of what it does not have.
fn refusals(client: &Client) {
    let kind = |calc: CalcClient| {
        let why: farcall::CallFailed = calc.nothing().unwrap_err().into();
        assert_eq!(why.ran(), Ran::No, "{why}");
        (why.kind(), why.detail().to_string())
    };
    assert_eq!(kind(client.bind_as::<dyn Calc>(0x2000_0089, 3)).0, Kind::NotExported);
    let (mismatch, why) = kind(client.bind_as::<dyn Calc>(0x2000_0088, 9));
    assert!(mismatch == Kind::Mismatch && why.contains("versions 3 to 3"), "{why}");
}

/// A program that is killed when it is dropped.
struct Daemon(Child);

impl Daemon {
    fn start(command: &mut Command) -> Option<Daemon> {
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok().map(Daemon)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Tries until it succeeds: a program says nothing when it is ready.
fn until<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    let over = std::time::Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(value) = attempt() {
            return value;
        }
        assert!(std::time::Instant::now() < over, "it never came");
        std::thread::yield_now();
    }
}

/// The host's rpcbind, started; none if it is not installed.
fn rpcbind() -> Option<(Daemon, Rpcbind)> {
    let daemon = Daemon::start(Command::new("rpcbind").args(["-f", "-i", "-r"]));
    let Some(daemon) = daemon else {
        calc::skip("rpcbind: it is not installed");
        return None;
    };
    let rpcbind = until(|| Rpcbind::of("127.0.0.1").ok());
    until(|| rpcbind.entries().ok().filter(|entries| !entries.is_empty()));
    Some((daemon, rpcbind))
}

#[test]
fn rpcbind_is_asked_and_told_in_each_version() {
    if !is_inside("calling::rpcbind_is_asked_and_told_in_each_version") {
        return;
    }
    let Some((_daemon, over_tcp)) = rpcbind() else { return };
    let over_udp = Rpcbind::at(&Client::builder(), "udp://127.0.0.1:111").unwrap();
    let over_unix = Rpcbind::local().unwrap();
    let at: SocketAddr = "127.0.0.1:4321".parse().unwrap();
    let program = 0x2000_0099;
    for newest in [4, 3, 2] {
        for (rpcbind, network) in [(&over_tcp, "tcp"), (&over_udp, "udp"), (&over_unix, "unix")] {
            if network == "unix" && newest == 2 {
                // It knows ports of IPv4 only.
                continue;
            }
            let rpcbind = rpcbind.clone().limited_to(newest);
            assert_eq!(rpcbind.find(100_000, 2, true).unwrap().map(|at| at.port()), Some(111));
            assert_eq!(rpcbind.find(100_000, 2, false).unwrap().map(|at| at.port()), Some(111));
            let entries = rpcbind.entries().unwrap();
            assert!(entries.iter().any(|entry| entry.program == 100_000 && entry.netid == "tcp"), "{entries:?}");
            // Registered over TCP alone, it is found by whichever network one asks.
            let registration = rpcbind.register(program, 1, &[(true, at)]).unwrap();
            assert_eq!(rpcbind.find(program, 1, true).unwrap(), Some(at));
            assert_eq!(rpcbind.find(program, 1, false).unwrap(), None);
            let addresses = rpcbind.addresses(program, 1).unwrap();
            assert_eq!(addresses.len(), 1, "{addresses:?}");
            assert_eq!((&addresses[0].netid[..], addresses[0].semantics), ("tcp", 3));
            drop(registration);
            assert_eq!(rpcbind.find(program, 1, true).unwrap(), None);
            calc::shown(&format!("rpcbind, version {newest}"), network, "calls rpcbind");
        }
    }
}

#[test]
fn a_program_is_found_by_its_hosts_name() {
    if !is_inside("calling::a_program_is_found_by_its_hosts_name") {
        return;
    }
    let Some(programs) = programs("a server made by rpcgen, found by rpcbind") else { return };
    let Some((_daemon, rpcbind)) = rpcbind() else { return };
    let why = farcall_onc::import::<dyn Calc>("127.0.0.1").unwrap_err();
    assert_eq!((why.kind(), why.ran()), (Kind::NotExported, Ran::No));
    let _theirs = crate::namespace::Running::start(Command::new(programs.join("serve")).arg("register"));
    assert!(rpcbind.find(0x2000_0088, 3, true).unwrap().is_some());
    for address in ["127.0.0.1", "tcp://127.0.0.1", "udp://127.0.0.1"] {
        check(&farcall_onc::import::<dyn Calc>(address).unwrap());
    }
    calc::shown("libtirpc, found by rpcbind", "udp and tcp", "calls libtirpc");
}

#[test]
fn our_server_is_found_by_rpcbind_while_it_serves() {
    if !is_inside("calling::our_server_is_found_by_rpcbind_while_it_serves") {
        return;
    }
    let Some(programs) = programs("our server, found by rpcbind") else { return };
    let Some((_daemon, rpcbind)) = rpcbind() else { return };
    let server = calc::serve(|builder| builder.register(&rpcbind));
    for transport in ["udp", "tcp"] {
        let mut check = Command::new(programs.join("check"));
        assert_eq!(calc::run(check.args([transport, "127.0.0.1", "0"])).as_deref(), Ok("all is well\n"));
        calc::shown("libtirpc, found by rpcbind", transport, "it calls");
    }
    drop(server);
    assert_eq!(rpcbind.find(0x2000_0088, 3, true).unwrap(), None);
    assert_eq!(rpcbind.find(0x2000_0088, 3, false).unwrap(), None);
}

#[test]
fn the_library_routines_ask_the_programs_of_a_host() {
    if !is_inside("calling::the_library_routines_ask_the_programs_of_a_host") {
        return;
    }
    let Some((_daemon, rpcbind)) = rpcbind() else { return };
    routines::ping("127.0.0.1", 100_000, 4).unwrap();
    routines::ping("udp://127.0.0.1", 100_000, 2).unwrap();
    if let Some(_rusersd) = ready(&rpcbind, "rpc.rusersd", 100_002) {
        let names = routines::rusers("127.0.0.1").unwrap();
        let users = farcall_onc::import::<dyn RUsers>("127.0.0.1").unwrap();
        assert_eq!(users.number().unwrap() as usize, names.len());
        calc::shown("rusersd", "udp", "calls rusersd");
        // The port mapper passes a broadcast on; what it says comes from another port than 111.
        let all = Broadcast::of_interface::<dyn RUsers>(1).to([127, 0, 0, 1].into()).within(Duration::from_secs(20));
        let mut heard = Vec::new();
        all.each::<u32>(|one| {
            heard.push((one.server.ip(), one.result.unwrap()));
            Next::Stop
        })
        .unwrap();
        assert_eq!(heard, [([127, 0, 0, 1].into(), users.number().unwrap())]);
        calc::shown("rusersd, by a broadcast through rpcbind", "udp", "calls rusersd");
    }
    if let Some(_rstatd) = ready(&rpcbind, "rpc.rstatd", 100_001) {
        // It answers the null call twice.
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
        calc::shown("rstatd", "udp", "calls rstatd");
    }
}

/// A daemon that has registered; none if it is not installed.
fn ready(rpcbind: &Rpcbind, name: &str, program: u32) -> Option<Daemon> {
    // It goes into the background by itself: what holds it there ends it.
    let script = format!("{name}; exec sleep 1000");
    let held = ["--pid", "--fork", "--kill-child", "sh", "-c", &script];
    if calc::run(Command::new("sh").args(["-c", &format!("command -v {name}")])).is_err() {
        calc::skip(&format!("{name}: it is not installed"));
        return None;
    }
    let daemon = Daemon::start(Command::new("unshare").args(held))?;
    until(|| rpcbind.find(program, 3, false).ok().flatten());
    Some(daemon)
}
