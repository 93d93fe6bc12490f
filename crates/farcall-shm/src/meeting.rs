//! Where the two sides meet: a Unix socket by which the memory file is passed, and which closes when one of them dies.
//!
//! Its name is abstract, so no file is left behind by those who are killed, and it belongs to a network namespace, as
//! the server's address does. Whoever is at the other end must be the same user.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

/// A socket at which callers arrive.
#[derive(Debug)]
pub struct Listener(OwnedFd);

/// A connection with one other process. Nothing here blocks.
#[derive(Debug)]
pub struct Wire(OwnedFd);

/// What was received.
#[derive(Debug)]
pub enum Heard {
    /// A message of that many bytes, and the file that came with it.
    Message(usize, Option<OwnedFd>),
    /// Nothing so far.
    Nothing,
    /// The other side is gone.
    Gone,
}

impl Listener {
    /// Where the server at `address` meets callers.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn bind(address: SocketAddr) -> io::Result<Listener> {
        let socket = socket()?;
        rustix::net::bind(&socket, &name(address)?)?;
        rustix::net::listen(&socket, 128)?;
        Ok(Listener(socket))
    }

    /// One who has arrived and is the same user; `None` when nobody else has.
    ///
    /// # Errors
    /// What the operating system says: perhaps there are too many files.
    pub fn accept(&self) -> io::Result<Option<Wire>> {
        loop {
            let socket = match rustix::net::accept_with(&self.0, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => socket,
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(why) => return Err(why.into()),
            };
            if is_same_user(&socket) {
                return Ok(Some(Wire(socket)));
            }
        }
    }
}

impl Wire {
    /// A connection with the server at `address`, if it meets callers there and is the same user.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn connect(address: SocketAddr) -> io::Result<Wire> {
        let socket = socket()?;
        rustix::net::connect(&socket, &name(address)?)?;
        if !is_same_user(&socket) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(Wire(socket))
    }

    /// Sends a message, with a file if there is one. False: there is no room, or nobody there.
    pub fn send(&self, bytes: &[u8], file: Option<BorrowedFd<'_>>) -> bool {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if let Some(file) = &file {
            control.push(SendAncillaryMessage::ScmRights(std::slice::from_ref(file)));
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        rustix::net::sendmsg(&self.0, &[IoSlice::new(bytes)], &mut control, flags).is_ok()
    }

    /// Blocks until there is something to receive, or for `most`.
    pub fn wait(&self, most: Duration) {
        let most = Timespec::try_from(most).ok();
        let _ = rustix::event::poll(&mut [PollFd::new(&self.0, PollFlags::IN)], most.as_ref());
    }

    /// Closes it for both sides.
    pub fn close(&self) {
        let _ = rustix::net::shutdown(&self.0, rustix::net::Shutdown::Both);
    }

    /// Receives a message if there is one. A longer one is cut.
    pub fn receive(&self, buffer: &mut [u8]) -> Heard {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let received = match rustix::net::recvmsg(&self.0, &mut [IoSliceMut::new(buffer)], &mut control, flags) {
            Ok(received) => received,
            Err(Errno::AGAIN | Errno::INTR) => return Heard::Nothing,
            Err(_) => return Heard::Gone,
        };
        // Whatever else came along is closed.
        let mut file = None;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(files) = message {
                file = files.last().or(file);
            }
        }
        // No message of ours is empty: this is the end.
        if received.bytes == 0 { Heard::Gone } else { Heard::Message(received.bytes, file) }
    }
}

/// Wakes the one thread that waits at an [`Ear`].
#[derive(Debug)]
pub struct Alarm(OwnedFd);

impl Alarm {
    /// Not set.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn new() -> io::Result<Alarm> {
        let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
        Ok(Alarm(rustix::event::eventfd(0, flags)?))
    }

    /// Sets it. Never blocks.
    pub fn set(&self) {
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// It is not set any more.
    pub fn clear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

/// Hears many at once: an alarm, a listener, wires. Each has a name. (One that says nothing costs nothing, unlike in a
/// list that is polled.)
#[derive(Debug)]
pub struct Ear(OwnedFd);

impl Ear {
    /// One that hears nobody.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn new() -> io::Result<Ear> {
        Ok(Ear(epoll::create(epoll::CreateFlags::CLOEXEC)?))
    }

    /// Hears what has this name.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn hear(&self, what: &impl AsFd, name: u64) -> io::Result<()> {
        Ok(epoll::add(&self.0, what, epoll::EventData::new_u64(name), epoll::EventFlags::IN)?)
    }

    /// Hears it no longer.
    pub fn ignore(&self, what: &impl AsFd) {
        let _ = epoll::delete(&self.0, what);
    }

    /// Blocks until somebody has something to say, or for `most`; appends the names of some who have.
    pub fn wait(&self, most: Option<Duration>, names: &mut Vec<u64>) {
        // Not by epoll's own time-out: that may be of milliseconds only.
        let most = most.and_then(|most| Timespec::try_from(most).ok());
        if rustix::event::poll(&mut [PollFd::new(&self.0, PollFlags::IN)], most.as_ref()).is_err() {
            return;
        }
        let mut events = [const { MaybeUninit::uninit() }; 64];
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        if let Ok((events, _)) = epoll::wait(&self.0, &mut events[..], Some(&none)) {
            names.extend(events.iter().map(|event| event.data.u64()));
        }
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// The name has the user in it, so that nobody takes another's by accident.
fn name(address: SocketAddr) -> io::Result<SocketAddrUnix> {
    let user = rustix::process::geteuid().as_raw();
    Ok(SocketAddrUnix::new_abstract_name(format!("farcall/1/{user}/{address}").as_bytes())?)
}

fn is_same_user(socket: &OwnedFd) -> bool {
    let peer = rustix::net::sockopt::socket_peercred(socket);
    peer.is_ok_and(|peer| peer.uid == rustix::process::geteuid())
}
