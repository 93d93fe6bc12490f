//! Unix sockets by which caller and server pass their memory files to each other. A connection closes when
//! one of the processes dies.
//!
//! The name of a server's socket is abstract: a killed server leaves no file behind, and the name belongs to
//! a network namespace, as the server's address does. The process at the other end must belong to the same
//! user.

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
use rustix::process::{Pid, Uid};

/// A socket at which callers arrive.
#[derive(Debug)]
pub struct Listener(OwnedFd);

/// The most connections of other users that are closed before other work has its turn.
const MAX_STRANGERS: usize = 64;

/// A connection with one other process. No method blocks unless its documentation says so.
///
/// A hostile peer can pass files that block the thread which examines or closes them. That includes a thread
/// that closes a connection with such files still in it. So only [`UnixChannel::receive_file`] receives
/// files. And if the peer has left something in a connection, a thread for which no other waits closes it.
#[derive(Debug)]
pub struct UnixChannel {
    /// `Some` until this is dropped.
    socket: Option<OwnedFd>,
    /// The process that made this value. A forked child closes only its copy of the descriptor, not the
    /// connection.
    maker: Pid,
}

/// What [`UnixChannel::receive`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// A message of this many bytes.
    Message(usize),
    /// A message with files. It was not received: only [`UnixChannel::receive_file`] receives such a message.
    Files,
    /// No message yet.
    Nothing,
    /// The other side has closed the connection, or is dead.
    Gone,
}

impl Listener {
    /// Binds the socket at which the server at `address` accepts callers.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn bind(address: SocketAddr) -> io::Result<Listener> {
        let socket = socket()?;
        rustix::net::bind(&socket, &name(address)?)?;
        rustix::net::listen(&socket, 128)?;
        Ok(Listener(socket))
    }

    /// Accepts a connection from a process of the same user. Returns the connection with the number of that
    /// process, or `None` if no connection waits. Connections of other users are closed. After some of them
    /// this returns `None` although more may wait, because others could arrive as fast as they are closed.
    ///
    /// # Errors
    /// The operating system's error, for example that too many files are open.
    pub fn accept(&self) -> io::Result<Option<(UnixChannel, i32)>> {
        self.accept_of(rustix::process::geteuid())
    }

    /// Accepts and closes a connection, whosever it is. Returns whether one waited.
    fn close_one(&self) -> io::Result<bool> {
        match rustix::net::accept_with(&self.0, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(socket) => drop(UnixChannel::new(socket)),
            Err(Errno::AGAIN | Errno::INVAL) => return Ok(false),
            Err(Errno::INTR | Errno::CONNABORTED) => {}
            Err(why) => return Err(why.into()),
        }
        Ok(true)
    }

    fn accept_of(&self, user: Uid) -> io::Result<Option<(UnixChannel, i32)>> {
        for _ in 0..MAX_STRANGERS {
            let socket = match rustix::net::accept_with(&self.0, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
            {
                Ok(socket) => socket,
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(why) => return Err(why.into()),
            };
            let wire = UnixChannel::new(socket);
            if let Some(process) = wire.process_of(user) {
                return Ok(Some((wire, process)));
            }
        }
        Ok(None)
    }
}

impl Drop for Listener {
    /// Accepts and drops the waiting connections, because callers can have left files in them.
    fn drop(&mut self) {
        let _ = rustix::net::shutdown(&self.0, rustix::net::Shutdown::Both);
        // (A listener that was shut down gets no further connections, so this ends.)
        while let Ok(true) = self.close_one() {}
    }
}

