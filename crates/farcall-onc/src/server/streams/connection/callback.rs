//! Calls in the other direction: a server calls the client at the other end of a connection.
//!
//! An ordinary [`Client`] makes these calls, and this connection carries its messages. Its requests are sent
//! between the server's replies. The thread that reads from the connection passes each message that is a
//! reply to the `Client`.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use farcall::env::{Alarm, Env, Interest, Source, Wanted};

use super::Connection;
use crate::Client;
use crate::client::carrier::{Carrier, Dial, Wait};
use crate::server::hosts::Account;
use crate::wire::record::mark;

/// The `Client` that calls the other end. It is made at its first use.
#[derive(Default)]
pub(super) struct Callback {
    place: OnceLock<(Client, Arc<Inflow>)>,
}

/// What happened to a reply that the connection's reader delivered.
pub(super) enum Delivered {
    InFull,
    /// The reply was queued, but all connections together now hold too many bytes.
    TooMany,
    /// The reply was not queued, because too many bytes of this connection's replies wait unread.
    Not,
}

/// The replies that have come and that the `Client` has not read yet.
struct Inflow {
    bytes: Mutex<VecDeque<u8>>,
    ended: OnceLock<()>,
    env: Arc<dyn Env>,
    alarm: Arc<dyn Alarm>,
}

/// The most bytes of replies that the `Client` has not read, and the most bytes that the peer has not taken.
/// The connection is closed when there are more.
const MAX_WAITING_BYTES: usize = 16 << 20;

impl Callback {
    /// Returns the `Client` that calls the other end, or `None` if the system lacks what it needs.
    pub(super) fn client(&self, connection: &Arc<Connection>) -> Option<Client> {
        if let Some((client, _)) = self.place.get() {
            return Some(client.clone());
        }
        let env = connection.streams.env.clone();
        let alarm = env.alarm().ok()?;
        let inflow = Arc::new(Inflow { bytes: Mutex::default(), ended: OnceLock::new(), env, alarm });
        let way = PeerCarrier { connection: Arc::downgrade(connection), inflow: inflow.clone() };
        let client = Client::builder().reconnect(false).dial(way).ok()?;
        // Another thread may have made the `Client` meanwhile. Then its `Client` is used.
        Some(self.place.get_or_init(|| (client, inflow)).0.clone())
    }

    /// Returns whether procedures wait for the client's replies.
    pub(super) fn awaits_replies(&self) -> bool {
        self.place.get().is_some_and(|(client, _)| client.awaits_replies())
    }

    /// Queues a reply that has come. Drops it if no `Client` exists or the calls have ended.
    pub(super) fn deliver(&self, message: &[u8], account: &Account) -> Delivered {
        let Some((_, inflow)) = self.place.get() else { return Delivered::InFull };
        let mut bytes = inflow.lock();
        if inflow.ended.get().is_some() {
            return Delivered::InFull;
        }
        if bytes.len() + message.len() > MAX_WAITING_BYTES {
            return Delivered::Not;
        }
        let before = bytes.capacity();
        bytes.extend(mark(message.len()));
        bytes.extend(message);
        let too_many = account.add(bytes.capacity() - before);
        inflow.alarm.ring();
        if too_many { Delivered::TooMany } else { Delivered::InFull }
    }

    /// Tells the `Client` that no more replies will come.
    pub(super) fn end(&self) {
        if let Some((_, inflow)) = self.place.get() {
            let _ = inflow.ended.set(());
            inflow.alarm.ring();
        }
    }

    /// Drops the replies that the `Client` has not read, after the connection has ended.
    pub(super) fn forget(&self, account: &Account) {
        let Some((_, inflow)) = self.place.get() else { return };
        let mut bytes = inflow.lock();
        account.subtract(std::mem::take(&mut *bytes).capacity());
    }
}

impl Inflow {
    fn lock(&self) -> MutexGuard<'_, VecDeque<u8>> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The connection as the `Client`'s carrier.
#[derive(Clone)]
struct PeerCarrier {
    connection: Weak<Connection>,
    inflow: Arc<Inflow>,
}

impl Dial for PeerCarrier {
    fn dial(&self, _: Option<Duration>) -> io::Result<Box<dyn Carrier>> {
        Ok(Box::new(self.clone()))
    }

    fn is_datagrams(&self) -> bool {
        false
    }

    fn address(&self) -> String {
        "the caller".into()
    }
}

impl Carrier for PeerCarrier {
    fn receive(&self, buffer: &mut [u8], wait: Wait) -> io::Result<usize> {
        self.inflow.alarm.quiet();
        let mut bytes = self.inflow.lock();
        if !bytes.is_empty() {
            let (front, _) = bytes.as_slices();
            let len = buffer.len().min(front.len());
            buffer[..len].copy_from_slice(&front[..len]);
            bytes.drain(..len);
            if bytes.is_empty() {
                let held = std::mem::take(&mut *bytes).capacity();
                drop(bytes);
                self.connection.upgrade().inspect(|connection| connection.account().subtract(held));
            }
            return Ok(len);
        }
        if self.inflow.ended.get().is_some() {
            return Ok(0);
        }
        drop(bytes);
        let time = match wait {
            Wait::No => return Err(ErrorKind::WouldBlock.into()),
            Wait::For(time) => Some(time),
            Wait::Forever => None,
        };
        self.sleep(time)?;
        // After this error the caller calls `receive` again, which looks for new data.
        Err(ErrorKind::Interrupted.into())
    }

    fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        let connection = self.connection.upgrade().ok_or(ErrorKind::NotConnected)?;
        if connection.unsent() >= MAX_WAITING_BYTES {
            connection.close();
        }
        if connection.send(&[bytes]) { Ok(bytes.len()) } else { Err(ErrorKind::BrokenPipe.into()) }
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        match self.source() {
            Source::Descriptor(descriptor) => descriptor,
            Source::Simulated(_) => unreachable!("whoever waits asks for the source"),
        }
    }

    fn source(&self) -> Source<'_> {
        self.inflow.alarm.source()
    }

    fn take_error(&self) -> io::Result<()> {
        Ok(())
    }

    fn holds(&self) -> bool {
        !self.inflow.lock().is_empty()
    }

    fn shutdown(&self) {
        let _ = self.inflow.ended.set(());
        self.inflow.alarm.ring();
    }
}

impl PeerCarrier {
    /// Sleeps until something has come. Returns `WouldBlock` if the time is over first.
    fn sleep(&self, time: Option<Duration>) -> io::Result<()> {
        let mut wanted = [Wanted::new(self.source(), Interest::READ)];
        match self.inflow.env.wait_any(&mut wanted, time) {
            Ok(()) if !wanted[0].ready.read => Err(ErrorKind::WouldBlock.into()),
            Err(why) if why.kind() != ErrorKind::Interrupted => Err(why),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}
