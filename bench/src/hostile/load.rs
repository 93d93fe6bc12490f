//! The load next to the honest calls, at a fixed rate: datagrams of hostile clients, or equally many of the
//! same sizes from well-formed clients.
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::formed::Formed;
use super::harm::{Dice, Kind, Talk};
use super::side::Done;
use super::silent::Silent;

/// The number of hosts, and of connections of each host.
const HOSTS: u8 = 8;
const EACH: usize = 8;

/// One in this many draws of [`Kind::Anew`] begins a conversation, which takes several datagrams.
const ANEW: u64 = 8;

/// The interval at which datagrams are received and the next ones sent.
const STEP: Duration = Duration::from_micros(300);

/// Both loads. Only one runs at a time.
pub struct Load {
    talks: Vec<Talk>,
    formed: Vec<Formed>,
    kinds: Vec<Kind>,
    dice: Dice,
    /// The datagrams of the last hostile phase, by their lengths.
    sizes: Vec<u32>,
    attacked: SocketAddr,
}

impl Load {
    pub fn new(attacked: &[SocketAddr], spared: &[SocketAddr], kinds: &[Kind]) -> Result<Load> {
        let mut dice = Dice::new(7);
        let (mut talks, mut formed) = (Vec::new(), Vec::new());
        for at in 0..usize::from(HOSTS) * EACH {
            let host = at / EACH;
            let number = host as u8 + 1;
            // Half of the hosts reach a server at each of its addresses.
            let place = host % attacked.len();
            let here =
                if attacked[place].ip().is_loopback() { [127, 0, 1, number] } else { [10, 77, 1, number] };
            talks.push(Talk::new(socket(here.into())?, attacked[place], &mut dice));
            formed.push(Formed::new(socket(here.into())?, spared[place], &mut dice)?);
        }
        Ok(Load { talks, formed, kinds: kinds.to_vec(), dice, sizes: Vec::new(), attacked: attacked[0] })
    }

    /// Makes hostile clients send datagrams and open silent connections, at that many per second.
    pub fn harm(&mut self, rate: f64, time: Duration) -> Result<Done> {
        self.sizes.clear();
        let mut silent = Silent::default();
        let mut pace = Pace::new(rate, time);
        let mut done = Done::default();
        while let Some(due) = pace.step() {
            for talk in &mut self.talks {
                done.met += u64::from(talk.receive(&mut self.sizes, &mut self.dice));
            }
            while self.sizes.len() + (done.connected as usize) < due {
                let at = self.dice.below(self.talks.len() as u64) as usize;
                let kind = self.kinds[self.dice.below(self.kinds.len() as u64) as usize];
                if kind == Kind::Silent {
                    silent.connect(self.attacked);
                    done.connected += 1;
                    continue;
                }
                let talk = &mut self.talks[at];
                let sent = talk.harm(kind, &mut self.dice, &mut self.sizes);
                if sent && kind == Kind::Anew && self.dice.below(ANEW) == 0 {
                    talk.meet(&mut self.dice);
                    done.met += 1;
                }
                if !sent && !pace.may_go_on() {
                    break;
                }
            }
        }
        (done.datagrams, done.bytes) =
            (self.sizes.len() as u64, self.sizes.iter().map(|size| u64::from(*size)).sum());
        Ok(done)
    }

    /// Makes well-formed clients send as much as the hostile ones did last.
    pub fn formed(&mut self, time: Duration) -> Result<Done> {
        let mut pace = Pace::new(self.sizes.len() as f64 / time.as_secs_f64(), time);
        let mut done = Done::default();
        let mut calls = 0;
        let before: Vec<(u64, u64)> = self.formed.iter().map(Formed::sent).collect();
        while let Some(due) = pace.step() {
            for formed in &mut self.formed {
                done.lost += formed.receive();
            }
            while calls < due.min(self.sizes.len()) && pace.may_go_on() {
                let at = self.dice.below(self.formed.len() as u64) as usize;
                self.formed[at].call(self.sizes[calls] as usize);
                calls += 1;
            }
        }
        for (formed, (datagrams, bytes)) in self.formed.iter().zip(before) {
            let after = formed.sent();
            done.datagrams += after.0 - datagrams;
            done.bytes += after.1 - bytes;
        }
        Ok(done)
    }
}

fn socket(here: IpAddr) -> Result<UdpSocket> {
    let socket = UdpSocket::bind((here, 0)).with_context(|| format!("binding to {here}"))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// The schedule: how many datagrams are due at which time.
struct Pace {
    began: Instant,
    time: Duration,
    rate: f64,
    next: Instant,
}

impl Pace {
    fn new(rate: f64, time: Duration) -> Pace {
        let now = Instant::now();
        Pace { began: now, time, rate, next: now }
    }

    /// Waits for the next step, and returns how many datagrams must have been sent by then; `None` at the
    /// end.
    fn step(&mut self) -> Option<usize> {
        let now = Instant::now();
        std::thread::sleep(self.next.saturating_duration_since(now));
        self.next = now.max(self.next) + STEP;
        let passed = self.began.elapsed();
        (passed < self.time).then_some((self.rate * passed.as_secs_f64()) as usize)
    }

    /// Returns whether a step has time left. Arrived datagrams must be received.
    fn may_go_on(&self) -> bool {
        Instant::now() < self.next + 4 * STEP
    }
}