impl UnixChannel {
    /// Connects to the server at `address`, if it accepts callers and belongs to the same user.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn connect(address: SocketAddr) -> io::Result<UnixChannel> {
        let socket = socket()?;
        rustix::net::connect(&socket, &name(address)?)?;
        let wire = UnixChannel::new(socket);
        if wire.same_user().is_none() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(wire)
    }

    fn new(socket: OwnedFd) -> UnixChannel {
        UnixChannel { socket: Some(socket), maker: rustix::process::getpid() }
    }

    fn socket(&self) -> &OwnedFd {
        self.socket.as_ref().expect("a connection has its socket until it is dropped")
    }

    /// Returns the number of the other process, if it belongs to the same user as this one.
    fn same_user(&self) -> Option<i32> {
        self.process_of(rustix::process::geteuid())
    }

    /// Returns the number of the other process, if it belongs to this user.
    fn process_of(&self, user: Uid) -> Option<i32> {
        let peer = rustix::net::sockopt::socket_peercred(self.socket()).ok()?;
        (peer.uid == user).then_some(peer.pid.as_raw_nonzero().get())
    }

    /// Returns the numbers of this process and of the other one, as the system tells them to this process.
    /// Returns `None` if it does not tell them.
    pub fn processes(&self) -> Option<[i32; 2]> {
        Some([self.maker.as_raw_nonzero().get(), self.same_user()?])
    }

    /// Sends a message, with a file if one is given. Returns false if the message was not sent: there is no
    /// room, or the other side is gone.
    pub fn send(&self, bytes: &[u8], file: Option<BorrowedFd<'_>>) -> bool {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if let Some(file) = &file {
            control.push(SendAncillaryMessage::ScmRights(std::slice::from_ref(file)));
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        rustix::net::sendmsg(self.socket(), &[IoSlice::new(bytes)], &mut control, flags).is_ok()
    }

    /// Blocks until there is something to receive, for at most `most`.
    pub fn wait(&self, most: Duration) {
        let most = Timespec::try_from(most).ok();
        let _ = rustix::event::poll(&mut [PollFd::new(self.socket(), PollFlags::IN)], most.as_ref());
    }

    /// Closes the connection for both sides.
    pub fn close(&self) {
        let _ = rustix::net::shutdown(self.socket(), rustix::net::Shutdown::Both);
    }

    /// Receives a message if there is one. Cuts off what does not fit the buffer.
    pub fn receive(&self, buffer: &mut [u8]) -> Received {
        // This peeks at the message first: receiving it without room for its files would close them on this
        // thread.
        match self.receive_plain(buffer, RecvFlags::PEEK) {
            Ok((_, true)) => Received::Files,
            Ok((0, false)) => Received::Gone,
            Ok(_) => match self.receive_plain(buffer, RecvFlags::empty()) {
                Ok((len, _)) => Received::Message(len),
                Err(why) => interpret(why),
            },
            Err(why) => interpret(why),
        }
    }

    /// Receives a message with a file. Closes further files that come with it.
    ///
    /// Can block for ever, and so can examining or closing the file. Call it only on a thread for which no
    /// other waits.
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

    /// Receives a message without room for files. Returns its length, and whether files or anything else came
    /// with it.
    fn receive_plain(&self, buffer: &mut [u8], flags: RecvFlags) -> rustix::io::Result<(usize, bool)> {
        let (flags, control) = (flags | RecvFlags::DONTWAIT, &mut RecvAncillaryBuffer::default());
        let received = rustix::net::recvmsg(self.socket(), &mut [IoSliceMut::new(buffer)], control, flags)?;
        Ok((received.bytes, received.flags.contains(ReturnFlags::CTRUNC)))
    }

    /// Shuts the connection down. Returns whether it is certain that the peer has left nothing in it.
    fn end(&self) -> bool {
        // With this option, credentials come with each message, even an empty one. That distinguishes an
        // empty message from the end of the connection.
        if rustix::net::sockopt::set_socket_passcred(self.socket(), true).is_err() {
            return false;
        }
        self.close();
        let look = || self.receive_plain(&mut [0], RecvFlags::PEEK);
        // If the connection was reset, the first look reports only that.
        let found = look().or_else(|_| look());
        found == Ok((0, false))
    }
}

impl Drop for UnixChannel {
    fn drop(&mut self) {
        if self.maker != rustix::process::getpid() || self.end() {
            return;
        }
        if let Some(socket) = self.socket.take() {
            disposal::close(socket);
        }
    }
}

/// An event by which other threads wake the thread that waits at an [`EpollSet`].
#[derive(Debug)]
pub struct Alarm(OwnedFd);

