//! The anchor: sends a datagram to each of many echo processes, and receives the answers, with system calls
//! only. An echo that computes sleeps before it answers, in its only thread.
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use farcall_bench_group::{Calls, Draws, Kind, Parts, Server, Work};
use farcall_bench_method::{Lost, enlarge};

/// The time after which a datagram counts as lost.
const LOST: Duration = Duration::from_secs(2);

/// The time for which farcall polls before it sleeps.
const AWHILE: Duration = Duration::from_micros(20);

/// The bytes of a null call.
const LENGTH: usize = 40;

/// Starts an echo for each seed.
pub fn serve(seeds: &[u64]) -> Result<Box<dyn Server>> {
    let mut addresses = Vec::new();
    for &seed in seeds {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        addresses.push(socket.local_addr()?.to_string());
        std::thread::spawn(move || echo(&socket, Draws::new(seed)));
    }
    Ok(Box::new(Echoes(addresses)))
}

fn echo(socket: &UdpSocket, mut draws: Draws) -> std::io::Result<()> {
    let mut buffer = [0; 2048];
    loop {
        let (length, client) = socket.recv_from(&mut buffer)?;
        let [milliseconds, distribution] =
            [0, 4].map(|at| u32::from_be_bytes([0, 1, 2, 3].map(|n| buffer[at + n])));
        if milliseconds > 0 {
            std::thread::sleep(draws.next(Work::from_wire(milliseconds, distribution)));
        }
        socket.send_to(&buffer[..length], client)?;
    }
}

struct Echoes(Vec<String>);

impl Server for Echoes {
    fn addresses(&self) -> Vec<String> {
        self.0.clone()
    }
}

/// Returns a client with one socket for all servers.
pub fn connect(addresses: &[String]) -> Result<Box<dyn Calls>> {
    client(addresses, false)
}

/// Returns a client with one socket for all servers. After an answer, it polls for the next one without
/// sleeping, as farcall does.
pub fn connect_awake(addresses: &[String]) -> Result<Box<dyn Calls>> {
    client(addresses, true)
}

fn client(addresses: &[String], awake: bool) -> Result<Box<dyn Calls>> {
    let servers = addresses.iter().map(|address| Ok(address.parse()?)).collect::<Result<_>>()?;
    Ok(Box::new(Client { socket: socket()?, servers, awake, lost: false, buffer: [0; 2048] }))
}

fn socket() -> Result<UdpSocket> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    enlarge(&socket);
    socket.set_read_timeout(Some(LOST))?;
    Ok(socket)
}

struct Client {
    socket: UdpSocket,
    servers: Vec<SocketAddr>,
    awake: bool,
    /// Whether an answer did not come in time. It may come later, so the next calls have another socket.
    lost: bool,
    buffer: [u8; 2048],
}

impl Calls for Client {
    fn one(&mut self, member: usize, kind: Kind) -> Result<()> {
        self.all((member, 1), kind, None)
    }

    fn all(&mut self, members: (usize, usize), kind: Kind, _: Option<usize>) -> Result<()> {
        let (milliseconds, distribution) = match kind {
            Kind::Null => (0, 0),
            Kind::Work(work) => work.to_wire(),
            Kind::Fetch(_) | Kind::Store(_) => bail!("an echo has short answers only"),
        };
        self.buffer[..4].copy_from_slice(&milliseconds.to_be_bytes());
        self.buffer[4..8].copy_from_slice(&distribution.to_be_bytes());
        self.send(members)?;
        self.receive(members.1).inspect_err(|_| self.lost = true)
    }

    fn parts(&mut self, members: (usize, usize)) -> Result<Parts> {
        let began = Instant::now();
        self.buffer[..8].fill(0);
        self.send(members)?;
        let start = began.elapsed().as_nanos() as u64;
        self.receive(members.1)?;
        Ok(Parts { start, rest: began.elapsed().as_nanos() as u64 - start, ..Parts::default() })
    }
}

impl Client {
    fn send(&mut self, (first, many): (usize, usize)) -> Result<()> {
        if std::mem::take(&mut self.lost) {
            self.socket = socket()?;
        }
        for server in &self.servers[first..first + many] {
            self.socket.send_to(&self.buffer[..LENGTH], server)?;
        }
        Ok(())
    }

    /// Receives the answers of this number of members.
    fn receive(&mut self, many: usize) -> Result<()> {
        let mut looks = false;
        for _ in 0..many {
            if looks && self.look()? {
                continue;
            }
            self.sleep_again(looks)?;
            Lost::unless(self.socket.recv_from(&mut self.buffer))?;
            looks = self.awake;
            if looks {
                self.socket.set_nonblocking(true)?;
            }
        }
        self.sleep_again(looks)
    }

    fn sleep_again(&self, looked: bool) -> Result<()> {
        if looked {
            self.socket.set_nonblocking(false)?;
        }
        Ok(())
    }

    /// Polls for an answer for a while, and returns whether there was one.
    fn look(&mut self) -> Result<bool> {
        let start = Instant::now();
        while start.elapsed() < AWHILE {
            match self.socket.recv_from(&mut self.buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                received => return Ok(received.map(|_| true)?),
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_was_lost_makes_a_call_void_and_does_not_count_for_the_next_one() {
        let echo = UdpSocket::bind("127.0.0.1:0").unwrap();
        for connect in [connect, connect_awake] {
            let mut client = connect(&[echo.local_addr().unwrap().to_string()]).unwrap();
            let why = client.one(0, Kind::Null).unwrap_err();
            assert!(why.is::<Lost>(), "{why:#}");
            let mut buffer = [0; 2048];
            let (length, late) = echo.recv_from(&mut buffer).unwrap();
            std::thread::scope(|scope| {
                let echoed = scope.spawn(|| {
                    let (_, now) = echo.recv_from(&mut [0; 2048]).unwrap();
                    assert_ne!(now, late);
                    echo.send_to(&buffer[..length], late).unwrap();
                    echo.send_to(&buffer[..length], now).unwrap();
                });
                client.one(0, Kind::Null).unwrap();
                echoed.join().unwrap();
            });
        }
    }
}
