//! Larus' packets, and farcall's own packet exchange, on a network that loses one datagram in ten each way;
//! and a client of Cooper's dialect that sends one byte a minute.
//!
//! The packets carry no identifiers, and nothing is sent again. So each call ends with its own result, or
//! fails after ten seconds, and no call is executed twice. Farcall's exchange executes each call
//! exactly once.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farcall::env::{Address, ConnectOptions, Wait};
use farcall::{CallFailed, Kind, Ran, System};
use farcall_courier::{cooper, packets};
use farcall_sim::{Faults, check, sim};

#[farcall::interface(program = 1983, version = 1)]
trait Work {
    /// Returns the number of the call.
    #[procedure(1)]
    fn work(&self, number: u32) -> farcall::Result<u32>;
}

/// The calls that were executed, each as often as it was.
#[derive(Default)]
struct Executed(Mutex<Vec<u32>>);

struct Worker(Arc<Executed>);

impl Work for Worker {
    fn work(&self, number: u32) -> farcall::Result<u32> {
        self.0.0.lock().unwrap().push(number);
        Ok(number)
    }
}

impl Executed {
    /// Returns the numbers of the calls, of which none was executed twice.
    fn once(&self) -> HashSet<u32> {
        let executed = self.0.lock().unwrap();
        let different: HashSet<u32> = executed.iter().copied().collect();
        assert_eq!(different.len(), executed.len(), "a call was executed twice");
        different
    }
}

/// Serves packets, and tells at which address.
fn serve(executed: &Arc<Executed>, told: &Mutex<Option<SocketAddr>>) -> std::io::Result<()> {
    let server = packets::Server::builder()
        .program::<dyn Work>(Arc::new(Worker(executed.clone())))
        .udp("0.0.0.0:0".parse().expect("it is an address"))
        .start()?;
    *told.lock().unwrap() = Some(server.address());
    server.wait();
    Ok(())
}

const LOSS: Faults = Faults {
    loss: 0.1,
    duplication: 0.0,
    reordering: 0.0,
    late: 0.0,
    delay: Duration::from_millis(1),
    jitter: Duration::from_millis(1),
    mtu: 1500,
};

const CALLS: u32 = 20_000;
/// Beyond ten seconds, a call takes only the time for its client to notice.
const TEN_SECONDS: Duration = Duration::from_secs(10);

#[test]
fn larus_packets_return_or_fail_after_ten_seconds() {
    check(1, |sim| {
        sim.faults(LOSS);
        // About a fifth of the calls take ten seconds each.
        sim.limit(Duration::from_secs(100_000));
        let executed = Arc::new(Executed::default());
        let address = Arc::new(Mutex::new(None::<SocketAddr>));
        let (served, told) = (executed.clone(), address.clone());
        sim.server("server", move || serve(&served, &told));
        let address = address.lock().unwrap().expect("the server has started");
        let work = packets::import::<dyn Work>(&format!("udp://{address}")).unwrap();
        let (mut returned, mut failed) = (0, 0);
        for number in 0..CALLS {
            let begun = sim::now();
            match work.work(number) {
                Ok(result) => {
                    assert_eq!(result, number, "the result of another call");
                    returned += 1;
                }
                Err(why) => {
                    let why = CallFailed::from(why);
                    assert_eq!((why.kind(), why.ran()), (Kind::Unreachable, Ran::Maybe), "{why}");
                    let took = sim::now() - begun;
                    assert!(took >= TEN_SECONDS && took < TEN_SECONDS + Duration::from_secs(1), "{took:?}");
                    failed += 1;
                }
            }
        }
        let executed = executed.once().len();
        println!("{returned} calls returned, {failed} failed after ten seconds, {executed} were executed");
        // 0.9 of the calls arrive, and 0.81 of them return: within six standard deviations.
        assert!((15_860..=16_540).contains(&returned), "{returned} calls returned");
        assert!((17_745..=18_255).contains(&executed), "{executed} calls were executed");
        assert_eq!(returned + failed, CALLS);
    });
}

#[test]
fn a_late_reply_is_never_another_calls_result() {
    check(5, |sim| {
        // A call takes 2 to 10 ms, and its client waits for 5 ms.
        sim.faults(Faults { loss: 0.0, jitter: Duration::from_millis(4), ..LOSS });
        let executed = Arc::new(Executed::default());
        let address = Arc::new(Mutex::new(None::<SocketAddr>));
        let (served, told) = (executed.clone(), address.clone());
        sim.server("server", move || serve(&served, &told));
        let address = address.lock().unwrap().expect("the server has started");
        let builder = packets::Builder::default().patience(Duration::from_millis(5));
        let work = builder.import::<dyn Work>(&format!("udp://{address}")).unwrap();
        let mut returned = 0;
        for number in 0..1_000 {
            if let Ok(result) = work.work(number) {
                assert_eq!(result, number, "the result of another call");
                returned += 1;
            }
        }
        assert!((100..900).contains(&returned), "{returned} calls returned");
        sim.sleep(Duration::from_secs(1));
        assert_eq!(executed.once().len(), 1_000);
    });
}

#[test]
fn a_lost_packet_of_farcall_is_sent_again() {
    check(1, |sim| -> farcall::Result<()> {
        sim.faults(LOSS);
        sim.limit(Duration::from_secs(100_000));
        let executed = Arc::new(Executed::default());
        let served = executed.clone();
        sim.server("server", move || {
            farcall::export::<dyn Work>("Work", Arc::new(Worker(served.clone())))?.wait()
        });
        let work = farcall::import::<dyn Work>("Work")?;
        for number in 0..CALLS {
            assert_eq!(work.work(number)?, number);
        }
        assert_eq!(executed.once().len(), CALLS as usize, "each call was executed exactly once");
        Ok(())
    });
}

#[test]
fn one_byte_a_minute_does_not_keep_a_connection_of_coopers_dialect() {
    check(3, |sim| {
        let address = Arc::new(Mutex::new(None::<SocketAddr>));
        let told = address.clone();
        sim.server("server", move || -> std::io::Result<()> {
            let server = cooper::Server::builder()
                .program::<dyn Work>(Arc::new(Worker(Arc::default())))
                .tcp("0.0.0.0:0".parse().expect("it is an address"))
                .start()?;
            *told.lock().unwrap() = Some(server.addresses()[0]);
            server.wait();
            Ok(())
        });
        let address = address.lock().unwrap().expect("the server has started");
        let env = System::current();
        let activation = b"\0\x04Work";
        // Within the activation, and within a call: its header, and its arguments.
        for at_once in [&activation[..1], &activation[..], b"\0\x04Work\0\x01\0\x02\0"] {
            let stream = env.connect(&Address::Tcp(address), &ConnectOptions::default()).unwrap();
            sim::sleep(Duration::from_secs(1));
            let mut rest = b"\x04Work\0\x01\0\xff\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0".iter();
            stream.write(&[std::io::IoSlice::new(at_once)]).unwrap();
            let begun = sim::now();
            // The server ends the connection a minute after the message's first byte, or after the idle time
            // before it: well before all bytes are sent.
            let ended = loop {
                let byte = [*rest.next().expect("the connection has not ended")];
                let _ = stream.write(&[std::io::IoSlice::new(&byte)]);
                sim::sleep(Duration::from_secs(59));
                match stream.read(&mut [0; 64], Wait::No) {
                    Ok(0) => break sim::now() - begun,
                    Err(why) if why.kind() != std::io::ErrorKind::WouldBlock => break sim::now() - begun,
                    _ => {}
                }
            };
            assert!(ended <= Duration::from_secs(3 * 60), "{ended:?}");
        }
    });
}
