//! Bare UDP: the datagrams of a call, as long as they were, by system calls and nothing else.

use std::fmt;
use std::net::UdpSocket;
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use farcall_bench_method::{Calling, Laps, Peer, Serving, Setup};

/// The longest datagram.
const MAX_DATAGRAM: usize = 65_507;

/// The lengths of the datagrams of a call: there, back, there, and so on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script(pub Vec<[u16; 2]>);

impl Script {
    /// Returns how many datagrams there are.
    pub fn datagrams(&self) -> usize {
        self.0.len() * 2
    }

    /// Returns how many bytes they have together.
    pub fn bytes(&self) -> usize {
        self.0.as_flattened().iter().copied().map(usize::from).sum()
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lengths: Vec<String> = self.0.as_flattened().iter().map(u16::to_string).collect();
        f.write_str(&lengths.join("-"))
    }
}

impl FromStr for Script {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Script> {
        let lengths = text.split('-').map(|length| length.parse().context("a length is wanted"));
        let lengths = lengths.collect::<Result<Vec<u16>>>()?;
        match lengths.as_chunks() {
            (pairs, []) if !pairs.is_empty() => Ok(Script(pairs.to_vec())),
            _ => bail!("every datagram has an answer"),
        }
    }
}

/// A client that sends such datagrams, and a server whose answers are as long as each datagram says first.
pub struct Bare(pub Script);

impl Bare {
    /// How the names of such peers begin.
    pub const NAME: &str = "bare";
}

impl Peer for Bare {
    fn transport(&self) -> &'static str {
        "udp"
    }

    fn serve(&self, _: &Setup) -> Result<Box<dyn Serving>> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        let address = socket.local_addr()?.to_string();
        std::thread::spawn(move || answer(&socket));
        Ok(Box::new(Answering(address)))
    }

    fn connect(&self, _: &Setup, address: &str) -> Result<Box<dyn Calling>> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.connect(address)?;
        let sent = self.0.0.iter().map(|[there, back]| {
            let mut datagram = vec![7; usize::from(*there).max(2)];
            datagram[..2].copy_from_slice(&back.to_be_bytes());
            datagram
        });
        Ok(Box::new(Client { socket, sent: sent.collect(), room: vec![0; MAX_DATAGRAM] }))
    }
}

fn answer(socket: &UdpSocket) -> std::io::Result<()> {
    let (mut room, answer) = (vec![0; MAX_DATAGRAM], vec![7; MAX_DATAGRAM]);
    loop {
        let (length, from) = socket.recv_from(&mut room)?;
        let wanted = room[..length].first_chunk().map_or(0, |wanted| u16::from_be_bytes(*wanted).into());
        socket.send_to(&answer[..wanted.min(MAX_DATAGRAM)], from)?;
    }
}

struct Answering(String);

impl Serving for Answering {
    fn address(&self) -> String {
        self.0.clone()
    }
}

struct Client {
    socket: UdpSocket,
    sent: Vec<Vec<u8>>,
    room: Vec<u8>,
}

impl Calling for Client {
    fn run(&mut self, laps: &mut Laps) -> Result<()> {
        while laps.next() {
            for datagram in &self.sent {
                self.socket.send(datagram)?;
                self.socket.recv(&mut self.room)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_a_word_of_a_name() {
        let script = Script(vec![[60, 48], [52, 40]]);
        assert_eq!(script.to_string(), "60-48-52-40");
        assert_eq!(script.to_string().parse::<Script>().unwrap(), script);
        assert_eq!((script.datagrams(), script.bytes()), (4, 200));
        assert!("60".parse::<Script>().is_err() && "60-x".parse::<Script>().is_err());
    }
}
