//! The datagrams of a call, as they pass between client and server: how many there are, and how long.

use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, bail};

use crate::bare::Script;
use crate::interface::{Cedar, CedarClient, Procedure, Server};
use crate::peers::Way;

/// Calls before the first that counts. In them the ends get to know each other.
const FIRST: usize = 20;
/// How many calls are counted. Most are alike; some carry what a conversation says now and then.
const COUNTED: usize = 200;
/// The longest datagram.
const MAX_DATAGRAM: usize = 65_507;

/// Which way a datagram went, and how long it was.
type Datagram = (bool, u16);

/// Client and server in this process, with a relay between them that writes down what it passes on.
pub struct Capture {
    stub: CedarClient,
    seen: Arc<Mutex<Vec<Datagram>>>,
    _export: farcall::Export,
}

impl Capture {
    /// Starts both ends, and the relay. The relay ends with the process.
    ///
    /// # Errors
    /// When one of them cannot be started.
    pub fn start(way: Way) -> Result<Capture> {
        let export = way.runtime()?.build()?.export::<dyn Cedar>("Cedar", Arc::new(Server))?;
        let url = export.url();
        let server = url.strip_prefix("udp://").and_then(|rest| rest.split('/').next());
        let server = server.with_context(|| format!("{url} has no address"))?;
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        let through = url.replacen(server, &socket.local_addr()?.to_string(), 1);
        let (to, seen) = (server.parse()?, Arc::<Mutex<Vec<Datagram>>>::default());
        let written = seen.clone();
        std::thread::spawn(move || relay(&socket, to, &written));
        let stub = way.runtime()?.build()?.import::<dyn Cedar>(&through)?;
        Ok(Capture { stub, seen, _export: export })
    }

    /// Returns the datagrams of a call.
    ///
    /// # Errors
    /// When a call fails, or its datagrams do not alternate.
    pub fn datagrams(&self, procedure: Procedure) -> Result<Script> {
        let stub = procedure.prepared(self.stub.clone());
        let mut counts: HashMap<Vec<Datagram>, usize> = HashMap::new();
        for call in 0..FIRST + COUNTED {
            self.take()?;
            let mut once = 0..1;
            procedure.calls(&stub, || once.next().is_some())?;
            if call >= FIRST {
                *counts.entry(self.take()?).or_default() += 1;
            }
        }
        let usual = counts.into_iter().max_by_key(|(_, count)| *count).context("no call was counted")?;
        script(&usual.0)
    }

    fn take(&self) -> Result<Vec<Datagram>> {
        Ok(std::mem::take(&mut *self.seen.lock().ok().context("the relay has panicked")?))
    }
}

fn script(datagrams: &[Datagram]) -> Result<Script> {
    let pairs = datagrams.chunks(2).map(|pair| match pair {
        [(true, there), (false, back)] => Ok([*there, *back]),
        _ => bail!("the datagrams of a call do not alternate: {datagrams:?}"),
    });
    pairs.collect::<Result<_>>().map(Script)
}

/// Passes on what comes from either end. Writes it down before, so that a call ends after that.
fn relay(socket: &UdpSocket, server: SocketAddr, seen: &Mutex<Vec<Datagram>>) -> std::io::Result<()> {
    let (mut room, mut client) = (vec![0; MAX_DATAGRAM], None);
    loop {
        let (length, from) = socket.recv_from(&mut room)?;
        let there = from != server;
        if there {
            client = Some(from);
        }
        if let Ok(mut seen) = seen.lock() {
            seen.push((there, length as u16));
        }
        if let Some(to) = if there { Some(server) } else { client } {
            socket.send_to(&room[..length], to)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As in the paper: two packets (section 3.2), and two more for an exception (section 3.4).
    #[test]
    fn a_call_has_two_packets_and_an_exception_two_more() {
        let none = [Way::Udp, Way::UdpKeys].map(|way| {
            let capture = Capture::start(way).unwrap();
            let [none, words, raised] = [Procedure::Values(0), Procedure::Words(100), Procedure::Unwound]
                .map(|procedure| {
                    let script = capture.datagrams(procedure).unwrap();
                    assert_eq!(script.datagrams(), if procedure.raises() { 4 } else { 2 }, "{script}");
                    script.bytes()
                });
            assert_eq!(words - none, 2 * 100 * 4, "XDR has four bytes for a word");
            assert!(raised > none);
            none
        });
        assert_eq!(none[1] - none[0], 2 * 8, "a seal is longer than a checksum");
    }

    #[test]
    fn datagrams_without_an_answer_are_refused() {
        assert_eq!(script(&[(true, 9), (false, 8)]).unwrap(), Script(vec![[9, 8]]));
        assert!(script(&[(true, 9), (true, 9)]).is_err());
        assert!(script(&[(true, 9)]).is_err());
    }
}
