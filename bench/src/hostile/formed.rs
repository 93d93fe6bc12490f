//! A well-formed client: each datagram is a call of a procedure that returns at once.
use std::net::{SocketAddr, UdpSocket};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use farcall_proto::client::{Call, Conversation, Event, Outcome};
use farcall_proto::{ClientConfig, MAX_DATAGRAM, Time};

use super::harm::Dice;
use super::target::{NAME, NULL, TAKE};

/// The bytes of a datagram with one call besides its arguments, and the bytes of the length before the data.
const AROUND: usize = 60;
const LENGTH: usize = 4;

/// Arguments that make a client try larger datagrams.
const LARGE: usize = 300_000;

/// The most calls that wait at the same time.
const MOST: usize = 1_024;

/// The longest time to bind.
const PATIENCE: Duration = Duration::from_secs(10);

pub struct Formed {
    socket: UdpSocket,
    server: SocketAddr,
    core: Conversation,
    export: u64,
    buffer: Vec<u8>,
}

impl Formed {
    /// Returns a bound client whose datagrams may have any length.
    pub fn new(socket: UdpSocket, server: SocketAddr, dice: &mut Dice) -> Result<Formed> {
        Formed::with(ClientConfig::default(), socket, server, dice)
    }

    /// Returns such a client with these settings.
    pub fn with(
        config: ClientConfig,
        socket: UdpSocket,
        server: SocketAddr,
        dice: &mut Dice,
    ) -> Result<Formed> {
        let config = ClientConfig { loopback: server.ip().is_loopback(), ..config };
        let core = Conversation::new(config, dice.next() | 1);
        let mut formed = Formed { socket, server, core, export: 0, buffer: vec![0; MAX_DATAGRAM] };
        formed.core.bind(now(), NAME, 0);
        formed.wait("bind", |formed| formed.export != 0)?;
        for _ in 0..8 {
            formed.call(LARGE);
            formed.wait("call", |formed| formed.core.stats().outstanding == 0)?;
        }
        Ok(formed)
    }

    /// Makes a call with a datagram of that many bytes, unless too many calls wait.
    pub fn call(&mut self, bytes: usize) {
        if self.core.stats().outstanding > MOST {
            return;
        }
        let data = bytes.saturating_sub(AROUND + LENGTH) & !3;
        let mut arguments = self.core.buffer();
        if data > 0 {
            arguments.extend((data as u32).to_be_bytes());
            arguments.resize(LENGTH + data, 7);
        }
        let procedure = if data > 0 { TAKE } else { NULL };
        let call = Call { export: self.export, procedure, deadline: None, trace: None, token: 1 };
        // The call is refused only if too many are outstanding.
        let _ = self.core.start(now, &call, &mut arguments);
        self.transmit();
    }

    /// Receives replies, and returns how many calls did not return a result.
    pub fn receive(&mut self) -> u64 {
        let mut lost = 0;
        while let Ok((len, from)) = self.socket.recv_from(&mut self.buffer) {
            if from != self.server {
                continue;
            }
            let export = &mut self.export;
            self.core.receive_any(now(), &mut self.buffer[..len], &mut |event| lost += note(event, export));
        }
        if self.core.timeout().is_some_and(|due| due <= now()) {
            let export = &mut self.export;
            self.core.handle_timeout(now(), &mut |event| lost += note(event, export));
        }
        self.transmit();
        lost
    }

    /// Returns the number of datagrams that the client has sent, and their bytes.
    pub fn sent(&self) -> (u64, u64) {
        let stats = self.core.stats();
        (stats.sent, stats.bytes_sent)
    }

    fn transmit(&mut self) {
        while let Some(len) = self.core.transmit(now(), &mut self.buffer) {
            // A datagram that the system refuses is lost, like any datagram.
            let _ = self.socket.send_to(&self.buffer[..len], self.server);
        }
    }

    fn wait(&mut self, what: &str, is_over: impl Fn(&Formed) -> bool) -> Result<()> {
        let began = Instant::now();
        while !is_over(self) {
            if began.elapsed() > PATIENCE {
                bail!("a well-formed client could not {what}");
            }
            ensure!(self.receive() == 0, "a call of a well-formed client failed");
            std::thread::sleep(Duration::from_micros(100));
        }
        Ok(())
    }
}

/// Notes the export that a bind has found. Returns 1 if the bind or the call failed, and otherwise 0.
fn note(event: Event<'_>, export: &mut u64) -> u64 {
    match event {
        Event::Bound { answer: Ok(bound), .. } => {
            *export = bound.export;
            0
        }
        Event::Bound { .. } => 1,
        Event::Ended { outcome, .. } => u64::from(!matches!(outcome, Outcome::Result(_))),
    }
}

/// Returns the time since this process began.
pub fn now() -> Time {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    let began = *BEGAN.get_or_init(Instant::now);
    Time::from_nanos(1_000_000_000 + began.elapsed().as_nanos() as u64)
}
