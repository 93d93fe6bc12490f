//! Where the two sides meet: a Unix socket by which the memory file is passed, and which closes when one of them dies.
//!
//! Its name is abstract, so no file is left behind by those who are killed, and it belongs to a network namespace, as
//! the server's address does. Whoever is at the other end must be the same user.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use crate::disposal;
use rustix::event::{PollFd, PollFlags, Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use rustix::process::Pid;

/// A socket at which callers arrive.
#[derive(Debug)]
pub struct Listener(OwnedFd);

/// A connection with one other process. Nothing here blocks, but what says so.
///
/// A peer may pass files that block whoever looks at them or closes them, also when only the connection is
/// closed in which they stand. So no file is received but by [`Wire::receive_file`], and dropping a
/// connection leaves what the peer has left in it to a thread that nobody waits for.
#[derive(Debug)]
pub struct Wire {
    /// Always there, until it is dropped.
    socket: Option<OwnedFd>,
    /// The process that made it: a child of that closes its own descriptor, and not the connection.
    maker: Pid,
}

/// What was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A message of that many bytes.
    Message(usize),
    /// A message that files come with: it is received by [`Wire::receive_file`] or not at all.
    Files,
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

    /// One who has arrived and is the same user, and its process; `None` when nobody else has.
    ///
    /// # Errors
    /// What the operating system says: perhaps there are too many files.
    pub fn accept(&self) -> io::Result<Option<(Wire, i32)>> {
        loop {
            let socket = match rustix::net::accept_with(&self.0, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
            {
                Ok(socket) => socket,
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(why) => return Err(why.into()),
            };
            let wire = Wire::new(socket);
            if let Some(process) = wire.same_user() {
                return Ok(Some((wire, process)));
            }
        }
    }
}

impl Drop for Listener {
    /// Whoever has arrived and was not accepted may have left something.
    fn drop(&mut self) {
        let _ = rustix::net::shutdown(&self.0, rustix::net::Shutdown::Both);
        while let Ok(Some(_)) = self.accept() {}
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
        let wire = Wire::new(socket);
        if wire.same_user().is_none() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(wire)
    }

    fn new(socket: OwnedFd) -> Wire {
        Wire { socket: Some(socket), maker: rustix::process::getpid() }
    }

    fn socket(&self) -> &OwnedFd {
        self.socket.as_ref().expect("a connection has its socket until it is dropped")
    }

    /// The other process, if its user is ours.
    fn same_user(&self) -> Option<i32> {
        let peer = rustix::net::sockopt::socket_peercred(self.socket()).ok()?;
        (peer.uid == rustix::process::geteuid()).then_some(peer.pid.as_raw_nonzero().get())
    }

    /// Sends a message, with a file if there is one. False: there is no room, or nobody there.
    pub fn send(&self, bytes: &[u8], file: Option<BorrowedFd<'_>>) -> bool {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if let Some(file) = &file {
            control.push(SendAncillaryMessage::ScmRights(std::slice::from_ref(file)));
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        rustix::net::sendmsg(self.socket(), &[IoSlice::new(bytes)], &mut control, flags).is_ok()
    }

    /// Blocks until there is something to receive, or for `most`.
    pub fn wait(&self, most: Duration) {
        let most = Timespec::try_from(most).ok();
        let _ = rustix::event::poll(&mut [PollFd::new(self.socket(), PollFlags::IN)], most.as_ref());
    }

    /// Closes it for both sides.
    pub fn close(&self) {
        let _ = rustix::net::shutdown(self.socket(), rustix::net::Shutdown::Both);
    }

    /// Receives a message if there is one. A longer one is cut.
    pub fn receive(&self, buffer: &mut [u8]) -> Heard {
        // First only looked at: files that there is no room for are closed when a message is received, here.
        match self.receive_plain(buffer, RecvFlags::PEEK) {
            Ok((_, true)) => Heard::Files,
            Ok((0, false)) => Heard::Gone,
            Ok(_) => match self.receive_plain(buffer, RecvFlags::empty()) {
                Ok((len, _)) => Heard::Message(len),
                Err(why) => heard(why),
            },
            Err(why) => heard(why),
        }
    }

    /// Receives a message that one file comes with. What else comes with it is closed.
    ///
    /// This may block for ever, and so may looking at the file or closing it: to be called where nobody waits
    /// for it.
    pub fn receive_file(&self, buffer: &mut [u8]) -> Option<(usize, OwnedFd)> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let received =
            rustix::net::recvmsg(self.socket(), &mut [IoSliceMut::new(buffer)], &mut control, flags).ok()?;
        let files = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(files) => Some(files),
            _ => None,
        });
        Some((received.bytes, files?.last()?))
    }

    /// A message without any file: its length, and whether there is more to it.
    fn receive_plain(&self, buffer: &mut [u8], flags: RecvFlags) -> rustix::io::Result<(usize, bool)> {
        let (flags, control) = (flags | RecvFlags::DONTWAIT, &mut RecvAncillaryBuffer::default());
        let received = rustix::net::recvmsg(self.socket(), &mut [IoSliceMut::new(buffer)], control, flags)?;
        Ok((received.bytes, received.flags.contains(ReturnFlags::CTRUNC)))
    }

    /// Whether the peer has left nothing in it, and can leave nothing any more.
    fn end(&self) -> bool {
        // With credentials there is more to each message, also to an empty one; to the end there is not.
        if rustix::net::sockopt::set_socket_passcred(self.socket(), true).is_err() {
            return false;
        }
        self.close();
        let look = || self.receive_plain(&mut [0], RecvFlags::PEEK);
        // (That it was reset is said once, before what was received.)
        let found = look().or_else(|_| look());
        found == Ok((0, false))
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        if self.maker != rustix::process::getpid() || self.end() {
            return;
        }
        if let Some(socket) = self.socket.take() {
            disposal::close(socket);
        }
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
        self.socket().as_fd()
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

/// What an error at receiving means. Only some say that the peer is gone; others that there is no memory at
/// the moment, no descriptor, or a signal.
fn heard(why: Errno) -> Heard {
    match why {
        Errno::CONNRESET | Errno::NOTCONN | Errno::PIPE => Heard::Gone,
        _ => Heard::Nothing,
    }
}

/// How many files this process may have open.
pub fn file_limit() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Miri has no sockets and no second process.
    #[cfg(not(miri))]
    #[test]
    fn a_forked_child_closes_its_own_descriptor_and_not_the_connection() {
        let port = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = port.local_addr().unwrap();
        let listener = Listener::bind(address).unwrap();
        let wire = Wire::connect(address).unwrap();
        let (theirs, _) = listener.accept().unwrap().unwrap();
        let mut childs = Wire::new(wire.socket().try_clone().unwrap());
        childs.maker = Pid::from_raw(i32::MAX).unwrap();
        drop(childs);
        assert!(wire.send(b"x", None));
        assert_eq!(theirs.receive(&mut [0; 8]), Heard::Message(1));
    }

    #[test]
    fn only_an_end_is_the_end() {
        for why in [Errno::CONNRESET, Errno::NOTCONN, Errno::PIPE] {
            assert_eq!(heard(why), Heard::Gone);
        }
        for why in
            [Errno::INTR, Errno::AGAIN, Errno::NOBUFS, Errno::NOMEM, Errno::MFILE, Errno::NFILE, Errno::IO]
        {
            assert_eq!(heard(why), Heard::Nothing);
        }
    }
}
