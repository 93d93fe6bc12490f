//! Bytes to and from a peer: waits until a given time at the latest.

use std::io::{self, ErrorKind, IoSlice};
use std::net::SocketAddr;
use std::sync::Arc;

use farcall::env::{self, Address, ConnectOptions, Env, MAX_REPORTS_IN_A_ROW, Stream, is_network_report};
use farcall::{Kind, Ran};

use crate::client::connection::{Fault, explain};
use crate::link::{self, LinkError, Patience};

/// A connection, or a socket that is connected to one peer. One thread at a time uses it.
pub(crate) struct Wire {
    pub(crate) env: Arc<dyn Env>,
    pub(crate) stream: Arc<dyn Stream>,
}

impl Wire {
    /// Makes a socket whose datagrams go to a server's port.
    ///
    /// # Errors
    /// The system gives no socket.
    pub(crate) fn to_port(
        env: &Arc<dyn Env>,
        to: SocketAddr,
        options: &ConnectOptions,
    ) -> Result<Wire, Fault> {
        let stream = env.connect(&Address::Udp(to), options).map_err(|why| {
            let why = format!("a socket to udp://{to}: {why}");
            Fault { kind: Kind::Local, ran: Ran::No, why }
        })?;
        Ok(Wire { env: env.clone(), stream })
    }

    /// Sends bytes. After an error the peer has not received all of them.
    pub(crate) fn send(
        &self,
        bytes: &[u8],
        Patience { until, attendant }: Patience<'_>,
    ) -> Result<(), LinkError> {
        link::send(&*self.env, &*self.stream, bytes, until, attendant)
    }

    /// Sends the datagram of a call, which goes whole or not at all. `ran` is what is known of the call if
    /// this fails.
    pub(crate) fn send_datagram(
        &self,
        message: &[u8],
        patience: Patience<'_>,
        ran: Ran,
    ) -> Result<(), Fault> {
        let sent = match self.stream.write(&[IoSlice::new(message)]) {
            Ok(_) => Ok(()),
            // What the network says of an earlier packet was reported instead.
            Err(why) if is_network_report(&why) => self.send(message, patience),
            Err(why) if matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                self.send(message, patience)
            }
            Err(why) => Err(LinkError::System(why)),
        };
        sent.map_err(|why| {
            let (kind, why) = explain(&why, "room for the packet");
            Fault { kind, ran, why }
        })
    }

    /// Waits for bytes, or for a datagram, and returns their number; 0 at the end of a connection. What has
    /// arrived when the time is over still counts.
    pub(crate) fn receive(
        &self,
        buffer: &mut [u8],
        Patience { until, attendant }: Patience<'_>,
    ) -> Result<usize, LinkError> {
        loop {
            if let Some(count) = link::read(&*self.env, &*self.stream, buffer, until, attendant)? {
                return Ok(count);
            }
        }
    }

    /// Waits for a datagram after `sent` was sent. What the network reports is passed over, because anybody
    /// can forge it, unless it says that nothing receives at the server's port, and quotes `sent` if it
    /// quotes anything.
    pub(crate) fn receive_datagram(
        &self,
        buffer: &mut [u8],
        sent: &[u8],
        patience: Patience<'_>,
    ) -> Result<usize, LinkError> {
        let mut reports = 0;
        loop {
            match self.receive(buffer, patience) {
                Err(LinkError::System(why)) if is_network_report(&why) => {
                    reports += 1;
                    if reports % MAX_REPORTS_IN_A_ROW == 0 {
                        env::rest(&*self.env);
                    }
                    if why.kind() == ErrorKind::ConnectionRefused && quotes(&why, sent) {
                        return Err(LinkError::System(why));
                    }
                    if patience.until.is_some_and(|until| until <= self.env.now()) {
                        return Err(LinkError::Late);
                    }
                }
                received => return received,
            }
        }
    }
}

/// Returns whether a report may be about this datagram. Some systems quote nothing.
fn quotes(report: &io::Error, sent: &[u8]) -> bool {
    env::quoted(report).is_none_or(|quoted| !quoted.is_empty() && sent.starts_with(quoted))
}

/// Returns why the datagram of a reply has not come.
#[cold]
pub(crate) fn no_reply(why: &LinkError) -> Fault {
    let (kind, why) = match why {
        LinkError::System(why) if why.kind() == ErrorKind::ConnectionRefused => {
            (Kind::Unreachable, "nothing receives at the server's port".into())
        }
        why => explain(why, "reply"),
    };
    Fault { kind, ran: Ran::Maybe, why }
}

#[cfg(test)]
mod tests {
    use std::net::{Shutdown, UdpSocket};
    use std::os::fd::AsFd as _;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use farcall::System;
    use farcall::env::{PeerState, Source, Wait};

    use super::*;

    /// A socket that is broken in a way that nobody knows: whoever reads gets an error at once.
    struct Broken {
        socket: UdpSocket,
        reads: AtomicU32,
    }

    impl Stream for Broken {
        fn read(&self, _: &mut [u8], _: Wait) -> io::Result<usize> {
            self.reads.fetch_add(1, Ordering::Relaxed);
            Err(io::Error::other("broken"))
        }

        fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
            Ok(parts.iter().map(|part| part.len()).sum())
        }

        fn shutdown(&self, _: Shutdown) {}

        fn take_error(&self) -> io::Result<()> {
            Ok(())
        }

        fn peer_state(&self) -> PeerState {
            PeerState::Open
        }

        fn source(&self) -> Source<'_> {
            Source::Descriptor(self.socket.as_fd())
        }
    }

    #[test]
    fn who_waits_at_a_socket_that_only_gives_errors_rests_until_the_deadline() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let broken = Arc::new(Broken { socket, reads: AtomicU32::new(0) });
        let wire = Wire { env: System::current(), stream: broken.clone() };
        let began = wire.env.now();
        let patience = Patience::until(began + Duration::from_millis(20));
        assert!(matches!(wire.receive_datagram(&mut [0; 64], b"sent", patience), Err(LinkError::Late)));
        // The thread rests for a millisecond after each 64 errors.
        let millis = wire.env.now().since(began).as_millis() as u32 + 1;
        let reads = broken.reads.load(Ordering::Relaxed);
        assert!(reads <= 70 * (millis + 2), "{reads} in {millis} ms");
    }
}
