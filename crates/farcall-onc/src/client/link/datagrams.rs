//! How a link sends a datagram, and why the system did not send the latest.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use farcall::env::is_network_report;

use super::Link;

/// The system's number of the error for which it did not send the latest datagram, or 0 if it did.
#[derive(Default)]
pub(super) struct NotSent(AtomicI32);

impl NotSent {
    fn note(&self, sent: io::Result<usize>) {
        let code = sent.err().and_then(|why| why.raw_os_error()).unwrap_or(0);
        if self.0.load(Ordering::Relaxed) != code {
            self.0.store(code, Ordering::Relaxed);
        }
    }

    /// Returns why the system did not send the latest datagram, if it did not.
    pub(super) fn why(&self) -> Option<Arc<str>> {
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            code => Some(io::Error::from_raw_os_error(code).to_string().into()),
        }
    }
}

impl Link {
    /// Sends one datagram. If the system reports a refused port, sends again, because the report may be about
    /// an earlier datagram, perhaps of another thread. The system reports a socket's pending error only once,
    /// so the receiving thread does not get that report. But if the port is still refused, the new datagram
    /// raises a report of its own. After any other error the datagram is sent once more. It may still be
    /// lost, as in a network.
    pub(crate) fn send_datagram(&self, message: &[u8]) {
        const TRIES: usize = 32;
        let mut sent = self.carrier.send(message);
        for _ in 1..TRIES {
            match &sent {
                Ok(_) => break,
                Err(why) if is_network_report(why) => sent = self.carrier.send(message),
                Err(_) => {
                    sent = self.carrier.send(message);
                    break;
                }
            }
        }
        self.not_sent.note(sent);
    }
}