impl Alarm {
    /// Returns an event that is not set.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn new() -> io::Result<Alarm> {
        let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
        Ok(Alarm(rustix::event::eventfd(0, flags)?))
    }

    /// Sets the event. Never blocks.
    pub fn set(&self) {
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Clears the event.
    pub fn clear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

/// Waits for events of many sources at once: alarms, listeners and channels. A token identifies each source.
/// Unlike with poll(2), idle sources cost nothing.
#[derive(Debug)]
pub struct EpollSet(OwnedFd);

impl EpollSet {
    /// Returns an empty set.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn new() -> io::Result<EpollSet> {
        Ok(EpollSet(epoll::create(epoll::CreateFlags::CLOEXEC)?))
    }

    /// Adds a source under a token.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn add(&self, source: &impl AsFd, token: u64) -> io::Result<()> {
        Ok(epoll::add(&self.0, source, epoll::EventData::new_u64(token), epoll::EventFlags::IN)?)
    }

    /// Removes a source.
    pub fn remove(&self, source: &impl AsFd) {
        let _ = epoll::delete(&self.0, source);
    }

    /// Blocks until a source is readable, for at most `most`. Appends the tokens of some readable sources.
    pub fn wait(&self, most: Option<Duration>, tokens: &mut Vec<u64>) {
        // The time limit is left to poll, because epoll's own can be in whole milliseconds only.
        let most = most.and_then(|most| Timespec::try_from(most).ok());
        if rustix::event::poll(&mut [PollFd::new(&self.0, PollFlags::IN)], most.as_ref()).is_err() {
            return;
        }
        let mut events = [const { MaybeUninit::uninit() }; 64];
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        if let Ok((events, _)) = epoll::wait(&self.0, &mut events[..], Some(&none)) {
            tokens.extend(events.iter().map(|event| event.data.u64()));
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

impl AsFd for UnixChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket().as_fd()
    }
}

fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// Returns the socket's name. The name contains the user, so that no user takes another's name by accident.
fn name(address: SocketAddr) -> io::Result<SocketAddrUnix> {
    let user = rustix::process::geteuid().as_raw();
    Ok(SocketAddrUnix::new_abstract_name(format!("farcall/1/{user}/{address}").as_bytes())?)
}

/// Interprets an error of receiving. Only some errors say that the peer is gone. Others report a signal, or a
/// temporary lack of memory or descriptors.
fn interpret(why: Errno) -> Received {
    match why {
        Errno::CONNRESET | Errno::NOTCONN | Errno::PIPE => Received::Gone,
        _ => Received::Nothing,
    }
}

/// Returns how many files this process may have open.
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
        let wire = UnixChannel::connect(address).unwrap();
        let (theirs, _) = listener.accept().unwrap().unwrap();
        let mut childs = UnixChannel::new(wire.socket().try_clone().unwrap());
        childs.maker = Pid::from_raw(i32::MAX).unwrap();
        drop(childs);
        assert!(wire.send(b"x", None));
        assert_eq!(theirs.receive(&mut [0; 8]), Received::Message(1));
    }

    // Miri has no sockets.
    #[cfg(not(miri))]
    #[test]
    fn connections_of_other_users_that_come_without_end_leave_time_for_other_work() {
        let port = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = port.local_addr().unwrap();
        let listener = Listener::bind(address).unwrap();
        let connect = || UnixChannel::connect(address).unwrap();
        let all: Vec<_> = (0..MAX_STRANGERS + 1).map(|_| connect()).collect();
        let this = rustix::process::geteuid();
        let other = Uid::from_raw(this.as_raw().wrapping_add(1));
        assert!(listener.accept_of(other).unwrap().is_none());
        assert!(listener.accept_of(this).unwrap().is_some(), "the last one still waits");
        assert!(listener.accept_of(this).unwrap().is_none());
        assert_eq!(all[0].receive(&mut [0; 8]), Received::Gone, "a stranger's was closed");
        assert_eq!(all[MAX_STRANGERS].receive(&mut [0; 8]), Received::Gone, "it was dropped here");
    }

    #[test]
    fn only_errors_that_report_the_peer_gone_end_a_connection() {
        for why in [Errno::CONNRESET, Errno::NOTCONN, Errno::PIPE] {
            assert_eq!(interpret(why), Received::Gone);
        }
        for why in
            [Errno::INTR, Errno::AGAIN, Errno::NOBUFS, Errno::NOMEM, Errno::MFILE, Errno::NFILE, Errno::IO]
        {
            assert_eq!(interpret(why), Received::Nothing);
        }
    }
}
